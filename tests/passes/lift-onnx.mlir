// RUN: mllm-opt %s -p infer-shapes,lift-onnx | filecheck %s

// Every operator is run lifted by the standard's own cases, in tests/conformance.

// CHECK-LABEL: func.func @lifts_what_has_an_exact_form
// CHECK-NEXT: mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
// CHECK-NEXT: mllm.matmul %x, %{{.*}} : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
func.func @lifts_what_has_an_exact_form(%x: tensor<2x8xf32>, %w: tensor<4x8xf32>) -> tensor<2x4xf32> {
  %t = onnx.Transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> (tensor<8x4xf32>)
  %y = onnx.MatMul %x, %t : (tensor<2x8xf32>, tensor<8x4xf32>) -> (tensor<2x4xf32>)
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @leaves_what_has_none
// CHECK-NEXT: onnx.NonZero
func.func @leaves_what_has_none(%x: tensor<2x3xf32>) -> tensor<2x?xi64> {
  %y = onnx.NonZero %x : (tensor<2x3xf32>) -> (tensor<2x?xi64>)
  func.return %y : tensor<2x?xi64>
}

// CHECK-LABEL: func.func @ends_shape_arithmetic
// CHECK-NOT: onnx.
// CHECK: mllm.reshape %x : (tensor<2x3x4xf32>) -> tensor<2x12xf32>
func.func @ends_shape_arithmetic(%x: tensor<2x3x4xf32>) -> tensor<2x12xf32> {
  %shape = onnx.Shape %x {start = 0 : i64, end = 1 : i64} : (tensor<2x3x4xf32>) -> (tensor<1xi64>)
  %rest = onnx.Constant {value_ints = array<i64: -1>} : () -> (tensor<1xi64>)
  %to = onnx.Concat %shape, %rest {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> (tensor<2xi64>)
  %y = onnx.Reshape %x, %to : (tensor<2x3x4xf32>, tensor<2xi64>) -> (tensor<2x12xf32>)
  func.return %y : tensor<2x12xf32>
}

// CHECK-LABEL: func.func @wraps_no_places_that_are_known
// CHECK-NOT: mllm.select
// CHECK: mllm.gather
func.func @wraps_no_places_that_are_known(%x: tensor<2x3xf32>) -> tensor<2xf32> {
  %i = mllm.constant dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>
  %y = onnx.GatherND %x, %i {batch_dims = 0 : i64} : (tensor<2x3xf32>, tensor<2x2xi64>) -> (tensor<2xf32>)
  func.return %y : tensor<2xf32>
}

// CHECK-LABEL: func.func @gathers_by_several_indices_from_one_axis
// CHECK: %[[FLAT:.*]] = mllm.reshape %x : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
// CHECK-NEXT: mllm.gather %[[FLAT]], %{{.*}} {axis = 0 : i64} : (tensor<6x4xf32>, tensor<5xi64>) -> tensor<5x4xf32>
func.func @gathers_by_several_indices_from_one_axis(%x: tensor<2x3x4xf32>, %i: tensor<5x2xi64>) -> tensor<5x4xf32> {
  %y = onnx.GatherND %x, %i {batch_dims = 0 : i64} : (tensor<2x3x4xf32>, tensor<5x2xi64>) -> (tensor<5x4xf32>)
  func.return %y : tensor<5x4xf32>
}
