// RUN: mllm-opt %s -p fuse-residual-norm | filecheck %s

// CHECK-LABEL: func.func @makes_sum_and_norm_at_once
// CHECK: [[S:%.+]], [[N:%.+]] = mllm.residual_norm rms %x, %y weight(%w : tensor<8xf32>) {epsilon = 5.000000e-01 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>)
// CHECK-NEXT: func.return [[S]], [[N]]
func.func @makes_sum_and_norm_at_once(%x: tensor<1x3x8xf32>, %y: tensor<1x3x8xf32>, %w: tensor<8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  %n = mllm.rms_norm %s, %w {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  func.return %s, %n : tensor<1x3x8xf32>, tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @makes_a_sum_that_nothing_else_reads
// CHECK: mllm.residual_norm layer %x, %y bias(%w : tensor<8xf32>)
func.func @makes_a_sum_that_nothing_else_reads(%x: tensor<1x3x8xf32>, %y: tensor<1x3x8xf32>, %w: tensor<8xf32>) -> tensor<1x3x8xf32> {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  %n = mllm.layer_norm %s bias(%w : tensor<8xf32>) {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  func.return %n : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @norms_a_shared_sum_once_with_each_epsilon
// CHECK: [[S:%.+]], {{.+}} = mllm.residual_norm rms %x, %y {{.+}} {epsilon = 5.000000e-01 : f64}
// CHECK: mllm.rms_norm [[S]], %w {epsilon = 2.500000e-01 : f64}
// CHECK-NOT: mllm.residual_norm
func.func @norms_a_shared_sum_once_with_each_epsilon(%x: tensor<1x3x8xf32>, %y: tensor<1x3x8xf32>, %w: tensor<8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  %n = mllm.rms_norm %s, %w {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  %m = mllm.rms_norm %s, %w {epsilon = 0.25 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  func.return %n, %m : tensor<1x3x8xf32>, tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_sum_that_broadcasts
// CHECK-NOT: mllm.residual_norm
func.func @keeps_a_sum_that_broadcasts(%x: tensor<1x3x8xf32>, %y: tensor<8xf32>, %w: tensor<8xf32>) -> tensor<1x3x8xf32> {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  %n = mllm.rms_norm %s, %w {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  func.return %n : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_difference
// CHECK-NOT: mllm.residual_norm
func.func @keeps_a_difference(%x: tensor<1x3x8xf32>, %y: tensor<1x3x8xf32>, %w: tensor<8xf32>) -> tensor<1x3x8xf32> {
  %s = mllm.binary sub %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  %n = mllm.rms_norm %s, %w {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> tensor<1x3x8xf32>
  func.return %n : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_over_another_axis
// CHECK-NOT: mllm.residual_norm
func.func @keeps_a_norm_over_another_axis(%x: tensor<1x3x8xf32>, %y: tensor<1x3x8xf32>) -> tensor<1x8x3xf32> {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  %t = mllm.transpose %s {perm = array<i64: 0, 2, 1>} : (tensor<1x3x8xf32>) -> tensor<1x8x3xf32>
  %n = mllm.layer_norm %t {epsilon = 0.5 : f64} : (tensor<1x8x3xf32>) -> tensor<1x8x3xf32>
  func.return %n : tensor<1x8x3xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_of_another_type
// CHECK-NOT: mllm.residual_norm
func.func @keeps_a_norm_of_another_type(%x: tensor<1x3x8xf16>, %y: tensor<1x3x8xf16>) -> tensor<1x3x8xf32> {
  %s = mllm.binary add %x, %y : (tensor<1x3x8xf16>, tensor<1x3x8xf16>) -> tensor<1x3x8xf16>
  %t = mllm.cast %s : (tensor<1x3x8xf16>) -> tensor<1x3x8xf32>
  %n = mllm.layer_norm %t {epsilon = 0.5 : f64} : (tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
  func.return %n : tensor<1x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_weight_that_comes_from_the_sum
// CHECK-NOT: mllm.residual_norm
func.func @keeps_a_weight_that_comes_from_the_sum(%x: tensor<1x1x8xf32>, %y: tensor<1x1x8xf32>) -> tensor<1x1x8xf32> {
  %s = mllm.binary add %x, %y : (tensor<1x1x8xf32>, tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %w = mllm.reshape %s : (tensor<1x1x8xf32>) -> tensor<8xf32>
  %n = mllm.rms_norm %s, %w {epsilon = 0.5 : f64} : (tensor<1x1x8xf32>, tensor<8xf32>) -> tensor<1x1x8xf32>
  func.return %n : tensor<1x1x8xf32>
}
