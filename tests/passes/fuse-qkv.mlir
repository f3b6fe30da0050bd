// RUN: mllm-opt %s -p fuse-qkv | filecheck %s

// CHECK-LABEL: func.func @joins_three_products
// CHECK: [[W:%.+]] = mllm.constant dense<{{\[\[}}1.000000e+00, 1.000000e+00], [1.000000e+00, 1.000000e+00], [2.000000e+00, 2.000000e+00], [3.000000e+00, 3.000000e+00]]> : tensor<4x2xf32>
// CHECK: [[B:%.+]] = mllm.constant dense<[0.000000e+00, 0.000000e+00, 5.000000e+00, 0.000000e+00]> : tensor<4xf32>
// CHECK: [[Q:%.+]], [[K:%.+]], [[V:%.+]] = mllm.qkv %x, [[W]] bias([[B]] : tensor<4xf32>) {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<4x2xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
// CHECK: mllm.attention [[Q]], [[K]], [[V]]
func.func @joins_three_products(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %wq = mllm.constant dense<1.0> : tensor<2x2xf32>
  %wk = mllm.constant dense<2.0> : tensor<1x2xf32>
  %bk = mllm.constant dense<5.0> : tensor<1xf32>
  %wv = mllm.constant dense<3.0> : tensor<1x2xf32>
  %q = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.linear %x, %wk, %bk : (tensor<1x3x2xf32>, tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x3x1xf32>
  %v = mllm.linear %x, %wv : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %y = mllm.attention %q, %k, %v {heads = 2 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @sees_through_norms_positions_and_caches
// CHECK: [[Q:%.+]], [[K:%.+]], [[V:%.+]] = mllm.qkv %x
// CHECK: mllm.rms_norm [[Q]]
// CHECK: mllm.rope
// CHECK: mllm.kv_append %pk, {{.+}}
// CHECK: mllm.kv_append %pv, [[V]]
func.func @sees_through_norms_positions_and_caches(%x: tensor<1x3x2xf32>, %g: tensor<2xf32>, %p: tensor<1x3xi64>, %f: tensor<1xf32>, %pk: tensor<1x1x4x2xf32>, %pv: tensor<1x1x4x2xf32>) -> tensor<1x3x2xf32> {
  %w = mllm.constant dense<1.0> : tensor<2x2xf32>
  %u = mllm.constant dense<2.0> : tensor<2x2xf32>
  %0 = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %1 = mllm.rms_norm %0, %g {epsilon = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  %q = mllm.rope %1, %p, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  %2 = mllm.linear %x, %u : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.kv_append %pk, %2 {kv_heads = 1 : i64} : (tensor<1x1x4x2xf32>, tensor<1x3x2xf32>) -> tensor<1x1x7x2xf32>
  %3 = mllm.linear %x, %u : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %v = mllm.kv_append %pv, %3 {kv_heads = 1 : i64} : (tensor<1x1x4x2xf32>, tensor<1x3x2xf32>) -> tensor<1x1x7x2xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x1x7x2xf32>, tensor<1x1x7x2xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @joins_codes_and_their_scales
// CHECK: [[C:%.+]] = mllm.constant dense<{{\[\[}}1, 1], [2, 2], [3, 3]]> : tensor<3x2xi8>
// CHECK: [[S:%.+]] = mllm.constant dense<{{\[\[}}5.000000e-01], [2.500000e-01], [1.250000e-01]]> : tensor<3x1xf32>
// CHECK: [[W:%.+]] = mllm.dequantize [[C]], [[S]] {axis = 1 : i64, block_size = 2 : i64} : (tensor<3x2xi8>, tensor<3x1xf32>) -> tensor<3x2xf32>
// CHECK: mllm.qkv %x, [[W]]
func.func @joins_codes_and_their_scales(%x: tensor<1x3x2xf32>) -> tensor<1x3x1xf32> {
  %cq = mllm.constant dense<1> : tensor<1x2xi8>
  %ck = mllm.constant dense<2> : tensor<1x2xi8>
  %cv = mllm.constant dense<3> : tensor<1x2xi8>
  %sq = mllm.constant dense<0.5> : tensor<1x1xf32>
  %sk = mllm.constant dense<0.25> : tensor<1x1xf32>
  %sv = mllm.constant dense<0.125> : tensor<1x1xf32>
  %wq = mllm.dequantize %cq, %sq {axis = 1 : i64, block_size = 2 : i64} : (tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %wk = mllm.dequantize %ck, %sk {axis = 1 : i64, block_size = 2 : i64} : (tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %wv = mllm.dequantize %cv, %sv {axis = 1 : i64, block_size = 2 : i64} : (tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %q = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %k = mllm.linear %x, %wk : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %v = mllm.linear %x, %wv : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
  func.return %y : tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_codes_that_share_one_scale
// CHECK-NOT: mllm.qkv
func.func @keeps_codes_that_share_one_scale(%x: tensor<1x3x2xf32>) -> tensor<1x3x1xf32> {
  %c = mllm.constant dense<1> : tensor<1x2xi8>
  %s = mllm.constant dense<0.5> : tensor<f32>
  %t = mllm.constant dense<0.25> : tensor<f32>
  %wq = mllm.dequantize %c, %s : (tensor<1x2xi8>, tensor<f32>) -> tensor<1x2xf32>
  %wk = mllm.dequantize %c, %t : (tensor<1x2xi8>, tensor<f32>) -> tensor<1x2xf32>
  %q = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %k = mllm.linear %x, %wk : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %v = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
  func.return %y : tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_codes_of_other_types
// CHECK-NOT: mllm.qkv
func.func @keeps_codes_of_other_types(%x: tensor<1x3x2xf32>) -> tensor<1x3x1xf32> {
  %c = mllm.constant dense<1> : tensor<1x2xi8>
  %d = mllm.constant dense<1> : tensor<1x2xi16>
  %s = mllm.constant dense<0.5> : tensor<1x1xf32>
  %wq = mllm.dequantize %c, %s : (tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %wk = mllm.dequantize %d, %s : (tensor<1x2xi16>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %q = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %k = mllm.linear %x, %wk : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %v = mllm.linear %x, %wq : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
  func.return %y : tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_keys_of_another_stream
// CHECK-NOT: mllm.qkv
func.func @keeps_keys_of_another_stream(%x: tensor<1x3x2xf32>, %s: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %w = mllm.constant dense<1.0> : tensor<2x2xf32>
  %q = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.linear %s, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %v = mllm.linear %s, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_keys_that_are_the_values
// CHECK-NOT: mllm.qkv
func.func @keeps_keys_that_are_the_values(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %w = mllm.constant dense<1.0> : tensor<2x2xf32>
  %q = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %y = mllm.attention %q, %k, %k {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_weights_that_are_computed
// CHECK-NOT: mllm.qkv
func.func @keeps_weights_that_are_computed(%x: tensor<1x3x2xf32>, %w: tensor<2x2xf32>) -> tensor<1x3x2xf32> {
  %u = mllm.constant dense<1.0> : tensor<2x2xf32>
  %q = mllm.linear %x, %u : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %v = mllm.linear %x, %u : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_weights_whose_bytes_are_unknown
// CHECK-NOT: mllm.qkv
func.func @keeps_weights_whose_bytes_are_unknown(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %w = mllm.weight #mllm.blob<"sha256:0000000000000000000000000000000000000000000000000000000000000001", f32, [2, 2]> : tensor<2x2xf32>
  %q = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %k = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %v = mllm.linear %x, %w : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %y = mllm.attention %q, %k, %v {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}
