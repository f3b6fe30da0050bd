// RUN: mllm-opt %s -p outline-devices | filecheck %s

// A whole graph is one call; its weight goes with it.
// CHECK-LABEL: func.func @whole(%x: tensor<2x4xf32> {mllm.name = "x"}) -> (tensor<2x3xf32> {mllm.name = "y"}) {
// CHECK-NEXT: [[Y:%.+]] = func.call @whole_tflite(%x) : (tensor<2x4xf32>) -> tensor<2x3xf32>
// CHECK-NEXT: func.return [[Y]]
// CHECK: func.func @whole_tflite(%{{.+}}: tensor<2x4xf32>) -> tensor<2x3xf32> attributes {hal.target = "tflite"} {
// CHECK: mllm.constant
// CHECK-NEXT: mllm.unary exp
// CHECK-NEXT: mllm.linear
// CHECK-NEXT: func.return
func.func @whole(%x: tensor<2x4xf32> {mllm.name = "x"}) -> (tensor<2x3xf32> {mllm.name = "y"}) {
  %w = mllm.constant dense<0.5> : tensor<3x4xf32>
  %e = mllm.unary exp %x {place = #hal.place<"tflite", "EXP">} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = mllm.linear %e, %w {place = #hal.place<"tflite", "FULLY_CONNECTED">} : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}

// What the program's own target runs stays, though it has a place.
// CHECK-LABEL: func.func @stays
// CHECK-NEXT: mllm.unary exp
// CHECK-NEXT: func.return
func.func @stays(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %e = mllm.unary exp %x {place = #hal.place<"c", "f32_elementwise">} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %e : tensor<2x4xf32>
}

// An op of the host between two of the device: two calls. %b does not wait for it, so that it is in
// the first call, though it stands behind; both of its readers get it from there.
// CHECK-LABEL: func.func @around
// CHECK-NEXT: [[A:%.+]], [[B:%.+]] = func.call @around_tflite(%x)
// CHECK-NEXT: [[H:%.+]] = mllm.unary sin [[A]]
// CHECK-NEXT: [[D:%.+]] = func.call @around_tflite_1([[H]], [[B]])
// CHECK-NEXT: func.return [[D]], [[B]]
// CHECK: func.func @around_tflite(
// CHECK-NEXT: mllm.unary exp
// CHECK-NEXT: mllm.unary neg
// CHECK: func.func @around_tflite_1(
// CHECK-NEXT: mllm.binary add
func.func @around(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = mllm.unary exp %x {place = #hal.place<"tflite", "EXP">} : (tensor<4xf32>) -> tensor<4xf32>
  %h = mllm.unary sin %a {place = #hal.place<"c", "tflite: no">} : (tensor<4xf32>) -> tensor<4xf32>
  %b = mllm.unary neg %a {place = #hal.place<"tflite", "NEG">} : (tensor<4xf32>) -> tensor<4xf32>
  %d = mllm.binary add %h, %b {place = #hal.place<"tflite", "ADD">} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %d, %b : tensor<4xf32>, tensor<4xf32>
}

// A name that a graph has already is not taken.
// CHECK-LABEL: func.func @taken(
// CHECK-NEXT: func.call @taken_tflite_1(%x)
// CHECK: func.func @taken_tflite_1(
// CHECK: func.func @taken_tflite(
// CHECK-NEXT: func.return
func.func @taken(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = mllm.unary exp %x {place = #hal.place<"tflite", "EXP">} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a : tensor<4xf32>
}
func.func @taken_tflite(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
