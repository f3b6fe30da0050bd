// RUN: mllm-opt %s -p 'keep-values{nodes="/fc*"}' | filecheck %s

// CHECK-LABEL: func.func @returns_what_nodes_give
// CHECK-SAME: -> (tensor<2x4xf32> {mllm.name = "y"}, tensor<2x4xf32> {mllm.name = "/fc1"})
// CHECK: [[A:%.+]] = mllm.linear
// CHECK: [[Y:%.+]] = mllm.unary gelu
// CHECK: func.return [[Y]], [[A]] : tensor<2x4xf32>, tensor<2x4xf32>
func.func @returns_what_nodes_give(%x: tensor<2x8xf32>, %w: tensor<4x8xf32>) -> (tensor<2x4xf32> {mllm.name = "y"}) {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32> loc("/fc1")
  %1 = mllm.unary gelu %0 : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("/act")
  func.return %1 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @returns_the_last_value_of_a_node
// CHECK: [[A:%.+]] = mllm.unary gelu
// CHECK: func.return {{%.+}}, [[A]] : tensor<2xf32>, tensor<2xf32>
func.func @returns_the_last_value_of_a_node(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.unary abs %x : (tensor<2xf32>) -> tensor<2xf32> loc("/fc1")
  %1 = mllm.unary gelu %0 : (tensor<2xf32>) -> tensor<2xf32> loc("/fc1")
  %2 = mllm.unary neg %1 : (tensor<2xf32>) -> tensor<2xf32> loc("/act")
  func.return %2 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_returned_already
// CHECK: func.return {{%.+}} : tensor<2xf32>
func.func @keeps_what_is_returned_already(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.unary abs %x : (tensor<2xf32>) -> tensor<2xf32> loc("/fc1")
  func.return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_whole_numbers_within
// CHECK: func.return {{%.+}} : tensor<2xi64>
func.func @keeps_whole_numbers_within(%x: tensor<2xi64>) -> tensor<2xi64> {
  %0 = mllm.unary abs %x : (tensor<2xi64>) -> tensor<2xi64> loc("/fc1")
  %1 = mllm.unary neg %0 : (tensor<2xi64>) -> tensor<2xi64> loc("/act")
  func.return %1 : tensor<2xi64>
}

// CHECK-LABEL: func.func @keeps_sizes_that_depend_on_data_within
// CHECK: func.return {{%.+}} : tensor<2xf32>
func.func @keeps_sizes_that_depend_on_data_within(%x: tensor<?xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = mllm.unary abs %x : (tensor<?xf32>) -> tensor<?xf32> loc("/fc1")
  %1 = mllm.reduce sum %0 {axes = array<i64: 0>, keepdims = true} : (tensor<?xf32>) -> tensor<1xf32> loc("/act")
  %2 = mllm.binary add %y, %1 : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_an_entry_that_was_made_of_a_graph
// CHECK: func.return {{%.+}} : tensor<2xf32>
func.func @keeps_an_entry_that_was_made_of_a_graph(%x: tensor<2xf32>) -> tensor<2xf32> attributes {mllm.source = "returns_what_nodes_give"} {
  %0 = mllm.unary abs %x : (tensor<2xf32>) -> tensor<2xf32> loc("/fc1")
  %1 = mllm.unary neg %0 : (tensor<2xf32>) -> tensor<2xf32> loc("/act")
  func.return %1 : tensor<2xf32>
}
