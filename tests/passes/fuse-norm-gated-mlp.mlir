// RUN: mllm-opt %s -p fuse-norm-gated-mlp | filecheck %s

// CHECK-LABEL: func.func @norms_what_swiglu_reads
// CHECK: mllm.norm_gated_mlp rms silu %x, %g, %u, %d weight(%w : tensor<8xf32>) {epsilon = 5.000000e-01 : f64} : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @norms_what_swiglu_reads(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %n = mllm.rms_norm %x, %w {epsilon = 0.5 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %y = mllm.gated_mlp silu %n, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @norms_what_geglu_reads
// CHECK: mllm.norm_gated_mlp layer gelu %x, %g, %u, %d weight(%w : tensor<8xf32>) bias(%w : tensor<8xf32>)
func.func @norms_what_geglu_reads(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %n = mllm.layer_norm %x weight(%w : tensor<8xf32>) bias(%w : tensor<8xf32>) {epsilon = 0.5 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %y = mllm.gated_mlp gelu %n, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_that_something_else_reads
// CHECK-NOT: mllm.norm_gated_mlp
func.func @keeps_a_norm_that_something_else_reads(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %n = mllm.rms_norm %x, %w {epsilon = 0.5 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %y = mllm.gated_mlp silu %n, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y, %n : tensor<2x8xf32>, tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_over_another_axis
// CHECK-NOT: mllm.norm_gated_mlp
func.func @keeps_a_norm_over_another_axis(%x: tensor<8x2xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %n = mllm.layer_norm %x {epsilon = 0.5 : f64} : (tensor<8x2xf32>) -> tensor<8x2xf32>
  %t = mllm.transpose %n {perm = array<i64: 1, 0>} : (tensor<8x2xf32>) -> tensor<2x8xf32>
  %y = mllm.gated_mlp silu %t, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_of_another_type
// CHECK-NOT: mllm.norm_gated_mlp
func.func @keeps_a_norm_of_another_type(%x: tensor<2x8xf16>, %w: tensor<8xf16>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %n = mllm.rms_norm %x, %w {epsilon = 0.5 : f64} : (tensor<2x8xf16>, tensor<8xf16>) -> tensor<2x8xf16>
  %t = mllm.cast %n : (tensor<2x8xf16>) -> tensor<2x8xf32>
  %y = mllm.gated_mlp silu %t, %g, %u, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_block_that_is_not_gated
// CHECK-NOT: mllm.norm_gated_mlp
func.func @keeps_a_block_that_is_not_gated(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %g: tensor<16x8xf32>, %d: tensor<8x16xf32>) -> tensor<2x8xf32> {
  %n = mllm.rms_norm %x, %w {epsilon = 0.5 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %y = mllm.mlp silu %n, %g, %d : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  func.return %y : tensor<2x8xf32>
}
