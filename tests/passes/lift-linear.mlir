// RUN: mllm-opt %s -p lift-linear | filecheck %s

// CHECK-LABEL: func.func @reads_a_transposed_matrix_and_its_bias
// CHECK: mllm.linear %x, %w, %b : (tensor<2x3x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
// CHECK-NEXT: func.return
func.func @reads_a_transposed_matrix_and_its_bias(%x: tensor<2x3x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %0 = mllm.matmul %x, %t : (tensor<2x3x8xf32>, tensor<8x4xf32>) -> tensor<2x3x4xf32>
  %1 = mllm.binary add %b, %0 : (tensor<4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  func.return %1 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_sum_whose_product_is_read_elsewhere
// CHECK: %[[P:.*]] = mllm.linear %x, %w : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
// CHECK-NEXT: mllm.binary add %[[P]], %b
func.func @keeps_a_sum_whose_product_is_read_elsewhere(%x: tensor<3x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %0 = mllm.matmul %x, %t : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  %1 = mllm.binary add %0, %b : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  func.return %0, %1 : tensor<3x4xf32>, tensor<3x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_column_that_is_added
// CHECK: mllm.linear %x, %w : (
// CHECK-NEXT: mllm.binary add
func.func @keeps_a_column_that_is_added(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4x1xf32>) -> tensor<4x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %0 = mllm.matmul %x, %t : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = mllm.binary add %0, %b : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  func.return %1 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_of_batches
// CHECK-NOT: mllm.linear
func.func @keeps_a_product_of_batches(%x: tensor<2x3x8xf32>, %w: tensor<2x4x8xf32>) -> tensor<2x3x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 0, 2, 1>} : (tensor<2x4x8xf32>) -> tensor<2x8x4xf32>
  %0 = mllm.matmul %x, %t : (tensor<2x3x8xf32>, tensor<2x8x4xf32>) -> tensor<2x3x4xf32>
  func.return %0 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_of_integers
// CHECK-NOT: mllm.linear
func.func @keeps_a_product_of_integers(%x: tensor<3x8xi64>, %w: tensor<4x8xi64>) -> tensor<3x4xi64> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xi64>) -> tensor<8x4xi64>
  %0 = mllm.matmul %x, %t : (tensor<3x8xi64>, tensor<8x4xi64>) -> tensor<3x4xi64>
  func.return %0 : tensor<3x4xi64>
}

// CHECK-LABEL: func.func @reads_rows_where_they_stood
// CHECK: %[[Y:.*]] = mllm.linear %x, %w : (tensor<2x3x8xf32>, tensor<4x8xf32>) -> tensor<2x3x4xf32>
// CHECK-NEXT: func.return %[[Y]]
func.func @reads_rows_where_they_stood(%x: tensor<2x3x8xf32>, %w: tensor<4x8xf32>) -> tensor<2x3x4xf32> {
  %0 = mllm.reshape %x : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %1 = mllm.linear %0, %w : (tensor<6x8xf32>, tensor<4x8xf32>) -> tensor<6x4xf32>
  %2 = mllm.reshape %1 : (tensor<6x4xf32>) -> tensor<2x3x4xf32>
  func.return %2 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @keeps_rows_that_are_joined
// CHECK: mllm.reshape %x
// CHECK-NEXT: mllm.linear
func.func @keeps_rows_that_are_joined(%x: tensor<2x2x4xf32>, %w: tensor<4x8xf32>) -> tensor<2x4xf32> {
  %0 = mllm.reshape %x : (tensor<2x2x4xf32>) -> tensor<2x8xf32>
  %1 = mllm.linear %0, %w : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %1 : tensor<2x4xf32>
}
