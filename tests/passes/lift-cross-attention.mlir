// RUN: mllm-opt %s -p lift-cross-attention | filecheck %s

// CHECK-LABEL: func.func @reads_another_streams_projections
// CHECK: mllm.cross_attn %{{.*}}, %{{.*}}, %{{.*}} {heads = 2 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64}
func.func @reads_another_streams_projections(%x: tensor<1x3x16xf32>, %y: tensor<1x5x16xf32>, %w: tensor<16x16xf32>) -> tensor<1x3x16xf32> {
  %q = mllm.linear %x, %w : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
  %k = mllm.linear %y, %w : (tensor<1x5x16xf32>, tensor<16x16xf32>) -> tensor<1x5x16xf32>
  %0 = mllm.attention %q, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x3x16xf32>
  func.return %0 : tensor<1x3x16xf32>
}

// CHECK-LABEL: func.func @reads_keys_that_are_arguments
// CHECK: mllm.cross_attn %{{.*}}, %k, %v
func.func @reads_keys_that_are_arguments(%x: tensor<1x3x16xf32>, %k: tensor<1x2x5x8xf32>, %v: tensor<1x2x5x8xf32>, %w: tensor<16x16xf32>) -> tensor<1x3x16xf32> {
  %q = mllm.linear %x, %w : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
  %0 = mllm.attention %q, %k, %v {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x16xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x3x16xf32>
  func.return %0 : tensor<1x3x16xf32>
}

// CHECK-LABEL: func.func @keeps_one_stream
// CHECK-NOT: mllm.cross_attn
func.func @keeps_one_stream(%x: tensor<1x3x16xf32>, %w: tensor<16x16xf32>, %u: tensor<16x16xf32>) -> tensor<1x3x16xf32> {
  %q = mllm.linear %x, %w : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
  %k = mllm.linear %x, %u : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
  %0 = mllm.attention %q, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x16xf32>, tensor<1x3x16xf32>, tensor<1x3x16xf32>) -> tensor<1x3x16xf32>
  func.return %0 : tensor<1x3x16xf32>
}

// CHECK-LABEL: func.func @keeps_a_cache_that_grows
// CHECK-NOT: mllm.cross_attn
func.func @keeps_a_cache_that_grows(%x: tensor<1x3x16xf32>, %past: tensor<1x2x5x8xf32>, %w: tensor<16x16xf32>) -> tensor<1x3x16xf32> {
  %q = mllm.linear %x, %w : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
  %k = mllm.kv_append %past, %q {kv_heads = 2 : i64} : (tensor<1x2x5x8xf32>, tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32>
  %0 = mllm.attention %q, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x16xf32>, tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>) -> tensor<1x3x16xf32>
  func.return %0 : tensor<1x3x16xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_causal
// CHECK-NOT: mllm.cross_attn
func.func @keeps_what_is_causal(%x: tensor<1x3x16xf32>, %y: tensor<1x5x16xf32>) -> tensor<1x3x16xf32> {
  %0 = mllm.attention %x, %y, %y {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64, causal = true} : (tensor<1x3x16xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>) -> tensor<1x3x16xf32>
  func.return %0 : tensor<1x3x16xf32>
}
