// RUN: mllm-opt %s -p lift-packed | filecheck %s

// CHECK-LABEL: func.func @takes_columns_apart
// CHECK: [[W0:%.+]] = mllm.slice %w {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<12x8xf32>) -> tensor<8x8xf32>
// CHECK: mllm.linear %x, [[W0]], {{.+}} -> tensor<2x8xf32>
// CHECK: [[W1:%.+]] = mllm.slice %w {starts = #mllm.dims<"8", "0">, steps = array<i64: 1, 1>} : (tensor<12x8xf32>) -> tensor<4x8xf32>
// CHECK: mllm.linear %x, [[W1]], {{.+}} -> tensor<2x4xf32>
// CHECK: return
func.func @takes_columns_apart(%x: tensor<2x8xf32>, %w: tensor<12x8xf32>, %b: tensor<12xf32>) -> (tensor<2x8xf32>, tensor<2x4xf32>) {
  %0 = mllm.linear %x, %w, %b : (tensor<2x8xf32>, tensor<12x8xf32>, tensor<12xf32>) -> tensor<2x12xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<2x12xf32>) -> tensor<2x8xf32>
  %2 = mllm.slice %0 {starts = #mllm.dims<"0", "8">, steps = array<i64: 1, 1>} : (tensor<2x12xf32>) -> tensor<2x4xf32>
  func.return %1, %2 : tensor<2x8xf32>, tensor<2x4xf32>
}

// CHECK-LABEL: func.func @takes_parts_of_reshaped_and_transposed_columns_apart
// CHECK-COUNT-3: mllm.linear %x, {{.+}} -> tensor<1x2x4xf32>
// CHECK-NOT: mllm.linear
// CHECK: return
func.func @takes_parts_of_reshaped_and_transposed_columns_apart(%x: tensor<1x2x8xf32>, %w: tensor<12x8xf32>) -> (tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xf32>) {
  %0 = mllm.linear %x, %w : (tensor<1x2x8xf32>, tensor<12x8xf32>) -> tensor<1x2x12xf32>
  %1 = mllm.reshape %0 : (tensor<1x2x12xf32>) -> tensor<1x2x3x2x2xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 2, 0, 3, 1, 4>} : (tensor<1x2x3x2x2xf32>) -> tensor<3x1x2x2x2xf32>
  %3 = mllm.slice %2 {starts = #mllm.dims<"0", "0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x1x2x2x2xf32>) -> tensor<1x1x2x2x2xf32>
  %4 = mllm.slice %2 {starts = #mllm.dims<"1", "0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x1x2x2x2xf32>) -> tensor<1x1x2x2x2xf32>
  %5 = mllm.slice %2 {starts = #mllm.dims<"2", "0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x1x2x2x2xf32>) -> tensor<1x1x2x2x2xf32>
  func.return %3, %4, %5 : tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xf32>
}

// CHECK-LABEL: func.func @takes_constant_parts_of_each_head_apart
// CHECK: mllm.constant dense<{{\[\[}}1.000000e+00, 1.000000e+00], [4.000000e+00, 4.000000e+00]]> : tensor<2x2xf32>
// CHECK: mllm.constant dense<{{\[\[}}2.000000e+00, 2.000000e+00], [5.000000e+00, 5.000000e+00]]> : tensor<2x2xf32>
// CHECK: mllm.constant dense<{{\[\[}}3.000000e+00, 3.000000e+00], [6.000000e+00, 6.000000e+00]]> : tensor<2x2xf32>
func.func @takes_constant_parts_of_each_head_apart(%x: tensor<5x2xf32>) -> (tensor<5x2x1x1xf32>, tensor<5x2x1x1xf32>, tensor<5x2x1x1xf32>) {
  %w = mllm.constant dense<[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0], [6.0, 6.0]]> : tensor<6x2xf32>
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<6x2xf32>) -> tensor<5x6xf32>
  %1 = mllm.reshape %0 : (tensor<5x6xf32>) -> tensor<5x2x3x1xf32>
  %2 = mllm.slice %1 {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<5x2x3x1xf32>) -> tensor<5x2x1x1xf32>
  %3 = mllm.slice %1 {starts = #mllm.dims<"0", "0", "1", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<5x2x3x1xf32>) -> tensor<5x2x1x1xf32>
  %4 = mllm.slice %1 {starts = #mllm.dims<"0", "0", "2", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<5x2x3x1xf32>) -> tensor<5x2x1x1xf32>
  func.return %2, %3, %4 : tensor<5x2x1x1xf32>, tensor<5x2x1x1xf32>, tensor<5x2x1x1xf32>
}

// CHECK-LABEL: func.func @keeps_the_halves_of_heads
// CHECK: mllm.linear {{.+}} -> tensor<5x8xf32>
func.func @keeps_the_halves_of_heads(%x: tensor<5x2xf32>, %w: tensor<8x2xf32>) -> (tensor<5x2x2xf32>, tensor<5x2x2xf32>) {
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<8x2xf32>) -> tensor<5x8xf32>
  %1 = mllm.reshape %0 : (tensor<5x8xf32>) -> tensor<5x2x4xf32>
  %2 = mllm.slice %1 {starts = #mllm.dims<"0", "0", "0">, steps = array<i64: 1, 1, 1>} : (tensor<5x2x4xf32>) -> tensor<5x2x2xf32>
  %3 = mllm.slice %1 {starts = #mllm.dims<"0", "0", "2">, steps = array<i64: 1, 1, 1>} : (tensor<5x2x4xf32>) -> tensor<5x2x2xf32>
  func.return %2, %3 : tensor<5x2x2xf32>, tensor<5x2x2xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_that_is_read_whole
// CHECK: mllm.linear {{.+}} -> tensor<5x8xf32>
func.func @keeps_a_product_that_is_read_whole(%x: tensor<5x2xf32>, %w: tensor<8x2xf32>) -> (tensor<5x8xf32>, tensor<5x4xf32>) {
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<8x2xf32>) -> tensor<5x8xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<5x4xf32>
  func.return %0, %1 : tensor<5x8xf32>, tensor<5x4xf32>
}

// CHECK-LABEL: func.func @keeps_columns_that_are_read_twice
// CHECK: mllm.linear {{.+}} -> tensor<5x8xf32>
func.func @keeps_columns_that_are_read_twice(%x: tensor<5x2xf32>, %w: tensor<8x2xf32>) -> (tensor<5x4xf32>, tensor<5x6xf32>) {
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<8x2xf32>) -> tensor<5x8xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<5x4xf32>
  %2 = mllm.slice %0 {starts = #mllm.dims<"0", "2">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<5x6xf32>
  func.return %1, %2 : tensor<5x4xf32>, tensor<5x6xf32>
}

// CHECK-LABEL: func.func @keeps_rows_that_are_cut
// CHECK: mllm.linear {{.+}} -> tensor<5x8xf32>
func.func @keeps_rows_that_are_cut(%x: tensor<5x2xf32>, %w: tensor<8x2xf32>) -> (tensor<2x4xf32>, tensor<3x4xf32>) {
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<8x2xf32>) -> tensor<5x8xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<2x4xf32>
  %2 = mllm.slice %0 {starts = #mllm.dims<"2", "4">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<3x4xf32>
  func.return %1, %2 : tensor<2x4xf32>, tensor<3x4xf32>
}

// CHECK-LABEL: func.func @keeps_columns_in_turn
// CHECK: mllm.linear {{.+}} -> tensor<5x8xf32>
func.func @keeps_columns_in_turn(%x: tensor<5x2xf32>, %w: tensor<8x2xf32>) -> (tensor<5x4xf32>, tensor<5x2xf32>) {
  %0 = mllm.linear %x, %w : (tensor<5x2xf32>, tensor<8x2xf32>) -> tensor<5x8xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<5x8xf32>) -> tensor<5x4xf32>
  %2 = mllm.slice %0 {starts = #mllm.dims<"0", "4">, steps = array<i64: 1, 2>} : (tensor<5x8xf32>) -> tensor<5x2xf32>
  func.return %1, %2 : tensor<5x4xf32>, tensor<5x2xf32>
}
