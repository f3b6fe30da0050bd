// RUN: mllm-opt %s -p 'drop-tokens{after=1 keep=2 score=norm cover=0}' | filecheck %s

// Keys and values are those of all five tokens; queries, sums and what follows those of three.
// CHECK-LABEL: func.func @keeps_the_two_largest_patches_and_the_class_token
// CHECK: %[[ALL:.*]] = mllm.reduce l2 %x {axes = array<i64: 2>, keepdims = false} : (tensor<1x5x4xf32>) -> tensor<1x5xf32>
// CHECK-NEXT: mllm.slice %[[ALL]] {starts = #mllm.dims<"0", "1">
// CHECK-NEXT: mllm.top_k {{.*}} {axis = 1 : i64, by_index = true} : (tensor<1x4xf32>) -> (tensor<1x2xf32>, tensor<1x2xi64>)
// CHECK: %[[KEPT:.*]] = mllm.concat {{.*}} -> tensor<1x3xi64>
// CHECK-NEXT: %[[Q:.*]] = mllm.token_gather %n, %[[KEPT]] : (tensor<1x5x4xf32>, tensor<1x3xi64>) -> tensor<1x3x4xf32>
// CHECK-NEXT: %a = mllm.attention %[[Q]], %n, %n {heads = 2 : i64, kv_heads = 2 : i64, scale = 1.000000e+00 : f64} : (tensor<1x3x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>) -> tensor<1x3x4xf32>
// CHECK-NEXT: %[[X:.*]] = mllm.token_gather %x, %[[KEPT]]
// CHECK-NEXT: %y = mllm.binary add %a, %[[X]] : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
// CHECK-NEXT: %z = mllm.unary relu %y : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
// CHECK-NEXT: func.return %z : tensor<1x3x4xf32>
func.func @keeps_the_two_largest_patches_and_the_class_token(%x: tensor<1x5x4xf32>) -> tensor<1x5x4xf32> attributes {mllm.role = "encoder"} {
  %n = mllm.layer_norm %x {epsilon = 1.0e-6 : f64} : (tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  %a = mllm.attention %n, %n, %n {heads = 2 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  %y = mllm.binary add %a, %x : (tensor<1x5x4xf32>, tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  %z = mllm.unary relu %y : (tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  func.return %z : tensor<1x5x4xf32>
}

// CHECK-LABEL: func.func @keeps_all_tokens_of_a_graph_that_is_no_encoder
// CHECK-NOT: mllm.top_k
// CHECK: func.return
func.func @keeps_all_tokens_of_a_graph_that_is_no_encoder(%x: tensor<1x5x4xf32>) -> tensor<1x5x4xf32> attributes {mllm.role = "language-model"} {
  %a = mllm.attention %x, %x, %x {heads = 2 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  %y = mllm.binary add %a, %x : (tensor<1x5x4xf32>, tensor<1x5x4xf32>) -> tensor<1x5x4xf32>
  func.return %y : tensor<1x5x4xf32>
}
