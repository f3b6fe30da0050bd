// RUN: mllm-opt %s -p lift-attention | filecheck %s

// CHECK-LABEL: func.func @reads_projections_split_into_heads
// CHECK: mllm.attention %q, %k, %v {heads = 4 : i64, kv_heads = 4 : i64, scale = 5.000000e-01 : f64} : (tensor<2x3x32xf32>, tensor<2x3x32xf32>, tensor<2x3x32xf32>) -> tensor<2x3x32xf32>
// CHECK-NEXT: func.return
func.func @reads_projections_split_into_heads(%q: tensor<2x3x32xf32>, %k: tensor<2x3x32xf32>, %v: tensor<2x3x32xf32>) -> tensor<2x3x32xf32> {
  %s = mllm.constant dense<0.5> : tensor<f32>
  %q1 = mllm.reshape %q : (tensor<2x3x32xf32>) -> tensor<2x3x4x8xf32>
  %q2 = mllm.transpose %q1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %k1 = mllm.reshape %k : (tensor<2x3x32xf32>) -> tensor<2x3x4x8xf32>
  %k2 = mllm.transpose %k1 {perm = array<i64: 0, 2, 3, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x8x3xf32>
  %v1 = mllm.reshape %v : (tensor<2x3x32xf32>) -> tensor<2x3x4x8xf32>
  %v2 = mllm.transpose %v1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %0 = mllm.matmul %q2, %k2 : (tensor<2x4x3x8xf32>, tensor<2x4x8x3xf32>) -> tensor<2x4x3x3xf32>
  %1 = mllm.binary mul %0, %s : (tensor<2x4x3x3xf32>, tensor<f32>) -> tensor<2x4x3x3xf32>
  %2 = mllm.softmax %1 {axis = 3 : i64} : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %3 = mllm.matmul %2, %v2 : (tensor<2x4x3x3xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  %4 = mllm.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x8xf32>) -> tensor<2x3x4x8xf32>
  %5 = mllm.reshape %4 : (tensor<2x3x4x8xf32>) -> tensor<2x3x32xf32>
  func.return %5 : tensor<2x3x32xf32>
}

// CHECK-LABEL: func.func @reads_a_scale_before_the_heads_and_a_bias
// CHECK: mllm.attention %q, %{{.*}}, %{{.*}} bias(%b : tensor<2x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.250000e-01 : f64} : (tensor<2x3x32xf32>, tensor<2x5x32xf32>, tensor<2x5x32xf32>)
func.func @reads_a_scale_before_the_heads_and_a_bias(%q: tensor<2x3x32xf32>, %k: tensor<2x4x8x5xf32>, %v: tensor<2x4x5x8xf32>, %b: tensor<2x1x3x5xf32>) -> tensor<2x4x3x8xf32> {
  %s = mllm.constant dense<0.25> : tensor<f32>
  %two = mllm.constant dense<2.0> : tensor<f32>
  %q0 = mllm.binary mul %q, %s : (tensor<2x3x32xf32>, tensor<f32>) -> tensor<2x3x32xf32>
  %q1 = mllm.reshape %q0 : (tensor<2x3x32xf32>) -> tensor<2x3x4x8xf32>
  %q2 = mllm.transpose %q1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %0 = mllm.matmul %q2, %k : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %1 = mllm.binary div %0, %two : (tensor<2x4x3x5xf32>, tensor<f32>) -> tensor<2x4x3x5xf32>
  %2 = mllm.binary add %b, %1 : (tensor<2x1x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %3 = mllm.softmax %2 {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %4 = mllm.matmul %3, %v : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %4 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @reads_repeated_heads_of_a_cache_once
// CHECK: mllm.attention %{{.*}}, %k, %v {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.000000e+00 : f64} : (tensor<2x3x32xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>)
func.func @reads_repeated_heads_of_a_cache_once(%q: tensor<2x4x3x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x2x5x8xf32>) -> tensor<2x4x3x8xf32> {
  %k1 = mllm.reshape %k : (tensor<2x2x5x8xf32>) -> tensor<2x2x1x5x8xf32>
  %k2 = mllm.broadcast %k1 : (tensor<2x2x1x5x8xf32>) -> tensor<2x2x2x5x8xf32>
  %k3 = mllm.reshape %k2 : (tensor<2x2x2x5x8xf32>) -> tensor<2x4x5x8xf32>
  %k4 = mllm.transpose %k3 {perm = array<i64: 0, 1, 3, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x8x5xf32>
  %v1 = mllm.reshape %v : (tensor<2x2x5x8xf32>) -> tensor<2x2x1x5x8xf32>
  %v2 = mllm.broadcast %v1 : (tensor<2x2x1x5x8xf32>) -> tensor<2x2x2x5x8xf32>
  %v3 = mllm.reshape %v2 : (tensor<2x2x2x5x8xf32>) -> tensor<2x4x5x8xf32>
  %0 = mllm.matmul %q, %k4 : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %1 = mllm.softmax %0 {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %2 = mllm.matmul %1, %v3 : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %2 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @reads_scores_that_a_selection_excludes
// CHECK: mllm.attention %{{.*}}, %{{.*}}, %{{.*}} bias(%{{.*}} : tensor<2x1x3x5xf32>)
func.func @reads_scores_that_a_selection_excludes(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x8x5xf32>, %v: tensor<2x4x5x8xf32>, %c: tensor<2x1x3x5xi1>) -> tensor<2x4x3x8xf32> {
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.matmul %q, %k : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %1 = mllm.select %c, %low, %0 : (tensor<2x1x3x5xi1>, tensor<f32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %2 = mllm.softmax %1 {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %3 = mllm.matmul %2, %v : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %3 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_softmax_over_queries
// CHECK-NOT: mllm.attention
func.func @keeps_a_softmax_over_queries(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x8x5xf32>, %v: tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32> {
  %0 = mllm.matmul %q, %k : (tensor<2x4x5x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x5x5xf32>
  %1 = mllm.softmax %0 {axis = 2 : i64} : (tensor<2x4x5x5xf32>) -> tensor<2x4x5x5xf32>
  %2 = mllm.matmul %1, %v : (tensor<2x4x5x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  func.return %2 : tensor<2x4x5x8xf32>
}

// CHECK-LABEL: func.func @keeps_weights_that_are_read_elsewhere
// CHECK-NOT: mllm.attention
func.func @keeps_weights_that_are_read_elsewhere(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x8x5xf32>, %v: tensor<2x4x5x8xf32>) -> (tensor<2x4x3x5xf32>, tensor<2x4x3x8xf32>) {
  %0 = mllm.matmul %q, %k : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %1 = mllm.softmax %0 {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %2 = mllm.matmul %1, %v : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %1, %2 : tensor<2x4x3x5xf32>, tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_factor_of_each_head
// CHECK-NOT: mllm.attention
func.func @keeps_a_factor_of_each_head(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x8x5xf32>, %v: tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32> {
  %s = mllm.constant dense<[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]> : tensor<4x1x1xf32>
  %0 = mllm.matmul %q, %k : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %1 = mllm.binary mul %0, %s : (tensor<2x4x3x5xf32>, tensor<4x1x1xf32>) -> tensor<2x4x3x5xf32>
  %2 = mllm.softmax %1 {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %3 = mllm.matmul %2, %v : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %3 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @takes_batch_and_heads_apart
// CHECK: mllm.attention %{{.*}}, %{{.*}}, %{{.*}} bias(%{{.*}}) {heads = 4 : i64, kv_heads = 4 : i64, scale = 5.000000e-01 : f64} : (tensor<2x3x32xf32>, tensor<2x5x32xf32>, tensor<2x5x32xf32>) -> tensor<2x3x32xf32>
func.func @takes_batch_and_heads_apart(%x: tensor<2x3x4x8xf32>, %c: tensor<2x5x4x8xf32>, %m: tensor<2x1x3x5xf32>) -> tensor<8x3x8xf32> {
  %half = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %q = mllm.reshape %0 : (tensor<2x4x3x8xf32>) -> tensor<8x3x8xf32>
  %1 = mllm.transpose %c {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
  %k = mllm.reshape %1 : (tensor<2x4x5x8xf32>) -> tensor<8x5x8xf32>
  %kt = mllm.transpose %k {perm = array<i64: 0, 2, 1>} : (tensor<8x5x8xf32>) -> tensor<8x8x5xf32>
  %2 = mllm.matmul %q, %kt : (tensor<8x3x8xf32>, tensor<8x8x5xf32>) -> tensor<8x3x5xf32>
  %3 = mllm.binary mul %2, %half : (tensor<8x3x5xf32>, tensor<f32>) -> tensor<8x3x5xf32>
  %4 = mllm.reshape %3 : (tensor<8x3x5xf32>) -> tensor<2x4x3x5xf32>
  %5 = mllm.binary add %4, %m : (tensor<2x4x3x5xf32>, tensor<2x1x3x5xf32>) -> tensor<2x4x3x5xf32>
  %6 = mllm.reshape %5 : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>
  %7 = mllm.softmax %6 {axis = 2 : i64} : (tensor<8x3x5xf32>) -> tensor<8x3x5xf32>
  %8 = mllm.matmul %7, %k : (tensor<8x3x5xf32>, tensor<8x5x8xf32>) -> tensor<8x3x8xf32>
  func.return %8 : tensor<8x3x8xf32>
}

// CHECK-LABEL: func.func @reads_three_axes_as_one_head
// CHECK-NOT: mllm.softmax
// CHECK: mllm.attention %q, %k, %k {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.000000e+00 : f64}
func.func @reads_three_axes_as_one_head(%q: tensor<2x3x8xf32>, %k: tensor<2x5x8xf32>) -> tensor<2x3x8xf32> {
  %kt = mllm.transpose %k {perm = array<i64: 0, 2, 1>} : (tensor<2x5x8xf32>) -> tensor<2x8x5xf32>
  %0 = mllm.matmul %q, %kt : (tensor<2x3x8xf32>, tensor<2x8x5xf32>) -> tensor<2x3x5xf32>
  %1 = mllm.softmax %0 {axis = 2 : i64} : (tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %2 = mllm.matmul %1, %k : (tensor<2x3x5xf32>, tensor<2x5x8xf32>) -> tensor<2x3x8xf32>
  func.return %2 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_softmax_over_queries_of_one_head
// CHECK-NOT: mllm.attention
func.func @keeps_a_softmax_over_queries_of_one_head(%q: tensor<2x3x8xf32>, %k: tensor<2x5x8xf32>) -> tensor<2x3x8xf32> {
  %kt = mllm.transpose %k {perm = array<i64: 0, 2, 1>} : (tensor<2x5x8xf32>) -> tensor<2x8x5xf32>
  %0 = mllm.matmul %q, %kt : (tensor<2x3x8xf32>, tensor<2x8x5xf32>) -> tensor<2x3x5xf32>
  %1 = mllm.softmax %0 {axis = 1 : i64} : (tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %2 = mllm.matmul %1, %k : (tensor<2x3x5xf32>, tensor<2x5x8xf32>) -> tensor<2x3x8xf32>
  func.return %2 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @reads_repeated_heads_once
// CHECK: mllm.attention %q, %{{.*}}, %{{.*}} {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.000000e+00 : f64}
// CHECK-SAME: (tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>)
func.func @reads_repeated_heads_once(%q: tensor<2x3x32xf32>, %c: tensor<2x5x2x8xf32>) -> tensor<2x3x32xf32> {
  %0 = mllm.transpose %c {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x8xf32>) -> tensor<2x2x5x8xf32>
  %1 = mllm.reshape %0 : (tensor<2x2x5x8xf32>) -> tensor<2x2x1x5x8xf32>
  %2 = mllm.broadcast %1 : (tensor<2x2x1x5x8xf32>) -> tensor<2x2x2x5x8xf32>
  %3 = mllm.reshape %2 : (tensor<2x2x2x5x8xf32>) -> tensor<2x4x5x8xf32>
  %4 = mllm.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x5x8xf32>) -> tensor<2x5x4x8xf32>
  %k = mllm.reshape %4 : (tensor<2x5x4x8xf32>) -> tensor<2x5x32xf32>
  %5 = mllm.attention %q, %k, %k {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<2x3x32xf32>, tensor<2x5x32xf32>, tensor<2x5x32xf32>) -> tensor<2x3x32xf32>
  func.return %5 : tensor<2x3x32xf32>
}

// The scale stands between the heads and their folding into the batch: unfolding and moving the scale must not undo each other.
// CHECK-LABEL: func.func @unfolds_scaled_heads_from_the_batch
// CHECK: mllm.attention %q, %k, %v {heads = 2 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64}
func.func @unfolds_scaled_heads_from_the_batch(%q: tensor<3x5x16xf32>, %k: tensor<3x5x16xf32>, %v: tensor<3x5x16xf32>) -> tensor<3x5x16xf32> {
  %s = mllm.constant dense<0.5> : tensor<f32>
  %q1 = mllm.reshape %q : (tensor<3x5x16xf32>) -> tensor<3x5x2x8xf32>
  %q2 = mllm.transpose %q1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x5x2x8xf32>) -> tensor<3x2x5x8xf32>
  %q3 = mllm.binary mul %q2, %s : (tensor<3x2x5x8xf32>, tensor<f32>) -> tensor<3x2x5x8xf32>
  %q4 = mllm.reshape %q3 : (tensor<3x2x5x8xf32>) -> tensor<6x5x8xf32>
  %k1 = mllm.reshape %k : (tensor<3x5x16xf32>) -> tensor<3x5x2x8xf32>
  %k2 = mllm.transpose %k1 {perm = array<i64: 0, 2, 3, 1>} : (tensor<3x5x2x8xf32>) -> tensor<3x2x8x5xf32>
  %k3 = mllm.reshape %k2 : (tensor<3x2x8x5xf32>) -> tensor<6x8x5xf32>
  %v1 = mllm.reshape %v : (tensor<3x5x16xf32>) -> tensor<3x5x2x8xf32>
  %v2 = mllm.transpose %v1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x5x2x8xf32>) -> tensor<3x2x5x8xf32>
  %v3 = mllm.reshape %v2 : (tensor<3x2x5x8xf32>) -> tensor<6x5x8xf32>
  %0 = mllm.matmul %q4, %k3 : (tensor<6x5x8xf32>, tensor<6x8x5xf32>) -> tensor<6x5x5xf32>
  %1 = mllm.softmax %0 {axis = 2 : i64} : (tensor<6x5x5xf32>) -> tensor<6x5x5xf32>
  %2 = mllm.matmul %1, %v3 : (tensor<6x5x5xf32>, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %3 = mllm.reshape %2 : (tensor<6x5x8xf32>) -> tensor<3x2x5x8xf32>
  %4 = mllm.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x2x5x8xf32>) -> tensor<3x5x2x8xf32>
  %5 = mllm.reshape %4 : (tensor<3x5x2x8xf32>) -> tensor<3x5x16xf32>
  func.return %5 : tensor<3x5x16xf32>
}

// CHECK-LABEL: func.func @reads_an_exclusion_below_a_sum
// CHECK: %[[M:.*]] = mllm.select %c, %{{.*}}, %low
// CHECK: %[[B:.*]] = mllm.binary add %[[M]], %b
// CHECK: mllm.attention {{.*}} bias(%[[B]] : tensor<1x1x3x5xf32>)
func.func @reads_an_exclusion_below_a_sum(%q: tensor<1x4x3x8xf32>, %k: tensor<1x4x8x5xf32>, %v: tensor<1x4x5x8xf32>, %c: tensor<1x1x3x5xi1>, %b: tensor<1x1x3x5xf32>) -> tensor<1x4x3x8xf32> {
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.matmul %q, %k : (tensor<1x4x3x8xf32>, tensor<1x4x8x5xf32>) -> tensor<1x4x3x5xf32>
  %1 = mllm.select %c, %0, %low : (tensor<1x1x3x5xi1>, tensor<1x4x3x5xf32>, tensor<f32>) -> tensor<1x4x3x5xf32>
  %2 = mllm.binary add %1, %b : (tensor<1x4x3x5xf32>, tensor<1x1x3x5xf32>) -> tensor<1x4x3x5xf32>
  %3 = mllm.softmax %2 {axis = 3 : i64} : (tensor<1x4x3x5xf32>) -> tensor<1x4x3x5xf32>
  %4 = mllm.matmul %3, %v : (tensor<1x4x3x5xf32>, tensor<1x4x5x8xf32>) -> tensor<1x4x3x8xf32>
  func.return %4 : tensor<1x4x3x8xf32>
}

// CHECK-LABEL: func.func @leaves_out_zeros_where_no_key_is_seen
// CHECK: mllm.attention
// CHECK-NOT: mllm.unary isnan
func.func @leaves_out_zeros_where_no_key_is_seen(%q: tensor<2x4x3x8xf32>, %kt: tensor<2x4x8x3xf32>, %v: tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32> {
  %zero = mllm.constant dense<0.0> : tensor<1xf32>
  %lowest = mllm.constant dense<0xFF800000> : tensor<1xf32>
  %n = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %t = mllm.reshape %n : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %n, %t : (tensor<3xi64>, tensor<3x1xi64>) -> tensor<3x3xi1>
  %bias = mllm.select %seen, %zero, %lowest : (tensor<3x3xi1>, tensor<1xf32>, tensor<1xf32>) -> tensor<3x3xf32>
  %0 = mllm.matmul %q, %kt : (tensor<2x4x3x8xf32>, tensor<2x4x8x3xf32>) -> tensor<2x4x3x3xf32>
  %1 = mllm.binary add %0, %bias : (tensor<2x4x3x3xf32>, tensor<3x3xf32>) -> tensor<2x4x3x3xf32>
  %2 = mllm.softmax %1 {axis = 3 : i64} : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %3 = mllm.unary isnan %2 : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xi1>
  %4 = mllm.select %3, %zero, %2 : (tensor<2x4x3x3xi1>, tensor<1xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %5 = mllm.matmul %4, %v : (tensor<2x4x3x3xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %5 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_zeros_of_a_bias_that_is_given
// CHECK: mllm.unary isnan
// CHECK-NOT: mllm.attention
func.func @keeps_zeros_of_a_bias_that_is_given(%q: tensor<2x4x3x8xf32>, %kt: tensor<2x4x8x3xf32>, %v: tensor<2x4x3x8xf32>, %bias: tensor<3x3xf32>) -> tensor<2x4x3x8xf32> {
  %zero = mllm.constant dense<0.0> : tensor<1xf32>
  %0 = mllm.matmul %q, %kt : (tensor<2x4x3x8xf32>, tensor<2x4x8x3xf32>) -> tensor<2x4x3x3xf32>
  %1 = mllm.binary add %0, %bias : (tensor<2x4x3x3xf32>, tensor<3x3xf32>) -> tensor<2x4x3x3xf32>
  %2 = mllm.softmax %1 {axis = 3 : i64} : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %3 = mllm.unary isnan %2 : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xi1>
  %4 = mllm.select %3, %zero, %2 : (tensor<2x4x3x3xi1>, tensor<1xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %5 = mllm.matmul %4, %v : (tensor<2x4x3x3xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %5 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @reads_biases_of_batch_and_heads_as_one_axis
// CHECK: mllm.attention {{.*}} bias(%{{.*}} : tensor<2x4x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 5.000000e-01 : f64
func.func @reads_biases_of_batch_and_heads_as_one_axis(%q4: tensor<2x4x3x8xf32>, %k4: tensor<2x4x8x5xf32>, %v4: tensor<2x4x5x8xf32>, %b: tensor<8x1x5xf32>) -> tensor<8x3x8xf32> {
  %half = mllm.constant dense<0.5> : tensor<f32>
  %q = mllm.reshape %q4 : (tensor<2x4x3x8xf32>) -> tensor<8x3x8xf32>
  %k = mllm.reshape %k4 : (tensor<2x4x8x5xf32>) -> tensor<8x8x5xf32>
  %v = mllm.reshape %v4 : (tensor<2x4x5x8xf32>) -> tensor<8x5x8xf32>
  %0 = mllm.matmul %q, %k : (tensor<8x3x8xf32>, tensor<8x8x5xf32>) -> tensor<8x3x5xf32>
  %1 = mllm.binary mul %0, %half : (tensor<8x3x5xf32>, tensor<f32>) -> tensor<8x3x5xf32>
  %2 = mllm.binary add %1, %b : (tensor<8x3x5xf32>, tensor<8x1x5xf32>) -> tensor<8x3x5xf32>
  %3 = mllm.softmax %2 {axis = 2 : i64} : (tensor<8x3x5xf32>) -> tensor<8x3x5xf32>
  %4 = mllm.matmul %3, %v : (tensor<8x3x5xf32>, tensor<8x5x8xf32>) -> tensor<8x3x8xf32>
  func.return %4 : tensor<8x3x8xf32>
}

// CHECK-LABEL: func.func @reads_keys_that_are_computed_and_values_that_are_given_alike
// CHECK: mllm.attention {{.*}} : (tensor<1x3x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>)
func.func @reads_keys_that_are_computed_and_values_that_are_given_alike(%q: tensor<1x2x3x4xf32>, %kt: tensor<1x2x4x5xf32>, %v: tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32> {
  %0 = mllm.matmul %q, %kt : (tensor<1x2x3x4xf32>, tensor<1x2x4x5xf32>) -> tensor<1x2x3x5xf32>
  %1 = mllm.softmax %0 {axis = 3 : i64} : (tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32>
  %2 = mllm.matmul %1, %v : (tensor<1x2x3x5xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32>
  func.return %2 : tensor<1x2x3x4xf32>
}
