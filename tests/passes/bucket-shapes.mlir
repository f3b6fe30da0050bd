// RUN: mllm-opt %s -p bucket-shapes | filecheck %s

// CHECK-NOT: func.func @encoder(
// CHECK-LABEL: func.func @encoder_4(
// CHECK-SAME: %x: tensor<1x4x8xf32> {mllm.name = "x", mllm.dims = #mllm.dims<"batch", "tokens", "8">}
// CHECK-SAME: tensor<1xi64> {mllm.name = "length.tokens", mllm.dims = #mllm.dims<"1">}
// CHECK-SAME: -> (tensor<1x4x8xf32> {mllm.name = "y", mllm.dims = #mllm.dims<"batch", "tokens", "8">})
// CHECK-SAME: mllm.variant = #mllm.variant<"encoder", "batch" = 1, "tokens" = 4>
// CHECK: %[[COUNT:.*]] = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<4xi64>
// CHECK-NEXT: %[[REAL:.*]] = mllm.compare lt %[[COUNT]], %{{.*}} : (tensor<4xi64>, tensor<1xi64>) -> tensor<4xi1>
// CHECK-NEXT: %[[MASK:.*]] = mllm.broadcast %[[REAL]] : (tensor<4xi1>) -> tensor<1x4xi1>
// CHECK-NEXT: mllm.attention %x, %x, %x key_mask(%[[MASK]] : tensor<1x4xi1>)
// CHECK-LABEL: func.func @encoder_16(
// CHECK-SAME: mllm.variant = #mllm.variant<"encoder", "batch" = 1, "tokens" = 16>
func.func @encoder(%x: tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">> {mllm.name = "x"}) -> (tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">> {mllm.name = "y"}) {
  %y = mllm.attention %x, %x, %x {heads = 2 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64, causal = false} : (tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>, tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>, tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>) -> tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>
  func.return %y : tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>
}

// A past is padded before its tokens.
// CHECK-LABEL: func.func @cache_4(
// CHECK-SAME: mllm.variant = #mllm.variant<"cache", "past" = 8 left, "tokens" = 4>
// CHECK: mllm.kv_append %past, %new {kv_heads = 1 : i64} : (tensor<1x1x8x8xf32>, tensor<1x4x8xf32>) -> tensor<1x1x12x8xf32>
func.func @cache(%past: tensor<1x1x?x8xf32, #mllm.dims<"1", "1", "past", "8">> {mllm.name = "past"}, %new: tensor<1x?x8xf32, #mllm.dims<"1", "tokens", "8">> {mllm.name = "new"}) -> (tensor<1x1x?x8xf32, #mllm.dims<"1", "1", "past + tokens", "8">> {mllm.name = "present"}) {
  %y = mllm.kv_append %past, %new {kv_heads = 1 : i64} : (tensor<1x1x?x8xf32, #mllm.dims<"1", "1", "past", "8">>, tensor<1x?x8xf32, #mllm.dims<"1", "tokens", "8">>) -> tensor<1x1x?x8xf32, #mllm.dims<"1", "1", "past + tokens", "8">>
  func.return %y : tensor<1x1x?x8xf32, #mllm.dims<"1", "1", "past + tokens", "8">>
}

// CHECK-LABEL: func.func @keeps_a_graph_without_symbols(
// CHECK-NOT: mllm.variant
func.func @keeps_a_graph_without_symbols(%x: tensor<4x8xf32> {mllm.name = "x"}) -> (tensor<4x8xf32> {mllm.name = "y"}) {
  %y = mllm.unary relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK: mllm.pipeline @p
mllm.pipeline @p {edges = [], caches = [], bounds = [#mllm.bound<"batch" <= 1>, #mllm.bound<"past" <= 8>, #mllm.bound<"tokens" <= 16 in [4, 16]>]}
