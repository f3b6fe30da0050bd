// RUN: mllm-opt %s -p infer-shapes,fold-constants | filecheck %s

// CHECK-LABEL: func.func @constants_are_computed
// CHECK-NEXT: %y = mllm.constant dense<[5, 7]> : tensor<2xi64>
// CHECK-NEXT: func.return %y
func.func @constants_are_computed() -> tensor<2xi64> attributes {onnx.opset = {"" = 17}} {
  %a = mllm.constant dense<[2, 3]> : tensor<2xi64>
  %b = mllm.constant dense<[3, 4]> : tensor<2xi64>
  %y = onnx.Add %a, %b : (tensor<2xi64>, tensor<2xi64>) -> (tensor<2xi64>)
  func.return %y : tensor<2xi64>
}

// CHECK-LABEL: func.func @a_static_shape_is_a_constant
// CHECK-NEXT: mllm.constant dense<[2, 8]> : tensor<2xi64>
// CHECK-NEXT: func.return
func.func @a_static_shape_is_a_constant(%x: tensor<2x8xf32>) -> tensor<2xi64> attributes {onnx.opset = {"" = 17}} {
  %y = onnx.Shape %x : (tensor<2x8xf32>) -> (tensor<2xi64>)
  func.return %y : tensor<2xi64>
}

// CHECK-LABEL: func.func @what_does_nothing_goes
// CHECK-NEXT: onnx.Relu %x
// CHECK-NEXT: func.return
func.func @what_does_nothing_goes(%x: tensor<2x8xf32>) -> tensor<2x8xf32> attributes {onnx.opset = {"" = 17}} {
  %i = onnx.Identity %x : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
  %d = onnx.Dropout %i : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
  %c = onnx.Cast %d {to = 1 : i64} : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
  %y = onnx.Relu %c : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
  %unused = onnx.Neg %y : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @training_keeps_its_dropout
// CHECK: onnx.Dropout
func.func @training_keeps_its_dropout(%x: tensor<2x8xf32>) -> tensor<2x8xf32> attributes {onnx.opset = {"" = 17}} {
  %ratio = mllm.constant dense<5.000000e-01> : tensor<f32>
  %on = mllm.constant dense<true> : tensor<i1>
  %y = onnx.Dropout %x, %ratio, %on : (tensor<2x8xf32>, tensor<f32>, tensor<i1>) -> (tensor<2x8xf32>)
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @a_branch_that_is_known_takes_the_place_of_the_choice
// CHECK-NEXT: %z = onnx.Neg %x
// CHECK-NEXT: func.return %z
func.func @a_branch_that_is_known_takes_the_place_of_the_choice(%x: tensor<2xf32>) -> tensor<2xf32> attributes {onnx.opset = {"" = 17}} {
  %no = mllm.constant dense<false> : tensor<i1>
  %y = onnx.If %no then_branch {
    %a = onnx.Abs %x : (tensor<2xf32>) -> (tensor<2xf32>)
    onnx.yield %a : tensor<2xf32>
  } else_branch {
    %z = onnx.Neg %x : (tensor<2xf32>) -> (tensor<2xf32>)
    onnx.yield %z : tensor<2xf32>
  } : (tensor<i1>) -> (tensor<2xf32>)
  func.return %y : tensor<2xf32>
}

// A float scale decides the sizes of a resize only once it is computed.
// CHECK-LABEL: func.func @what_is_computed_decides_shapes
// CHECK-SAME: -> tensor<1x1x8x8xf32>
// CHECK: onnx.Resize {{.*}} -> (tensor<1x1x8x8xf32>)
func.func @what_is_computed_decides_shapes(%x: tensor<1x1x4x4xf32>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  %half = mllm.constant dense<[5.000000e-01, 5.000000e-01, 1.000000e+00, 1.000000e+00]> : tensor<4xf32>
  %two = mllm.constant dense<2.000000e+00> : tensor<f32>
  %four = mllm.constant dense<4.000000e+00> : tensor<f32>
  %scaled = onnx.Mul %half, %two : (tensor<4xf32>, tensor<f32>) -> (!onnx.unknown)
  %wide = onnx.Mul %scaled, %four : (!onnx.unknown, tensor<f32>) -> (!onnx.unknown)
  %sizes = onnx.Cast %wide {to = 7 : i64} : (!onnx.unknown) -> (!onnx.unknown)
  %divisor = mllm.constant dense<[4, 4, 1, 1]> : tensor<4xi64>
  %exact = onnx.Div %sizes, %divisor : (!onnx.unknown, tensor<4xi64>) -> (!onnx.unknown)
  %y = onnx.Resize %x, _, _, %exact {mode = "nearest"} : (tensor<1x1x4x4xf32>, !onnx.unknown) -> (!onnx.unknown)
  func.return %y : !onnx.unknown
}

// CHECK-LABEL: func.func @chance_is_no_constant
// CHECK: onnx.RandomNormal
func.func @chance_is_no_constant() -> tensor<2xf32> attributes {onnx.opset = {"" = 17}} {
  %y = onnx.RandomNormal {shape = array<i64: 2>} : () -> (tensor<2xf32>)
  func.return %y : tensor<2xf32>
}

// CHECK-LABEL: func.func @computes_what_the_lifts_leave_on_constants
// CHECK-NEXT: [[C:%.+]] = mllm.constant dense<{{\[\[}}4.000000e+00, 9.000000e+00]]> : tensor<1x2xf32>
// CHECK-NEXT: mllm.binary add %x, [[C]]
func.func @computes_what_the_lifts_leave_on_constants(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = mllm.constant dense<[[2.0], [3.0]]> : tensor<2x1xf32>
  %0 = mllm.transpose %c {perm = array<i64: 1, 0>} : (tensor<2x1xf32>) -> tensor<1x2xf32>
  %1 = mllm.binary mul %0, %0 : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  %2 = mllm.binary add %x, %1 : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %2 : tensor<1x2xf32>
}

// CHECK-LABEL: func.func @keeps_codes_and_what_would_grow
// CHECK: mllm.dequantize
// CHECK: mllm.broadcast
func.func @keeps_codes_and_what_would_grow() -> (tensor<2xf32>, tensor<1048576xf32>) {
  %c = mllm.constant dense<1> : tensor<2xi8>
  %s = mllm.constant dense<2.0> : tensor<f32>
  %0 = mllm.dequantize %c, %s : (tensor<2xi8>, tensor<f32>) -> tensor<2xf32>
  %1 = mllm.broadcast %s : (tensor<f32>) -> tensor<1048576xf32>
  func.return %0, %1 : tensor<2xf32>, tensor<1048576xf32>
}
