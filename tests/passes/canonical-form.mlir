// RUN: mllm-opt %s -p canonical-form | filecheck %s

// CHECK-LABEL: func.func @removes_transposes_that_cancel
// CHECK-NEXT: func.return %x
func.func @removes_transposes_that_cancel(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  func.return %1 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @keeps_transposes_that_do_not_cancel
// CHECK-NEXT: mllm.transpose %x {perm = array<i64: 2, 0, 1>}
// CHECK-NEXT: func.return
func.func @keeps_transposes_that_do_not_cancel(%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 1, 0, 2>} : (tensor<2x4x3xf32>) -> tensor<4x2x3xf32>
  func.return %1 : tensor<4x2x3xf32>
}

// CHECK-LABEL: func.func @makes_one_reshape_of_what_moves_no_element
// CHECK-NEXT: mllm.reshape %x : (tensor<1x3x4xf32>) -> tensor<12xf32>
// CHECK-NEXT: func.return
func.func @makes_one_reshape_of_what_moves_no_element(%x: tensor<1x3x4xf32>) -> tensor<12xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<1x3x4xf32>) -> tensor<3x1x4xf32>
  %1 = mllm.reshape %0 : (tensor<3x1x4xf32>) -> tensor<12xf32>
  func.return %1 : tensor<12xf32>
}

// CHECK-LABEL: func.func @removes_neutral_operands
// CHECK-NEXT: func.return %x
func.func @removes_neutral_operands(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %one = mllm.constant dense<1.0> : tensor<f32>
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %0 = mllm.binary mul %one, %x : (tensor<f32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = mllm.binary add %0, %zero : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %2 = mllm.binary div %1, %one : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @keeps_a_neutral_operand_that_widens
// CHECK: mllm.binary mul
func.func @keeps_a_neutral_operand_that_widens(%x: tensor<3xf32>) -> tensor<2x3xf32> {
  %one = mllm.constant dense<1.0> : tensor<2x1xf32>
  %0 = mllm.binary mul %x, %one : (tensor<3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @names_powers_and_quotients
// CHECK: mllm.binary mul %x, %x
// CHECK-NEXT: mllm.unary rsqrt
// CHECK-NEXT: func.return
func.func @names_powers_and_quotients(%x: tensor<4xf32>) -> tensor<4xf32> {
  %two = mllm.constant dense<2.0> : tensor<f32>
  %half = mllm.constant dense<0.5> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %0 = mllm.binary pow %x, %two : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = mllm.binary pow %0, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = mllm.binary div %one, %1 : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}

// CHECK-LABEL: func.func @counts_from_what_is_added
// CHECK: mllm.iota {start = #mllm.dims<"5">, step = 1 : i64} : tensor<3xi64>
// CHECK-NEXT: func.return
func.func @counts_from_what_is_added() -> tensor<3xi64> {
  %five = mllm.constant dense<5> : tensor<i64>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %1 = mllm.binary add %0, %five : (tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
  func.return %1 : tensor<3xi64>
}

// CHECK-LABEL: func.func @lets_elementwise_ops_broadcast_by_themselves
// CHECK-NEXT: mllm.binary add %x, %y : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT: func.return
func.func @lets_elementwise_ops_broadcast_by_themselves(%x: tensor<2x3xf32>, %y: tensor<1x3xf32>) -> tensor<2x3xf32> {
  %0 = mllm.broadcast %y : (tensor<1x3xf32>) -> tensor<2x3xf32>
  %1 = mllm.binary add %x, %0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @makes_a_product_over_one_element_a_product_that_broadcasts
// CHECK-NEXT: mllm.binary mul %x, %y
func.func @makes_a_product_over_one_element_a_product_that_broadcasts(%x: tensor<2x3x1xf32>, %y: tensor<2x1x4xf32>) -> tensor<2x3x4xf32> {
  %0 = mllm.matmul %x, %y : (tensor<2x3x1xf32>, tensor<2x1x4xf32>) -> tensor<2x3x4xf32>
  func.return %0 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @removes_what_is_always_true
// CHECK-NEXT: func.return %x
func.func @removes_what_is_always_true(%x: tensor<2x3xi1>) -> tensor<2x3xi1> {
  %all = mllm.constant dense<true> : tensor<i1>
  %0 = mllm.binary and %x, %all : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  func.return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @keeps_what_is_always_false
// CHECK: mllm.binary and
func.func @keeps_what_is_always_false(%x: tensor<2x3xi1>) -> tensor<2x3xi1> {
  %none = mllm.constant dense<false> : tensor<i1>
  %0 = mllm.binary and %x, %none : (tensor<2x3xi1>, tensor<i1>) -> tensor<2x3xi1>
  func.return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @joins_nothing_empty
// CHECK-NEXT: func.return %x
func.func @joins_nothing_empty(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %none = mllm.slice %x {starts = #mllm.dims<"0", "3">, steps = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x0xf32>
  %0 = mllm.concat %x, %none {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x0xf32>) -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @gathers_all_rows_in_turn_by_a_reshape
// CHECK-NEXT: mllm.reshape %mask : (tensor<2x5xi1>) -> tensor<2x1x1x5xi1>
// CHECK-NEXT: func.return
func.func @gathers_all_rows_in_turn_by_a_reshape(%mask: tensor<2x5xi1>) -> tensor<2x1x1x5xi1> {
  %rows = mllm.reshape %mask : (tensor<2x5xi1>) -> tensor<10xi1>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<2xi64>
  %batch = mllm.reshape %0 : (tensor<2xi64>) -> tensor<2x1x1x1xi64>
  %1 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %keys = mllm.reshape %1 : (tensor<5xi64>) -> tensor<1x1x1x5xi64>
  %five = mllm.iota {start = #mllm.dims<"5">, step = 1 : i64} : tensor<1xi64>
  %2 = mllm.binary mul %batch, %five : (tensor<2x1x1x1xi64>, tensor<1xi64>) -> tensor<2x1x1x1xi64>
  %3 = mllm.binary add %keys, %2 : (tensor<1x1x1x5xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x5xi64>
  %4 = mllm.gather %rows, %3 {axis = 0 : i64} : (tensor<10xi1>, tensor<2x1x1x5xi64>) -> tensor<2x1x1x5xi1>
  func.return %4 : tensor<2x1x1x5xi1>
}

// CHECK-LABEL: func.func @keeps_a_gather_in_another_order
// CHECK: mllm.gather
func.func @keeps_a_gather_in_another_order(%x: tensor<6xf32>) -> tensor<2x3xf32> {
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<2xi64>
  %1 = mllm.reshape %0 : (tensor<2xi64>) -> tensor<2x1xi64>
  %2 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %two = mllm.constant dense<2> : tensor<i64>
  %3 = mllm.binary mul %2, %two : (tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
  %4 = mllm.binary add %1, %3 : (tensor<2x1xi64>, tensor<3xi64>) -> tensor<2x3xi64>
  %5 = mllm.gather %x, %4 {axis = 0 : i64} : (tensor<6xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @keeps_a_gather_of_some_rows
// CHECK: mllm.gather
func.func @keeps_a_gather_of_some_rows(%x: tensor<6xf32>) -> tensor<5xf32> {
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.gather %x, %0 {axis = 0 : i64} : (tensor<6xf32>, tensor<5xi64>) -> tensor<5xf32>
  func.return %1 : tensor<5xf32>
}

// CHECK-LABEL: func.func @a_weight_that_is_reshaped_has_that_shape
// CHECK: mllm.weight #mllm.blob<"sha256:076a27c79e5ace2a3d47f9dd2e83e4ff6ea8872b3c2218f66c92b89b55f36560", f32, [8, 16]> {name = "w"} : tensor<8x16xf32>
// CHECK-NEXT: func.return
func.func @a_weight_that_is_reshaped_has_that_shape() -> tensor<8x16xf32> {
  %w = mllm.weight #mllm.blob<"sha256:076a27c79e5ace2a3d47f9dd2e83e4ff6ea8872b3c2218f66c92b89b55f36560", f32, [128]> {name = "w"} : tensor<128xf32>
  %0 = mllm.reshape %w : (tensor<128xf32>) -> tensor<8x16xf32>
  func.return %0 : tensor<8x16xf32>
}
