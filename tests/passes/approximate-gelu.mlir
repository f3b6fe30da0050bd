// RUN: mllm-opt %s -p approximate-gelu | filecheck %s

// CHECK-LABEL: func.func @approximates_gelu_alone
// CHECK: mllm.unary gelu_tanh %x
// CHECK: mllm.unary gelu_tanh
// CHECK: mllm.unary relu
func.func @approximates_gelu_alone(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = mllm.unary gelu %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = mllm.unary gelu_tanh %0 : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %2 = mllm.unary relu %1 : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @approximates_within_a_block
// CHECK: mllm.mlp gelu_tanh %x
func.func @approximates_within_a_block(%x: tensor<2x4xf32>, %a: tensor<8x4xf32>, %b: tensor<4x8xf32>) -> tensor<2x4xf32> {
  %0 = mllm.mlp gelu %x, %a, %b : (tensor<2x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %0 : tensor<2x4xf32>
}
