// RUN: mllm-opt %s -p fuse-bias-activation | filecheck %s

// CHECK-LABEL: func.func @ends_a_product_with_its_function
// CHECK: mllm.activated_linear gelu %x, %w, %b : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x16xf32>
// CHECK-NEXT: func.return
func.func @ends_a_product_with_its_function(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>) -> tensor<2x16xf32> {
  %0 = mllm.linear %x, %w, %b : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary gelu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %1 : tensor<2x16xf32>
}

// CHECK-LABEL: func.func @ends_a_product_without_a_bias
// CHECK: mllm.activated_linear relu %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
func.func @ends_a_product_without_a_bias(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>) -> tensor<2x16xf32> {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary relu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %1 : tensor<2x16xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_that_something_else_reads
// CHECK-NOT: mllm.activated_linear
func.func @keeps_a_product_that_something_else_reads(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>) -> (tensor<2x16xf32>, tensor<2x16xf32>) {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary relu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %0, %1 : tensor<2x16xf32>, tensor<2x16xf32>
}

// CHECK-LABEL: func.func @keeps_a_function_that_is_no_epilogue
// CHECK-NOT: mllm.activated_linear
func.func @keeps_a_function_that_is_no_epilogue(%x: tensor<2x8xf32>, %w: tensor<16x8xf32>) -> tensor<2x16xf32> {
  %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary tanh %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %1 : tensor<2x16xf32>
}

// CHECK-LABEL: func.func @keeps_a_function_of_another_type
// CHECK-NOT: mllm.activated_linear
func.func @keeps_a_function_of_another_type(%x: tensor<2x8xf16>, %w: tensor<16x8xf16>) -> tensor<2x16xf32> {
  %0 = mllm.linear %x, %w : (tensor<2x8xf16>, tensor<16x8xf16>) -> tensor<2x16xf16>
  %1 = mllm.cast %0 : (tensor<2x16xf16>) -> tensor<2x16xf32>
  %2 = mllm.unary relu %1 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %2 : tensor<2x16xf32>
}

// CHECK-LABEL: func.func @keeps_a_product_of_activations
// CHECK-NOT: mllm.activated_linear
func.func @keeps_a_product_of_activations(%x: tensor<2x8xf32>, %w: tensor<8x16xf32>) -> tensor<2x16xf32> {
  %0 = mllm.matmul %x, %w : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary relu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  func.return %1 : tensor<2x16xf32>
}
