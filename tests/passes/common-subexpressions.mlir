// RUN: mllm-opt %s -p common-subexpressions | filecheck %s

// CHECK-LABEL: func.func @computes_once_what_is_computed_twice
// CHECK: [[T:%.+]] = mllm.transpose %x
// CHECK-NEXT: mllm.binary add [[T]], [[T]]
func.func @computes_once_what_is_computed_twice(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %2 = mllm.binary add %0, %1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  func.return %2 : tensor<3x2xf32>
}

// CHECK-LABEL: func.func @merges_equal_constants
// CHECK-COUNT-1: mllm.constant
// CHECK-NOT: mllm.constant
func.func @merges_equal_constants(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.constant dense<1.0> : tensor<2xf32>
  %1 = mllm.constant dense<1.0> : tensor<2xf32>
  %2 = mllm.binary add %x, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %3 = mllm.binary mul %2, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %3 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_another_axis_another_type_and_another_epsilon
// CHECK-COUNT-2: mllm.softmax
// CHECK-COUNT-2: mllm.cast
// CHECK-COUNT-2: mllm.layer_norm
func.func @keeps_another_axis_another_type_and_another_epsilon(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf16>, tensor<2x2xf64>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %0 = mllm.softmax %x {axis = 0 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = mllm.softmax %x {axis = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = mllm.cast %x : (tensor<2x2xf32>) -> tensor<2x2xf16>
  %3 = mllm.cast %x : (tensor<2x2xf32>) -> tensor<2x2xf64>
  %4 = mllm.layer_norm %x {epsilon = 0.5 : f64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %5 = mllm.layer_norm %x {epsilon = 0.25 : f64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %0, %1, %2, %3, %4, %5 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf16>, tensor<2x2xf64>, tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func.func @keeps_operands_in_another_order
// CHECK-COUNT-2: mllm.binary sub
func.func @keeps_operands_in_another_order(%x: tensor<2xf32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = mllm.binary sub %x, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = mllm.binary sub %y, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_to_its_own_graph
// CHECK: mllm.unary exp
// CHECK-LABEL: func.func @is_another_graph
// CHECK: mllm.unary exp
func.func @keeps_to_its_own_graph(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.unary exp %x : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
func.func @is_another_graph(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.unary exp %x : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
