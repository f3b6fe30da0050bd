// RUN: mllm-opt %s -p fold-batch-norm | filecheck %s

// CHECK-LABEL: func.func @folds_a_batch_norm
// CHECK: [[W:%.+]] = mllm.constant dense<{{\[\[\[\[}}5.000000e-01]]], {{\[\[\[}}1.500000e+00]]]]> : tensor<2x1x1x1xf32>
// CHECK: [[B:%.+]] = mllm.constant dense<[2.500000e+00, 7.500000e-01]> : tensor<2xf32>
// CHECK: [[Y:%.+]] = mllm.conv %x, [[W]], [[B]]
// CHECK-NOT: mllm.binary
// CHECK: func.return [[Y]]
func.func @folds_a_batch_norm(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %m = mllm.constant dense<1.0> : tensor<2x1x1xf32>
  %s = mllm.constant dense<[[[0.5]], [[0.75]]]> : tensor<2x1x1xf32>
  %t = mllm.constant dense<[[[3.0]], [[1.5]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %1 = mllm.binary sub %0, %m : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  %2 = mllm.binary mul %1, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary add %2, %t : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @folds_into_a_bias
// CHECK: [[B:%.+]] = mllm.constant dense<[1.500000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK: mllm.conv %x, {{.+}}, [[B]]
// CHECK-NOT: mllm.binary
func.func @folds_into_a_bias(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %b = mllm.constant dense<[3.0, 4.0]> : tensor<2xf32>
  %s = mllm.constant dense<2.0> : tensor<1x1x1x1xf32>
  %0 = mllm.conv %x, %w, %b {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary div %0, %s : (tensor<1x2x2x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_a_value_that_something_else_reads
// CHECK: mllm.conv
// CHECK: mllm.binary mul
func.func @keeps_a_value_that_something_else_reads(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[[[0.5]], [[0.25]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y, %0 : tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_numbers_along_another_axis
// CHECK: mllm.binary mul
func.func @keeps_numbers_along_another_axis(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_what_a_convolution_is_taken_from
// CHECK: mllm.binary sub
func.func @keeps_what_a_convolution_is_taken_from(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[[[0.5]], [[0.25]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary sub %s, %0 : (tensor<2x1x1xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_numbers_that_are_computed
// CHECK: mllm.binary mul
func.func @keeps_numbers_that_are_computed(%x: tensor<1x1x2x2xf32>, %s: tensor<2x1x1xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_weights_that_are_computed
// CHECK: mllm.binary mul
func.func @keeps_weights_that_are_computed(%x: tensor<1x1x2x2xf32>, %w: tensor<2x1x1x1xf32>) -> (tensor<1x2x2x2xf32>) {
  %s = mllm.constant dense<[[[0.5]], [[0.25]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_other_functions
// CHECK: mllm.binary max
func.func @keeps_other_functions(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[[[0.5]], [[0.25]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary max %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_half_precision
// CHECK: mllm.binary mul
func.func @keeps_half_precision(%x: tensor<1x1x2x2xf16>) -> (tensor<1x2x2x2xf16>) {
  %w = mllm.constant dense<1.0> : tensor<2x1x1x1xf16>
  %s = mllm.constant dense<2.0> : tensor<2x1x1xf16>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf16>, tensor<2x1x1x1xf16>) -> tensor<1x2x2x2xf16>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf16>, tensor<2x1x1xf16>) -> tensor<1x2x2x2xf16>
  func.return %y : tensor<1x2x2x2xf16>
}

// CHECK-LABEL: func.func @keeps_weights_whose_bytes_are_unknown
// CHECK: mllm.binary mul
func.func @keeps_weights_whose_bytes_are_unknown(%x: tensor<1x1x2x2xf32>) -> (tensor<1x2x2x2xf32>) {
  %w = mllm.weight #mllm.blob<"sha256:0000000000000000000000000000000000000000000000000000000000000001", f32, [2, 1, 1, 1]> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[[[0.5]], [[0.25]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary mul %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_a_quotient_by_zero
// CHECK: mllm.binary div
func.func @keeps_a_quotient_by_zero(%x: tensor<1x1x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %w = mllm.constant dense<1.0> : tensor<2x1x1x1xf32>
  %s = mllm.constant dense<[[[0.0]], [[2.0]]]> : tensor<2x1x1xf32>
  %0 = mllm.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
  %y = mllm.binary div %0, %s : (tensor<1x2x2x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %y : tensor<1x2x2x2xf32>
}
