// RUN: mllm-opt %s -p lift-mlp | filecheck %s

// CHECK-LABEL: func.func @reads_a_block_with_biases
// CHECK: mllm.mlp gelu %x, %w, %d b1(%b : tensor<16xf32>) b2(%c : tensor<8xf32>) : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @reads_a_block_with_biases(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>, %d: tensor<8x16xf32>, %c: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = mllm.linear %x, %w, %b : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary gelu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %1, %d, %c : (tensor<2x16xf32>, tensor<8x16xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  func.return %2 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_read_between
// CHECK-NOT: mllm.mlp
func.func @keeps_what_is_read_between(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> (tensor<2x16xf32>, tensor<2x8xf32>) {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary relu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %1, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %1, %2 : tensor<2x16xf32>, tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_two_products_without_activation
// CHECK-NOT: mllm.mlp
func.func @keeps_two_products_without_activation(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.linear %0, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %1 : tensor<2x8xf32>
}
