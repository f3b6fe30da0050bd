// RUN: mllm-opt %s -p lower-to-tfl | filecheck %s

// A norm is the operators that it is made of; its epsilon is a constant.
// CHECK-LABEL: func.func @norm
// CHECK-SAME: %x: tensor<1x4x8xf32>
func.func @norm(%x: tensor<1x4x8xf32>, %w: tensor<8xf32>) -> tensor<1x4x8xf32> {
  // CHECK: [[SQUARE:%.+]] = tfl.mul %x, %x
  // CHECK: [[MEAN:%.+]] = tfl.mean [[SQUARE]], {{%.+}} {keep_dims = true
  // CHECK: [[SUM:%.+]] = tfl.add [[MEAN]]
  // CHECK: [[ROOT:%.+]] = tfl.rsqrt [[SUM]]
  // CHECK: [[NORMED:%.+]] = tfl.mul %x, [[ROOT]]
  // CHECK: tfl.mul [[NORMED]], %w
  %y = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : (tensor<1x4x8xf32>, tensor<8xf32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

// A turn of axes that have one element is a reshape; any other is a transpose.
// CHECK-LABEL: func.func @turned
func.func @turned(%x: tensor<1x4x8xf32>) -> (tensor<4x1x8xf32>, tensor<8x4x1xf32>) {
  // CHECK: tfl.reshape %x
  // CHECK: tfl.transpose %x
  %a = mllm.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<1x4x8xf32>) -> tensor<4x1x8xf32>
  %b = mllm.transpose %x {perm = array<i64: 2, 1, 0>} : (tensor<1x4x8xf32>) -> tensor<8x4x1xf32>
  func.return %a, %b : tensor<4x1x8xf32>, tensor<8x4x1xf32>
}

// Rows that are quantised as the model runs: TFLite does that within the product.
// CHECK-LABEL: func.func @codes
func.func @codes(%x: tensor<1x4x32xf32>, %q: tensor<8x32xi8>) -> tensor<1x4x8xf32> {
  // CHECK-NOT: dynamic_quantize
  // CHECK: [[W:%.+]] = tfl.pseudo_qconst %q
  // CHECK: tfl.fully_connected %x, [[W]], none
  %c, %s = mllm.dynamic_quantize %x {axis = 2 : i64} : (tensor<1x4x32xf32>) -> (tensor<1x4x32xi8>, tensor<1x4x1xf32>)
  %t = mllm.constant dense<0.5> : tensor<f32>
  %y = mllm.quantized_linear %c, %s, %q, %t : (tensor<1x4x32xi8>, tensor<1x4x1xf32>, tensor<8x32xi8>, tensor<f32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

