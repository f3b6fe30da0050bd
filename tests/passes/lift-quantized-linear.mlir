// RUN: mllm-opt %s -p lift-quantized-linear | filecheck %s

// CHECK-LABEL: func.func @scales_the_sums_of_a_product
// CHECK: %[[S:.*]] = mllm.reshape %ws : (tensor<4xf32>) -> tensor<4x1xf32>
// CHECK-NEXT: mllm.quantized_linear %x, %xs, %w, %[[S]] x_zero(%xz : tensor<ui8>) : (tensor<2x8xui8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: func.return
func.func @scales_the_sums_of_a_product(%x: tensor<2x8xui8>, %xs: tensor<f32>, %xz: tensor<ui8>, %w: tensor<4x8xi8>, %ws: tensor<4xf32>) -> tensor<2x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xi8>) -> tensor<8x4xi8>
  %p = mllm.integer_matmul %x, %t a_zero(%xz : tensor<ui8>) : (tensor<2x8xui8>, tensor<8x4xi8>) -> tensor<2x4xi32>
  %s = mllm.binary mul %xs, %ws : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %y = mllm.dequantize %p, %s : (tensor<2x4xi32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @reads_sums_that_are_cast_and_multiplied_and_their_bias
// CHECK: mllm.quantized_linear %x, %xs, %w, %ws bias(%b : tensor<4xf32>) : (tensor<2x8xui8>, tensor<f32>, tensor<4x8xi8>, tensor<f32>) -> tensor<2x4xf32>
// CHECK-NEXT: func.return
func.func @reads_sums_that_are_cast_and_multiplied_and_their_bias(%x: tensor<2x8xui8>, %xs: tensor<f32>, %w: tensor<4x8xi8>, %ws: tensor<f32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xi8>) -> tensor<8x4xi8>
  %p = mllm.integer_matmul %x, %t : (tensor<2x8xui8>, tensor<8x4xi8>) -> tensor<2x4xi32>
  %c = mllm.cast %p : (tensor<2x4xi32>) -> tensor<2x4xf32>
  %s = mllm.binary mul %xs, %ws : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %y = mllm.binary mul %c, %s : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %z = mllm.binary add %b, %y : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %z : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @joins_the_numbers_of_codes_and_of_a_weight_in_blocks
// CHECK: mllm.quantized_linear %x, %xs, %w, %ws bias(%b : tensor<4xf32>) {block_size = 4 : i64} : (tensor<2x8xi8>, tensor<2x1xf32>, tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: func.return
func.func @joins_the_numbers_of_codes_and_of_a_weight_in_blocks(%x: tensor<2x8xi8>, %xs: tensor<2x1xf32>, %w: tensor<4x8xi4>, %ws: tensor<4x2xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs : (tensor<2x8xi8>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %y = mllm.linear %0, %1, %b : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @joins_rows_whose_blocks_are_those_of_the_weight
// CHECK: mllm.quantized_linear %x, %xs, %w, %ws {block_size = 4 : i64} : (tensor<2x8xi8>, tensor<2x2xf32>, tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: func.return
func.func @joins_rows_whose_blocks_are_those_of_the_weight(%x: tensor<2x8xi8>, %xs: tensor<2x2xf32>, %w: tensor<4x8xi4>, %ws: tensor<4x2xf32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs {axis = 1 : i64, block_size = 4 : i64} : (tensor<2x8xi8>, tensor<2x2xf32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %y = mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @keeps_rows_whose_blocks_are_others
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_rows_whose_blocks_are_others(%x: tensor<2x8xi8>, %xs: tensor<2x4xf32>, %w: tensor<4x8xi4>, %ws: tensor<4x2xf32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs {axis = 1 : i64, block_size = 2 : i64} : (tensor<2x8xi8>, tensor<2x4xf32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %y = mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_of_numbers_with_a_quantised_weight
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_a_product_of_numbers_with_a_quantised_weight(%x: tensor<2x8xf32>, %w: tensor<4x8xi4>, %ws: tensor<4x2xf32>) -> tensor<2x4xf32> {
  %1 = mllm.dequantize %w, %ws {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %y = mllm.linear %x, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @keeps_codes_whose_columns_have_scales_of_their_own
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_codes_whose_columns_have_scales_of_their_own(%x: tensor<2x8xi8>, %xs: tensor<1x8xf32>, %w: tensor<4x8xi8>, %ws: tensor<f32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs : (tensor<2x8xi8>, tensor<1x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  %y = mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @keeps_sums_that_are_read_elsewhere
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_sums_that_are_read_elsewhere(%x: tensor<2x8xi8>, %xs: tensor<f32>, %w: tensor<4x8xi8>, %ws: tensor<f32>) -> (tensor<2x4xf32>, tensor<2x4xi32>) {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xi8>) -> tensor<8x4xi8>
  %p = mllm.integer_matmul %x, %t : (tensor<2x8xi8>, tensor<8x4xi8>) -> tensor<2x4xi32>
  %s = mllm.binary mul %xs, %ws : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %y = mllm.dequantize %p, %s : (tensor<2x4xi32>, tensor<f32>) -> tensor<2x4xf32>
  func.return %y, %p : tensor<2x4xf32>, tensor<2x4xi32>
}

// CHECK-LABEL: func.func @keeps_sums_that_are_scaled_again
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_sums_that_are_scaled_again(%x: tensor<2x8xi32>, %xs: tensor<f32>, %w: tensor<4x8xi8>, %ws: tensor<f32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs : (tensor<2x8xi32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  %y = mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @takes_one_of_two_rows_as_the_bias
// CHECK: %[[Y:.*]] = mllm.quantized_linear %x, %xs, %w, %ws bias(%b : tensor<4xf32>)
// CHECK-NEXT: mllm.binary add %[[Y]], %c
func.func @takes_one_of_two_rows_as_the_bias(%x: tensor<2x8xi8>, %xs: tensor<f32>, %w: tensor<4x8xi8>, %ws: tensor<f32>, %b: tensor<4xf32>, %c: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = mllm.dequantize %x, %xs : (tensor<2x8xi8>, tensor<f32>) -> tensor<2x8xf32>
  %1 = mllm.dequantize %w, %ws : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  %2 = mllm.linear %0, %1, %b : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %y = mllm.binary add %2, %c : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @keeps_sums_whose_scale_has_more_dims
// CHECK-NOT: mllm.quantized_linear
func.func @keeps_sums_whose_scale_has_more_dims(%x: tensor<2x8xi8>, %xs: tensor<1x1x1xf32>, %w: tensor<4x8xi8>, %ws: tensor<4xf32>) -> tensor<1x2x4xf32> {
  %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xi8>) -> tensor<8x4xi8>
  %p = mllm.integer_matmul %x, %t : (tensor<2x8xi8>, tensor<8x4xi8>) -> tensor<2x4xi32>
  %c = mllm.cast %p : (tensor<2x4xi32>) -> tensor<2x4xf32>
  %s = mllm.binary mul %xs, %ws : (tensor<1x1x1xf32>, tensor<4xf32>) -> tensor<1x1x4xf32>
  %y = mllm.binary mul %c, %s : (tensor<2x4xf32>, tensor<1x1x4xf32>) -> tensor<1x2x4xf32>
  func.return %y : tensor<1x2x4xf32>
}
