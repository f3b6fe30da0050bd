// RUN: mllm-opt %s -p lift-norms | filecheck %s

// CHECK-LABEL: func.func @reads_an_rms_norm
// CHECK: mllm.rms_norm %x, %w {epsilon = {{.*}} : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @reads_an_rms_norm(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %0 = mllm.binary mul %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = mllm.binary add %1, %e : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = mllm.unary rsqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = mllm.binary mul %x, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %5 = mllm.binary mul %w, %4 : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  func.return %5 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @reads_an_rms_norm_with_a_quotient
// CHECK: mllm.rms_norm
func.func @reads_an_rms_norm_with_a_quotient(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %0 = mllm.binary mul %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = mllm.binary add %1, %e : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = mllm.unary sqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = mllm.binary div %x, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %5 = mllm.binary mul %4, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  func.return %5 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @reads_a_layer_norm_with_weight_and_bias
// CHECK: mllm.layer_norm %x weight(%w : tensor<8xf32>) bias(%b : tensor<8xf32>) {epsilon = {{.*}} : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @reads_a_layer_norm_with_weight_and_bias(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x8xf32> {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %m = mllm.reduce mean %x {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %d = mllm.binary sub %x, %m : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %0 = mllm.binary mul %d, %d : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = mllm.binary add %1, %e : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = mllm.unary sqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = mllm.binary div %d, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %5 = mllm.binary mul %4, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %6 = mllm.binary add %b, %5 : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  func.return %6 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_over_another_axis
// CHECK-NOT: mllm.rms_norm
func.func @keeps_a_norm_over_another_axis(%x: tensor<8x8xf32>, %w: tensor<8xf32>) -> tensor<8x8xf32> {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %0 = mllm.binary mul %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 0>, keepdims = true} : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %2 = mllm.binary add %1, %e : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %3 = mllm.unary rsqrt %2 : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %4 = mllm.binary mul %x, %3 : (tensor<8x8xf32>, tensor<1x8xf32>) -> tensor<8x8xf32>
  %5 = mllm.binary mul %4, %w : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  func.return %5 : tensor<8x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_of_another_row
// CHECK-NOT: mllm.rms_norm
func.func @keeps_a_norm_of_another_row(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %0 = mllm.binary mul %y, %y : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = mllm.binary add %1, %e : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = mllm.unary rsqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = mllm.binary mul %x, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %5 = mllm.binary mul %4, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  func.return %5 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_read_between
// CHECK-NOT: mllm.rms_norm
func.func @keeps_what_is_read_between(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %e = mllm.constant dense<1.0e-02> : tensor<f32>
  %0 = mllm.binary mul %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = mllm.binary add %1, %e : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %3 = mllm.unary rsqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = mllm.binary mul %x, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %5 = mllm.binary mul %4, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  func.return %4, %5 : tensor<2x8xf32>, tensor<2x8xf32>
}

// CHECK-LABEL: func.func @moves_a_transpose_of_rows_behind
// CHECK: %[[Y:.*]] = mllm.rms_norm %x, %w
// CHECK-NEXT: func.return %[[Y]]
func.func @moves_a_transpose_of_rows_behind(%x: tensor<2x3x4x8xf32>, %w: tensor<8xf32>) -> tensor<2x3x4x8xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %1 = mllm.rms_norm %0, %w {epsilon = 1.0e-05 : f64} : (tensor<2x4x3x8xf32>, tensor<8xf32>) -> tensor<2x4x3x8xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x8xf32>) -> tensor<2x3x4x8xf32>
  func.return %2 : tensor<2x3x4x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_transpose_that_makes_rows
// CHECK: mllm.transpose %x
// CHECK-NEXT: mllm.layer_norm
func.func @keeps_a_transpose_that_makes_rows(%x: tensor<2x3x4xf32>) -> tensor<2x4x3xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = mllm.layer_norm %0 {epsilon = 1.0e-05 : f64} : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
  func.return %1 : tensor<2x4x3xf32>
}
