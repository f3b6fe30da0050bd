// RUN: mllm-opt %s -p share-cross-kv | filecheck %s

// CHECK-LABEL: func.func @vision
// CHECK-SAME: {mllm.name = "features"}, {{.*}} {mllm.name = "features.0"}, {{.*}} {mllm.name = "features.1"})
// CHECK: [[X:%.+]] = mllm.unary exp %pixels
// CHECK-DAG: [[WK:%.+]] = mllm.constant dense<5.000000e-01>
// CHECK-DAG: [[WV:%.+]] = mllm.constant dense<2.500000e-01>
// CHECK: [[K:%.+]] = mllm.linear [[X]], [[WK]] : {{.*}} -> tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">>
// CHECK: [[N:%.+]] = mllm.layer_norm [[X]]
// CHECK: [[V:%.+]] = mllm.linear [[N]], [[WV]]
// CHECK: [[R:%.+]] = mllm.reshape [[V]]
// CHECK: [[H:%.+]] = mllm.transpose [[R]]
// CHECK-NOT: mllm.linear
// CHECK: func.return [[X]], [[K]], [[H]]
func.func @vision(%pixels: tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">> {mllm.name = "pixels"}) -> (tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">> {mllm.name = "features"}) {
  %x = mllm.unary exp %pixels : (tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">>) -> tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">>
  func.return %x : tensor<?x4x8xf32, #mllm.dims<"images", "4", "8">>
}

// A graph of the model's own files keeps its inputs.
// CHECK-LABEL: func.func @decoder
// CHECK-SAME: {mllm.name = "x"}, {{.*}} {mllm.name = "f"})
// CHECK: mllm.linear %f
func.func @decoder(%x: tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">> {mllm.name = "x"}, %f: tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">> {mllm.name = "f"}) -> (tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">> {mllm.name = "y"}) {
  %wk = mllm.constant dense<0.5> : tensor<8x8xf32>
  %k = mllm.linear %f, %wk : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<8x8xf32>) -> tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>
  %y = mllm.cross_attn %x, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>, tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>) -> tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>
  func.return %y : tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>
}

// CHECK-LABEL: func.func @prefill
// CHECK-SAME: (%x: {{.*}} {mllm.name = "x"}, [[K:%.+]]: tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">> {mllm.name = "features.0"}, [[V:%.+]]: tensor<?x2x4x4xf32, #mllm.dims<"batch", "2", "4", "4">> {mllm.name = "features.1"})
// CHECK-NEXT: mllm.cross_attn %x, [[K]], [[V]]
func.func @prefill(%x: tensor<?x3x8xf32, #mllm.dims<"batch", "3", "8">> {mllm.name = "x"}, %f: tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">> {mllm.name = "f"}) -> (tensor<?x3x8xf32, #mllm.dims<"batch", "3", "8">> {mllm.name = "y"}) attributes {mllm.source = "decoder"} {
  %wk = mllm.constant dense<0.5> : tensor<8x8xf32>
  %wv = mllm.constant dense<0.25> : tensor<8x8xf32>
  %k = mllm.linear %f, %wk : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<8x8xf32>) -> tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>
  %n = mllm.layer_norm %f {epsilon = 0.5 : f64} : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>) -> tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>
  %v = mllm.linear %n, %wv : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<8x8xf32>) -> tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>
  %r = mllm.reshape %v : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>) -> tensor<?x4x2x4xf32, #mllm.dims<"batch", "4", "2", "4">>
  %h = mllm.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x4x2x4xf32, #mllm.dims<"batch", "4", "2", "4">>) -> tensor<?x2x4x4xf32, #mllm.dims<"batch", "2", "4", "4">>
  %y = mllm.cross_attn %x, %k, %h {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x3x8xf32, #mllm.dims<"batch", "3", "8">>, tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<?x2x4x4xf32, #mllm.dims<"batch", "2", "4", "4">>) -> tensor<?x3x8xf32, #mllm.dims<"batch", "3", "8">>
  func.return %y : tensor<?x3x8xf32, #mllm.dims<"batch", "3", "8">>
}

// What prefill computes too is the same tensor, whatever the entry calls its features.
// CHECK-LABEL: func.func @decode
// CHECK-SAME: (%x: {{.*}} {mllm.name = "x"}, [[K:%.+]]: {{.*}} {mllm.name = "features.0"})
// CHECK-NEXT: mllm.cross_attn %x, [[K]], [[K]]
func.func @decode(%x: tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">> {mllm.name = "x"}, %f: tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">> {mllm.name = "image"}) -> (tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">> {mllm.name = "y"}) attributes {mllm.source = "decoder"} {
  %wk = mllm.constant dense<0.5> : tensor<8x8xf32>
  %k = mllm.linear %f, %wk : (tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<8x8xf32>) -> tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>
  %y = mllm.cross_attn %x, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>, tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>, tensor<?x4x8xf32, #mllm.dims<"batch", "4", "8">>) -> tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>
  func.return %y : tensor<?x1x8xf32, #mllm.dims<"batch", "1", "8">>
}

// CHECK-LABEL: func.func @makes_both_of_two_decoders
// CHECK-SAME: {mllm.name = "features"}, tensor<1x4x8xf32> {mllm.name = "features.0"}, tensor<1x4x8xf32> {mllm.name = "features.1"})
// CHECK-COUNT-2: mllm.linear
func.func @makes_both_of_two_decoders(%p: tensor<1x4x8xf32> {mllm.name = "p"}) -> (tensor<1x4x8xf32> {mllm.name = "features"}) {
  %x = mllm.unary exp %p : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  func.return %x : tensor<1x4x8xf32>
}

// CHECK-LABEL: func.func @has_weights_of_its_own
// CHECK: mllm.cross_attn
func.func @has_weights_of_its_own(%q: tensor<1x1x8xf32> {mllm.name = "q"}, %f: tensor<1x4x8xf32> {mllm.name = "f"}) -> (tensor<1x1x8xf32> {mllm.name = "y"}) attributes {mllm.source = "one"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %k = mllm.linear %f, %w : (tensor<1x4x8xf32>, tensor<8x8xf32>) -> tensor<1x4x8xf32>
  %y = mllm.cross_attn %q, %k, %k {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x1x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}

// The features are read by the attention too: they stay an input.
// CHECK-LABEL: func.func @reads_the_features_too
// CHECK-SAME: {mllm.name = "q"}, %f: {{.*}} {mllm.name = "f"}, [[K:%.+]]: {{.*}} {mllm.name = "features.1"})
// CHECK-NEXT: mllm.cross_attn %q, [[K]], %f
func.func @reads_the_features_too(%q: tensor<1x1x8xf32> {mllm.name = "q"}, %f: tensor<1x4x8xf32> {mllm.name = "f"}) -> (tensor<1x1x8xf32> {mllm.name = "y"}) attributes {mllm.source = "two"} {
  %w = mllm.constant dense<2.0> : tensor<8x8xf32>
  %k = mllm.linear %f, %w : (tensor<1x4x8xf32>, tensor<8x8xf32>) -> tensor<1x4x8xf32>
  %y = mllm.cross_attn %q, %k, %f {heads = 2 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<1x1x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}

// CHECK-LABEL: func.func @makes_nothing_for_those_below
// CHECK-SAME: -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "features"})
// CHECK-NEXT: mllm.unary exp
// CHECK-NEXT: func.return
func.func @makes_nothing_for_those_below(%p: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "p"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "features"}) {
  %x = mllm.unary exp %p : (tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %x : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}

// CHECK-LABEL: func.func @depends_on_another_input
// CHECK: mllm.linear
func.func @depends_on_another_input(%t: tensor<8xf32> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "y"}) attributes {mllm.source = "other"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %0 = mllm.binary add %f, %t : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  %k = mllm.linear %0, %w : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<8x8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  %y = mllm.binary add %k, %t : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}

// CHECK-LABEL: func.func @depends_on_another_symbol
// CHECK: mllm.linear
func.func @depends_on_another_symbol(%t: tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "y"}) attributes {mllm.source = "symbol"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %0 = mllm.reduce sum %f {axes = array<i64: 0>, keepdims = true} : (tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<1x8xf32>
  %1 = mllm.broadcast %0 : (tensor<1x8xf32>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  %k = mllm.linear %1, %w : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>, tensor<8x8xf32>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  %y = mllm.binary add %k, %t : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>, tensor<?x8xf32, #mllm.dims<"tokens", "8">>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"tokens", "8">>
}

// CHECK-LABEL: func.func @depends_on_weights_alone
// CHECK: mllm.linear
func.func @depends_on_weights_alone(%t: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "y"}) attributes {mllm.source = "weights"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %k = mllm.linear %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = mllm.linear %t, %k : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<8x8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  %y = mllm.binary add %0, %f : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}

// CHECK-LABEL: func.func @has_no_product_with_a_weight
// CHECK: mllm.reshape
// CHECK: mllm.matmul
func.func @has_no_product_with_a_weight(%t: tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">> {mllm.name = "y"}) attributes {mllm.source = "product"} {
  %0 = mllm.reshape %f : (tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<?x2x4xf32, #mllm.dims<"rows", "2", "4">>
  %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1>} : (tensor<?x2x4xf32, #mllm.dims<"rows", "2", "4">>) -> tensor<?x4x2xf32, #mllm.dims<"rows", "4", "2">>
  %2 = mllm.matmul %0, %1 : (tensor<?x2x4xf32, #mllm.dims<"rows", "2", "4">>, tensor<?x4x2xf32, #mllm.dims<"rows", "4", "2">>) -> tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">>
  %y = mllm.binary add %2, %t : (tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">>, tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">>) -> tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">>
  func.return %y : tensor<?x2x2xf32, #mllm.dims<"rows", "2", "2">>
}

// CHECK-LABEL: func.func @returns_what_it_makes
// CHECK: mllm.linear
func.func @returns_what_it_makes(%f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "y"}) attributes {mllm.source = "returned"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %y = mllm.linear %f, %w : (tensor<?x8xf32, #mllm.dims<"rows", "8">>, tensor<8x8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}

// A row of what is fed for each token is nothing that is made once.
// CHECK-LABEL: func.func @gives_a_row_for_each_token
// CHECK-SAME: -> (tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "rows"})
func.func @gives_a_row_for_each_token(%p: tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "p"}) -> (tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "rows"}) {
  %x = mllm.unary exp %p : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  func.return %x : tensor<?x8xf32, #mllm.dims<"tokens", "8">>
}
// CHECK-LABEL: func.func @takes_many_rows
// CHECK: mllm.linear %f
func.func @takes_many_rows(%t: tensor<8xf32> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "y"}) attributes {mllm.source = "rows"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %k = mllm.linear %f, %w : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>, tensor<8x8xf32>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  %y = mllm.binary add %k, %t : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>, tensor<8xf32>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"tokens", "8">>
}
// CHECK-LABEL: func.func @takes_one_row
// CHECK: mllm.linear %f
func.func @takes_one_row(%t: tensor<8xf32> {mllm.name = "t"}, %f: tensor<1x8xf32> {mllm.name = "f"}) -> (tensor<1x8xf32> {mllm.name = "y"}) attributes {mllm.source = "rows"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %k = mllm.linear %f, %w : (tensor<1x8xf32>, tensor<8x8xf32>) -> tensor<1x8xf32>
  %y = mllm.binary add %k, %t : (tensor<1x8xf32>, tensor<8xf32>) -> tensor<1x8xf32>
  func.return %y : tensor<1x8xf32>
}

// Only the features say how many rows there are: they stay an input.
// CHECK-LABEL: func.func @needs_a_symbol_of_the_features
// CHECK-SAME: {mllm.name = "f"}, [[K:%.+]]: tensor<1x8xf32> {mllm.name = "sums.0"})
// CHECK-NOT: mllm.linear
// CHECK: mllm.binary add [[K]], %t
func.func @needs_a_symbol_of_the_features(%t: tensor<8xf32> {mllm.name = "t"}, %f: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "f"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "y"}) attributes {mllm.source = "bound"} {
  %w = mllm.constant dense<1.0> : tensor<8x8xf32>
  %0 = mllm.reduce sum %f {axes = array<i64: 0>, keepdims = true} : (tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<1x8xf32>
  %k = mllm.linear %0, %w : (tensor<1x8xf32>, tensor<8x8xf32>) -> tensor<1x8xf32>
  %1 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<?xi64, #mllm.dims<"rows">>
  %2 = mllm.cast %1 : (tensor<?xi64, #mllm.dims<"rows">>) -> tensor<?xf32, #mllm.dims<"rows">>
  %3 = mllm.reshape %2 : (tensor<?xf32, #mllm.dims<"rows">>) -> tensor<?x1xf32, #mllm.dims<"rows", "1">>
  %4 = mllm.binary add %k, %t : (tensor<1x8xf32>, tensor<8xf32>) -> tensor<1x8xf32>
  %y = mllm.binary add %3, %4 : (tensor<?x1xf32, #mllm.dims<"rows", "1">>, tensor<1x8xf32>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}
func.func @sums(%p: tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "p"}) -> (tensor<?x8xf32, #mllm.dims<"rows", "8">> {mllm.name = "sums"}) {
  %x = mllm.unary exp %p : (tensor<?x8xf32, #mllm.dims<"rows", "8">>) -> tensor<?x8xf32, #mllm.dims<"rows", "8">>
  func.return %x : tensor<?x8xf32, #mllm.dims<"rows", "8">>
}

// CHECK: mllm.pipeline @p
// CHECK-NOT: "prefill" "f"
// CHECK-NOT: "decode" "image"
// CHECK-SAME: #mllm.edge<"reads_the_features_too" "f" from "makes_both_of_two_decoders" "features">
// CHECK-NOT: "prefill" "f"
// CHECK-NOT: "decode" "image"
// CHECK-SAME: #mllm.edge<"prefill" "features.0" from "vision" "features.0">
// CHECK-SAME: #mllm.edge<"prefill" "features.1" from "vision" "features.1">
// CHECK-SAME: #mllm.edge<"decode" "features.0" from "vision" "features.0">
mllm.pipeline @p {edges = [#mllm.edge<"decoder" "f" from "vision" "features">, #mllm.edge<"prefill" "f" from "vision" "features">, #mllm.edge<"decode" "image" from "vision" "features">, #mllm.edge<"has_weights_of_its_own" "f" from "makes_both_of_two_decoders" "features">, #mllm.edge<"reads_the_features_too" "f" from "makes_both_of_two_decoders" "features">, #mllm.edge<"depends_on_another_input" "f" from "makes_nothing_for_those_below" "features">, #mllm.edge<"depends_on_another_symbol" "f" from "makes_nothing_for_those_below" "features">, #mllm.edge<"depends_on_weights_alone" "f" from "makes_nothing_for_those_below" "features">, #mllm.edge<"has_no_product_with_a_weight" "f" from "makes_nothing_for_those_below" "features">, #mllm.edge<"returns_what_it_makes" "f" from "makes_nothing_for_those_below" "features">, #mllm.edge<"takes_many_rows" "f" from "gives_a_row_for_each_token" "rows">, #mllm.edge<"takes_one_row" "f" from "gives_a_row_for_each_token" "rows">, #mllm.edge<"needs_a_symbol_of_the_features" "f" from "sums" "sums">], caches = [], bounds = []}
