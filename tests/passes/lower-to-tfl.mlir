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

// A length is the root of a sum of squares.
// CHECK-LABEL: func.func @length
func.func @length(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  // CHECK: [[SQUARE:%.+]] = tfl.mul %x, %x
  // CHECK: [[SUM:%.+]] = tfl.sum [[SQUARE]]
  // CHECK: tfl.sqrt [[SUM]]
  %y = mllm.reduce l2 %x {axes = array<i64: 1>, keepdims = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// The logarithm of 1 + e^x is max(x, 0) + log(1 + e^-|x|), which no x makes infinite.
// CHECK-LABEL: func.func @softplus
func.func @softplus(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK: [[SIZE:%.+]] = tfl.abs %x
  // CHECK: [[NEG:%.+]] = tfl.neg [[SIZE]]
  // CHECK: [[EXP:%.+]] = tfl.exp [[NEG]]
  // CHECK: [[SUM:%.+]] = tfl.add [[EXP]]
  // CHECK: [[LOG:%.+]] = tfl.log [[SUM]]
  // CHECK: [[RELU:%.+]] = tfl.relu %x
  // CHECK: tfl.add [[RELU]], [[LOG]]
  %y = mllm.unary softplus %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// What counts from the end counts from the start.
// CHECK-LABEL: func.func @last
func.func @last(%x: tensor<4x8xf32>) -> tensor<4x1xf32> {
  // CHECK: [[AT:%.+]] = mllm.constant dense<7> : tensor<1xi32>
  // CHECK: tfl.gather %x, [[AT]]
  %i = mllm.constant dense<-1> : tensor<1xi64>
  %y = mllm.gather %x, %i {axis = 1 : i64} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4x1xf32>
  func.return %y : tensor<4x1xf32>
}

// CHECK-LABEL: func.func @running
func.func @running(%x: tensor<4x8xi64>) -> tensor<4x8xi64> {
  // CHECK: tfl.cumsum %x, %{{.+}} {exclusive = true, reverse = false}
  %y = mllm.cumsum %x {axis = 1 : i64, exclusive = true} : (tensor<4x8xi64>) -> tensor<4x8xi64>
  func.return %y : tensor<4x8xi64>
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
  %c, %s, %z = mllm.dynamic_quantize %x {axis = 2 : i64} : (tensor<1x4x32xf32>) -> (tensor<1x4x32xi8>, tensor<1x4x1xf32>, tensor<1x4x1xi8>)
  %t = mllm.constant dense<0.5> : tensor<f32>
  %y = mllm.quantized_linear %c, %s, %q, %t x_zero(%z : tensor<1x4x1xi8>) : (tensor<1x4x32xi8>, tensor<1x4x1xf32>, tensor<8x32xi8>, tensor<f32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

