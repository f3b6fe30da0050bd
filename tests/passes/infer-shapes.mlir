// RUN: mllm-opt %s -p infer-shapes | filecheck %s

// CHECK-LABEL: func.func @shape_arithmetic_decides_a_reshape
func.func @shape_arithmetic_decides_a_reshape(%x: tensor<?x?x32xf32, #mllm.dims<"batch", "seq", "32">>) -> tensor<*xf32> attributes {onnx.opset = {"" = 17}} {
  %zero = mllm.constant dense<0> : tensor<i64>
  %axis = mllm.constant dense<0> : tensor<1xi64>
  %rest = mllm.constant dense<-1> : tensor<1xi64>
  %eight = mllm.constant dense<8> : tensor<1xi64>
  %shape = onnx.Shape %x : (tensor<?x?x32xf32, #mllm.dims<"batch", "seq", "32">>) -> (!onnx.unknown)
  %batch = onnx.Gather %shape, %zero {axis = 0 : i64} : (!onnx.unknown, tensor<i64>) -> (!onnx.unknown)
  %b = onnx.Unsqueeze %batch, %axis : (!onnx.unknown, tensor<1xi64>) -> (!onnx.unknown)
  %target = onnx.Concat %b, %rest, %eight {axis = 0 : i64} : (!onnx.unknown, tensor<1xi64>, tensor<1xi64>) -> (!onnx.unknown)
  // CHECK: onnx.Concat {{.*}} {axis = 0 : i64, onnx.contents = #mllm.dims<"batch", "-1", "8">}
  // CHECK: onnx.Reshape {{.*}} -> (tensor<?x?x8xf32, #mllm.dims<"batch", "4 * seq", "8">>)
  %y = onnx.Reshape %x, %target : (tensor<?x?x32xf32, #mllm.dims<"batch", "seq", "32">>, !onnx.unknown) -> (tensor<*xf32>)
  func.return %y : tensor<*xf32>
}

// CHECK-LABEL: func.func @a_declared_total_is_past_and_new
// CHECK-SAME: %mask: tensor<?x?xi64, #mllm.dims<"batch", "past + seq">>
func.func @a_declared_total_is_past_and_new(
    %past: tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "past", "8">>,
    %new: tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "seq", "8">>,
    %mask: tensor<?x?xi64, #mllm.dims<"batch", "total">>)
    -> (tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "total", "8">>) attributes {onnx.opset = {"" = 17}} {
  // CHECK: onnx.Concat {{.*}} -> (tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "past + seq", "8">>)
  %all = onnx.Concat %past, %new {axis = 2 : i64} : (tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "past", "8">>, tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "seq", "8">>) -> (tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "total", "8">>)
  func.return %all : tensor<?x2x?x8xf32, #mllm.dims<"batch", "2", "total", "8">>
}

// CHECK-LABEL: func.func @a_mask_that_is_added_has_the_extent_of_the_scores
// CHECK-SAME: %mask: tensor<?x1x?x?xf32, #mllm.dims<"batch", "1", "seq", "past + seq">>
func.func @a_mask_that_is_added_has_the_extent_of_the_scores(
    %scores: tensor<?x4x?x?xf32, #mllm.dims<"batch", "4", "seq", "past + seq">>,
    %mask: tensor<?x1x?x?xf32, #mllm.dims<"batch", "1", "seq", "total">>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  %y = onnx.Add %scores, %mask : (tensor<?x4x?x?xf32, #mllm.dims<"batch", "4", "seq", "past + seq">>, tensor<?x1x?x?xf32, #mllm.dims<"batch", "1", "seq", "total">>) -> (!onnx.unknown)
  func.return %y : !onnx.unknown
}

// An exporter that reuses an argument's symbol for what is no longer its extent is not believed.
// CHECK-LABEL: func.func @a_halved_extent_keeps_no_name
func.func @a_halved_extent_keeps_no_name(%x: tensor<1x8x?xf32, #mllm.dims<"1", "8", "frames">>, %w: tensor<8x8x3xf32>) -> tensor<1x8x?xf32, #mllm.dims<"1", "8", "frames">> attributes {onnx.opset = {"" = 17}} {
  // CHECK: onnx.Conv {{.*}} -> (tensor<1x8x?xf32, #mllm.dims<"1", "8", "((frames - 1) floordiv (2)) + 1">>)
  %y = onnx.Conv %x, %w {pads = array<i64: 1, 1>, strides = array<i64: 2>} : (tensor<1x8x?xf32, #mllm.dims<"1", "8", "frames">>, tensor<8x8x3xf32>) -> (tensor<1x8x?xf32, #mllm.dims<"1", "8", "frames">>)
  func.return %y : tensor<1x8x?xf32, #mllm.dims<"1", "8", "frames">>
}

// CHECK-LABEL: func.func @the_expand_of_an_exporter_keeps_extents
func.func @the_expand_of_an_exporter_keeps_extents(%x: tensor<?x1xf32, #mllm.dims<"batch", "1">>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  %minus = mllm.constant dense<-1> : tensor<i64>
  %axis = mllm.constant dense<0> : tensor<1xi64>
  %two = mllm.constant dense<2> : tensor<1xi64>
  %seven = mllm.constant dense<7> : tensor<1xi64>
  %shape = onnx.Shape %x : (tensor<?x1xf32, #mllm.dims<"batch", "1">>) -> (!onnx.unknown)
  %zero = mllm.constant dense<0> : tensor<1xi64>
  %batch = onnx.Gather %shape, %zero {axis = 0 : i64} : (!onnx.unknown, tensor<1xi64>) -> (!onnx.unknown)
  %want = onnx.Concat %batch, %seven {axis = 0 : i64} : (!onnx.unknown, tensor<1xi64>) -> (!onnx.unknown)
  %ones = onnx.ConstantOfShape %two {value = dense<1> : tensor<1xi64>} : (tensor<1xi64>) -> (!onnx.unknown)
  %minuses = onnx.Mul %ones, %minus : (!onnx.unknown, tensor<i64>) -> (!onnx.unknown)
  %open = onnx.Equal %want, %minuses : (!onnx.unknown, !onnx.unknown) -> (!onnx.unknown)
  // CHECK: onnx.Equal {{.*}} {onnx.contents = #mllm.dims<"0", "0">}
  // CHECK: onnx.Where {{.*}} {onnx.contents = #mllm.dims<"batch", "7">}
  %target = onnx.Where %open, %ones, %want : (!onnx.unknown, !onnx.unknown, !onnx.unknown) -> (!onnx.unknown)
  // CHECK: onnx.Expand {{.*}} -> (tensor<?x7xf32, #mllm.dims<"batch", "7">>)
  %y = onnx.Expand %x, %target : (tensor<?x1xf32, #mllm.dims<"batch", "1">>, !onnx.unknown) -> (!onnx.unknown)
  func.return %y : !onnx.unknown
}

// CHECK-LABEL: func.func @positions_are_a_range_of_symbols
func.func @positions_are_a_range_of_symbols(%past: tensor<?xf32, #mllm.dims<"past">>, %new: tensor<?xf32, #mllm.dims<"seq">>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  %one = mllm.constant dense<1> : tensor<i64>
  %p = onnx.Size %past : (tensor<?xf32, #mllm.dims<"past">>) -> (!onnx.unknown)
  %n = onnx.Size %new : (tensor<?xf32, #mllm.dims<"seq">>) -> (!onnx.unknown)
  %total = onnx.Add %p, %n : (!onnx.unknown, !onnx.unknown) -> (!onnx.unknown)
  // CHECK: onnx.Range {{.*}} -> (tensor<?xi64, #mllm.dims<"seq">>)
  %y = onnx.Range %p, %total, %one : (!onnx.unknown, !onnx.unknown, tensor<i64>) -> (!onnx.unknown)
  func.return %y : !onnx.unknown
}

// CHECK-LABEL: func.func @only_data_decide
func.func @only_data_decide(%x: tensor<4x4xf32>, %c: tensor<i1>) -> (!onnx.unknown, !onnx.unknown) attributes {onnx.opset = {"" = 17}} {
  // CHECK: onnx.NonZero {{.*}} -> (tensor<2x?xi64, #mllm.dims<"2", "?">>)
  %y = onnx.NonZero %x : (tensor<4x4xf32>) -> (!onnx.unknown)
  // CHECK: onnx.If
  // CHECK: -> (tensor<?x4xf32, #mllm.dims<"?", "4">>)
  %z = onnx.If %c then_branch {
    %a = onnx.Relu %x : (tensor<4x4xf32>) -> (!onnx.unknown)
    onnx.yield %a : !onnx.unknown
  } else_branch {
    %b = onnx.Concat %x, %x {axis = 0 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> (!onnx.unknown)
    onnx.yield %b : !onnx.unknown
  } : (tensor<i1>) -> (!onnx.unknown)
  func.return %y, %z : !onnx.unknown, !onnx.unknown
}

// CHECK-LABEL: func.func @a_loop_that_grows_what_it_carries
func.func @a_loop_that_grows_what_it_carries(%x: tensor<2x4xf32>) -> (!onnx.unknown, !onnx.unknown) attributes {onnx.opset = {"" = 17}} {
  %trips = mllm.constant dense<3> : tensor<i64>
  %on = mllm.constant dense<true> : tensor<i1>
  // CHECK: onnx.Loop
  // CHECK: -> (tensor<?x4xf32, #mllm.dims<"?", "4">>, tensor<3x2x4xf32>)
  %y, %z = onnx.Loop %trips, %on, %x body {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %v: !onnx.unknown):
    %w = onnx.Concat %v, %x {axis = 0 : i64} : (!onnx.unknown, tensor<2x4xf32>) -> (!onnx.unknown)
    %r = onnx.Relu %x : (tensor<2x4xf32>) -> (!onnx.unknown)
    %same = onnx.Identity %c : (tensor<i1>) -> (!onnx.unknown)
    onnx.yield %on, %w, %r : tensor<i1>, !onnx.unknown, !onnx.unknown
  } : (tensor<i64>, tensor<i1>, tensor<2x4xf32>) -> (!onnx.unknown, !onnx.unknown)
  func.return %y, %z : !onnx.unknown, !onnx.unknown
}

// CHECK-LABEL: func.func @a_symbol_of_one_value_becomes_that_value
// CHECK-SAME: %x: tensor<4x?xf32, #mllm.dims<"4", "t">>
func.func @a_symbol_of_one_value_becomes_that_value(%x: tensor<?x?xf32, #mllm.dims<"fixed", "t">>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  // CHECK: onnx.Concat {{.*}} -> (tensor<8x?xf32, #mllm.dims<"8", "t">>)
  %y = onnx.Concat %x, %x {axis = 0 : i64} : (tensor<?x?xf32, #mllm.dims<"fixed", "t">>, tensor<?x?xf32, #mllm.dims<"fixed", "t">>) -> (!onnx.unknown)
  func.return %y : !onnx.unknown
}

// CHECK: mllm.pipeline @p
// CHECK-SAME: bounds = [#mllm.bound<1 <= "t" <= 4 in [1, 2, 4]>]
mllm.pipeline @p {edges = [], caches = [], bounds = [#mllm.bound<4 <= "fixed" <= 4>, #mllm.bound<1 <= "t" <= 4 in [1, 2, 4]>]}
