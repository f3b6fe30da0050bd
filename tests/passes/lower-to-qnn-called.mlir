// RUN: mllm-opt %s -p outline-devices,lower-to-qnn | filecheck %s

// A function of the device has whole numbers of 32 bits: the host casts what it hands over and gets
// back, and every reader of a result reads the cast.
// CHECK-LABEL: func.func @called(
// CHECK-NEXT: [[N:%.+]] = mllm.cast %n : (tensor<4xi64>) -> tensor<4xi32>
// CHECK-NEXT: [[C:%.+]] = func.call @called_qnn([[N]]) : (tensor<4xi32>) -> tensor<4xi32>
// CHECK-NEXT: [[W:%.+]] = mllm.cast [[C]] : (tensor<4xi32>) -> tensor<4xi64>
// CHECK-NEXT: [[S:%.+]] = mllm.cumsum [[W]]
// CHECK-NEXT: func.return [[W]], [[S]] : tensor<4xi64>, tensor<4xi64>
// CHECK: func.func @called_qnn(%{{.+}}: tensor<4xi32>) -> tensor<4xi32>
// CHECK-SAME: qnn.soc = #qnn.soc<"sm8650", 57, 75>
// CHECK-NEXT: qnn.element_wise_add
func.func @called(%n: tensor<4xi64>) -> (tensor<4xi64>, tensor<4xi64>) {
  %m = mllm.binary add %n, %n {place = #hal.place<"qnn", "ElementWiseAdd">} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
  %s = mllm.cumsum %m {axis = 0 : i64, place = #hal.place<"c", "qnn: no kernel">} : (tensor<4xi64>) -> tensor<4xi64>
  func.return %m, %s : tensor<4xi64>, tensor<4xi64>
}

// What the host runs is not the device's.
// CHECK-LABEL: func.func @stays
// CHECK-NEXT: mllm.unary exp
func.func @stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = mllm.unary exp %x {place = #hal.place<"c", "f32_elementwise">} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
