// RUN: mllm-opt %s -p lift-gated-mlp | filecheck %s

// CHECK-LABEL: func.func @reads_a_gated_block
// CHECK: mllm.gated_mlp silu %x, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @reads_a_gated_block(%x: tensor<2x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %0 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary silu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %x, %u : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %3 = mllm.binary mul %2, %1 : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
  %4 = mllm.linear %3, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %4 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_gate_of_another_value
// CHECK-NOT: mllm.gated_mlp
func.func @keeps_a_gate_of_another_value(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>, %g: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %0 = mllm.linear %y, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary silu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %3 = mllm.binary mul %1, %2 : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
  %4 = mllm.linear %3, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %4 : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_read_between
// CHECK-NOT: mllm.gated_mlp
func.func @keeps_what_is_read_between(%x: tensor<2x8xf32>, %g: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> (tensor<2x16xf32>, tensor<2x8xf32>) {
  %0 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary silu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %3 = mllm.binary mul %1, %2 : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
  %4 = mllm.linear %3, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %3, %4 : tensor<2x16xf32>, tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_an_activation_that_the_op_lacks
// CHECK-NOT: mllm.gated_mlp
func.func @keeps_an_activation_that_the_op_lacks(%x: tensor<2x8xf32>, %g: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %0 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = mllm.unary tanh %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
  %2 = mllm.linear %x, %g : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %3 = mllm.binary mul %1, %2 : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
  %4 = mllm.linear %3, %d : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %4 : tensor<2x8xf32>
}
