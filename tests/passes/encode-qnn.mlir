// RUN: mllm-opt %s -p encode-qnn | filecheck %s

// Values between arguments and results are halves; constants too, and what hides a score fits them.
// CHECK-LABEL: func.func @halves
func.func @halves(%x: tensor<4xf32>) -> tensor<4xf32> attributes {qnn.soc = #qnn.soc<"sm8650", 57, 75>} {
  // CHECK-DAG: [[C:%.+]] = mllm.constant dense<[0.000000e+00, -3.000000e+04, 0.000000e+00, 1.000000e+00]> : tensor<4xf16>
  // CHECK-DAG: [[H:%.+]] = qnn.cast %x : (tensor<4xf32>) -> tensor<4xf16>
  // CHECK: [[Y:%.+]] = qnn.element_wise_add [[H]], [[C]] : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xf16>
  // CHECK: [[Z:%.+]] = qnn.cast [[Y]] : (tensor<4xf16>) -> tensor<4xf32>
  // CHECK: func.return [[Z]]
  %c = mllm.constant dense<[0.0, -1.0e+09, 0.0, 1.0]> : tensor<4xf32>
  %y = qnn.element_wise_add %x, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// Whole numbers stay.
// CHECK-LABEL: func.func @whole
func.func @whole(%i: tensor<4xi32>) -> tensor<4xi32> {
  // CHECK: qnn.element_wise_add %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %y = qnn.element_wise_add %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  func.return %y : tensor<4xi32>
}
