// RUN: mllm-opt %s -p lift-patch-embed | filecheck %s

// CHECK-LABEL: func.func @reads_patches_class_token_and_position
// CHECK: mllm.patch_embed %i, %w bias(%b : tensor<5xf32>) cls(%c : tensor<1x1x5xf32>) position(%p : tensor<1x5x5xf32>) {patch = 4 : i64} : (tensor<2x3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<2x5x5xf32>
// CHECK-NEXT: func.return
func.func @reads_patches_class_token_and_position(%i: tensor<2x3x8x8xf32>, %w: tensor<5x3x4x4xf32>, %b: tensor<5xf32>, %c: tensor<1x1x5xf32>, %p: tensor<1x5x5xf32>) -> tensor<2x5x5xf32> {
  %0 = mllm.conv %i, %w, %b {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<5x3x4x4xf32>, tensor<5xf32>) -> tensor<2x5x2x2xf32>
  %1 = mllm.reshape %0 : (tensor<2x5x2x2xf32>) -> tensor<2x5x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<2x5x4xf32>) -> tensor<2x4x5xf32>
  %t = mllm.broadcast %c : (tensor<1x1x5xf32>) -> tensor<2x1x5xf32>
  %3 = mllm.concat %t, %2 {axis = 1 : i64} : (tensor<2x1x5xf32>, tensor<2x4x5xf32>) -> tensor<2x5x5xf32>
  %4 = mllm.binary add %3, %p : (tensor<2x5x5xf32>, tensor<1x5x5xf32>) -> tensor<2x5x5xf32>
  func.return %4 : tensor<2x5x5xf32>
}

// CHECK-LABEL: func.func @keeps_windows_that_overlap
// CHECK-NOT: mllm.patch_embed
func.func @keeps_windows_that_overlap(%i: tensor<2x3x8x8xf32>, %w: tensor<5x3x4x4xf32>) -> tensor<2x9x5xf32> {
  %0 = mllm.conv %i, %w {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<2x5x3x3xf32>
  %1 = mllm.reshape %0 : (tensor<2x5x3x3xf32>) -> tensor<2x5x9xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<2x5x9xf32>) -> tensor<2x9x5xf32>
  func.return %2 : tensor<2x9x5xf32>
}

// CHECK-LABEL: func.func @keeps_a_class_token_behind_the_patches
// CHECK: mllm.patch_embed %i, %w {patch = 4 : i64}
// CHECK-NEXT: mllm.concat
func.func @keeps_a_class_token_behind_the_patches(%i: tensor<1x3x8x8xf32>, %w: tensor<5x3x4x4xf32>, %c: tensor<1x1x5xf32>) -> tensor<1x5x5xf32> {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<1x5x2x2xf32>
  %1 = mllm.reshape %0 : (tensor<1x5x2x2xf32>) -> tensor<1x5x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x5x4xf32>) -> tensor<1x4x5xf32>
  %3 = mllm.concat %2, %c {axis = 1 : i64} : (tensor<1x4x5xf32>, tensor<1x1x5xf32>) -> tensor<1x5x5xf32>
  func.return %3 : tensor<1x5x5xf32>
}

// CHECK-LABEL: func.func @keeps_patches_that_something_else_reads
// CHECK-NOT: mllm.patch_embed
func.func @keeps_patches_that_something_else_reads(%i: tensor<1x3x8x8xf32>, %w: tensor<6x3x4x4xf32>) -> (tensor<1x6x2x2xf32>, tensor<1x4x6xf32>) {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x4x4xf32>) -> tensor<1x6x2x2xf32>
  %1 = mllm.reshape %0 : (tensor<1x6x2x2xf32>) -> tensor<1x6x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x6x4xf32>) -> tensor<1x4x6xf32>
  func.return %0, %2 : tensor<1x6x2x2xf32>, tensor<1x4x6xf32>
}

// CHECK-LABEL: func.func @keeps_windows_that_are_no_squares
// CHECK-NOT: mllm.patch_embed
func.func @keeps_windows_that_are_no_squares(%i: tensor<1x3x8x8xf32>, %w: tensor<6x3x4x2xf32>) -> (tensor<1x8x6xf32>) {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x4x2xf32>) -> tensor<1x6x2x4xf32>
  %1 = mllm.reshape %0 : (tensor<1x6x2x4xf32>) -> tensor<1x6x8xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x6x8xf32>) -> tensor<1x8x6xf32>
  func.return %2 : tensor<1x8x6xf32>
}

// CHECK-LABEL: func.func @keeps_windows_at_a_border
// CHECK-NOT: mllm.patch_embed
func.func @keeps_windows_at_a_border(%i: tensor<1x3x8x8xf32>, %w: tensor<6x3x4x4xf32>) -> (tensor<1x6x6xf32>) {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 4>, pads = array<i64: 4, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x4x4xf32>) -> tensor<1x6x3x2xf32>
  %1 = mllm.reshape %0 : (tensor<1x6x3x2xf32>) -> tensor<1x6x6xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x6x6xf32>) -> tensor<1x6x6xf32>
  func.return %2 : tensor<1x6x6xf32>
}

// CHECK-LABEL: func.func @keeps_groups_of_channels
// CHECK-NOT: mllm.patch_embed
func.func @keeps_groups_of_channels(%i: tensor<1x3x8x8xf32>, %w: tensor<6x1x4x4xf32>) -> (tensor<1x4x6xf32>) {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 3 : i64} : (tensor<1x3x8x8xf32>, tensor<6x1x4x4xf32>) -> tensor<1x6x2x2xf32>
  %1 = mllm.reshape %0 : (tensor<1x6x2x2xf32>) -> tensor<1x6x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x6x4xf32>) -> tensor<1x4x6xf32>
  func.return %2 : tensor<1x4x6xf32>
}

// CHECK-LABEL: func.func @keeps_a_position_of_each_image
// CHECK: mllm.patch_embed %i, %w {patch = 4 : i64}
// CHECK-NEXT: mllm.binary add
func.func @keeps_a_position_of_each_image(%i: tensor<2x3x8x8xf32>, %w: tensor<6x3x4x4xf32>, %p: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %0 = mllm.conv %i, %w {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<6x3x4x4xf32>) -> tensor<2x6x2x2xf32>
  %1 = mllm.reshape %0 : (tensor<2x6x2x2xf32>) -> tensor<2x6x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<2x6x4xf32>) -> tensor<2x4x6xf32>
  %3 = mllm.binary add %2, %p : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  func.return %3 : tensor<2x4x6xf32>
}
