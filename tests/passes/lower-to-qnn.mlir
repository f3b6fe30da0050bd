// RUN: mllm-opt %s -p lower-to-qnn | filecheck %s

// A norm is an operator, over the rows of a matrix; the graph is told its chip.
// CHECK-LABEL: func.func @norm
// CHECK-SAME: qnn.soc = #qnn.soc<"sm8650", 57, 75>
func.func @norm(%x: tensor<1x4x8xf32>, %w: tensor<8xf32>) -> tensor<1x4x8xf32> {
  // CHECK: [[ROWS:%.+]] = qnn.reshape %x : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
  // CHECK: [[NORMED:%.+]] = qnn.rms_norm [[ROWS]], %w {epsilon = 1.0{{.*}}e-05 : f64, axes = array<i64: 1>}
  // CHECK: qnn.reshape [[NORMED]]
  %y = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : (tensor<1x4x8xf32>, tensor<8xf32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

// A turn of axes that have one element is a reshape; one that is turned back is nothing.
// CHECK-LABEL: func.func @turned
func.func @turned(%x: tensor<1x4x8xf32>) -> (tensor<4x1x8xf32>, tensor<1x4x8xf32>) {
  // CHECK: [[A:%.+]] = qnn.reshape %x
  // CHECK-NOT: qnn.transpose
  // CHECK: [[B:%.+]] = qnn.reshape %x : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  // CHECK: func.return [[A]], [[B]]
  %a = mllm.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<1x4x8xf32>) -> tensor<4x1x8xf32>
  %b = mllm.transpose %x {perm = array<i64: 2, 1, 0>} : (tensor<1x4x8xf32>) -> tensor<8x4x1xf32>
  %c = mllm.transpose %b {perm = array<i64: 2, 1, 0>} : (tensor<8x4x1xf32>) -> tensor<1x4x8xf32>
  func.return %a, %c : tensor<4x1x8xf32>, tensor<1x4x8xf32>
}

// Whole numbers have 32 bits, also in the signature; elements of a far axis are turned to the front.
// CHECK-LABEL: func.func @far
// CHECK-SAME: %i: tensor<2xi32>
func.func @far(%x: tensor<3x5xf32>, %i: tensor<2xi64>) -> tensor<3x2xf32> {
  // CHECK: [[TURNED:%.+]] = qnn.transpose %x
  // CHECK: [[FOUND:%.+]] = qnn.gather [[TURNED]], %i {axis = 0 : i64}
  // CHECK: qnn.transpose [[FOUND]]
  %y = mllm.gather %x, %i {axis = 1 : i64} : (tensor<3x5xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  func.return %y : tensor<3x2xf32>
}

// Weights of codes are static tensors with a scale for each row.
// CHECK-LABEL: func.func @codes
func.func @codes(%x: tensor<1x4x4xf32>) -> tensor<1x4x2xf32> {
  %q = mllm.weight #mllm.blob<"sha256:0000000000000000000000000000000000000000000000000000000000000000", i4, [2, 4]> : tensor<2x4xi4>
  %s = mllm.constant dense<[[0.5], [0.25]]> : tensor<2x1xf32>
  // CHECK: [[W:%.+]] = qnn.static_tensor {{%.+}}, {{%.+}} {axis = 0 : i64, block_size = 0 : i64}
  // CHECK: qnn.fully_connected {{%.+}}, [[W]], none
  %w = mllm.dequantize %q, %s : (tensor<2x4xi4>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %y = mllm.linear %x, %w : (tensor<1x4x4xf32>, tensor<2x4xf32>) -> tensor<1x4x2xf32>
  func.return %y : tensor<1x4x2xf32>
}

// HTP counts no index from the end.
// CHECK-LABEL: func.func @last
// CHECK: [[LAST:%.+]] = mllm.constant dense<4> : tensor<1xi32>
// CHECK: qnn.gather %x, [[LAST]] {axis = 1 : i64}
func.func @last(%x: tensor<3x5xf32>) -> tensor<3x1xf32> {
  %i = mllm.constant dense<-1> : tensor<1xi64>
  %y = mllm.gather %x, %i {axis = 1 : i64} : (tensor<3x5xf32>, tensor<1xi64>) -> tensor<3x1xf32>
  func.return %y : tensor<3x1xf32>
}
