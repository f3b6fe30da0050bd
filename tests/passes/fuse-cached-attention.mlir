// RUN: mllm-opt %s -p fuse-cached-attention | filecheck %s

// CHECK-LABEL: func.func @appends_to_the_cache_that_it_reads
// CHECK: [[Y:%.+]], [[K:%.+]], [[V:%.+]] = mllm.cached_attention %q, %n, %n past(%k, %v) key_mask(%m : tensor<1x8xi64>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64, causal = true, window = 3 : i64}
// CHECK-NEXT: func.return [[Y]], [[K]], [[V]]
func.func @appends_to_the_cache_that_it_reads(%q: tensor<1x3x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x5x2xf32>, %m: tensor<1x8xi64>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.kv_append %v, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %2 = mllm.attention %q, %0, %1 key_mask(%m : tensor<1x8xi64>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64, causal = true, window = 3 : i64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  func.return %2, %0, %1 : tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>
}

// CHECK-LABEL: func.func @lets_a_second_attention_read_what_is_present
// CHECK: {{%.+}}, [[K:%.+]], [[V:%.+]] = mllm.cached_attention %q
// CHECK: mllm.attention %p, [[K]], [[V]]
func.func @lets_a_second_attention_read_what_is_present(%q: tensor<1x3x8xf32>, %p: tensor<1x3x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.kv_append %v, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %2 = mllm.attention %q, %0, %1 {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  %3 = mllm.attention %p, %0, %1 {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  func.return %2, %3 : tensor<1x3x8xf32>, tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_cache_that_is_read_before
// CHECK-NOT: mllm.cached_attention
func.func @keeps_a_cache_that_is_read_before(%q: tensor<1x3x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>) {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.kv_append %v, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %2 = mllm.unary neg %0 : (tensor<1x2x8x2xf32>) -> tensor<1x2x8x2xf32>
  %3 = mllm.attention %q, %0, %1 {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  func.return %3, %2 : tensor<1x3x8xf32>, tensor<1x2x8x2xf32>
}

// CHECK-LABEL: func.func @keeps_values_that_are_no_cache
// CHECK-NOT: mllm.cached_attention
func.func @keeps_values_that_are_no_cache(%q: tensor<1x3x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32> {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.attention %q, %0, %v {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  func.return %1 : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_keys_that_are_the_values
// CHECK-NOT: mllm.cached_attention
func.func @keeps_keys_that_are_the_values(%q: tensor<1x3x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>) -> tensor<1x3x8xf32> {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.attention %q, %0, %0 {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x3x8xf32>
  func.return %1 : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_queries_of_other_tokens
// CHECK-NOT: mllm.cached_attention
func.func @keeps_queries_of_other_tokens(%q: tensor<1x1x8xf32>, %n: tensor<1x3x4xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x5x2xf32>) -> tensor<1x1x8xf32> {
  %0 = mllm.kv_append %k, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %1 = mllm.kv_append %v, %n {kv_heads = 2 : i64} : (tensor<1x2x5x2xf32>, tensor<1x3x4xf32>) -> tensor<1x2x8x2xf32>
  %2 = mllm.attention %q, %0, %1 {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x1x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>) -> tensor<1x1x8xf32>
  func.return %2 : tensor<1x1x8xf32>
}
