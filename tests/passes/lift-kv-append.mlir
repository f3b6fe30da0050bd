// RUN: mllm-opt %s -p lift-kv-append | filecheck %s

// CHECK-LABEL: func.func @appends_to_an_argument
// CHECK: mllm.kv_append %past, %new {kv_heads = 2 : i64} : (tensor<1x2x5x8xf32>, tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32>
// CHECK-NEXT: func.return
func.func @appends_to_an_argument(%past: tensor<1x2x5x8xf32>, %new: tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32> {
  %0 = mllm.reshape %new : (tensor<1x3x16xf32>) -> tensor<1x3x2x8xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x8xf32>) -> tensor<1x2x3x8xf32>
  %2 = mllm.concat %past, %1 {axis = 2 : i64} : (tensor<1x2x5x8xf32>, tensor<1x2x3x8xf32>) -> tensor<1x2x8x8xf32>
  func.return %2 : tensor<1x2x8x8xf32>
}

// CHECK-LABEL: func.func @keeps_what_is_put_before_the_cache
// CHECK-NOT: mllm.kv_append
func.func @keeps_what_is_put_before_the_cache(%past: tensor<1x2x5x8xf32>, %new: tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32> {
  %0 = mllm.reshape %new : (tensor<1x3x16xf32>) -> tensor<1x3x2x8xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x8xf32>) -> tensor<1x2x3x8xf32>
  %2 = mllm.concat %1, %past {axis = 2 : i64} : (tensor<1x2x3x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x2x8x8xf32>
  func.return %2 : tensor<1x2x8x8xf32>
}

// CHECK-LABEL: func.func @keeps_heads_that_are_joined
// CHECK-NOT: mllm.kv_append
func.func @keeps_heads_that_are_joined(%past: tensor<1x2x3x8xf32>, %new: tensor<1x3x16xf32>) -> tensor<1x4x3x8xf32> {
  %0 = mllm.reshape %new : (tensor<1x3x16xf32>) -> tensor<1x3x2x8xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x8xf32>) -> tensor<1x2x3x8xf32>
  %2 = mllm.concat %past, %1 {axis = 1 : i64} : (tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<1x4x3x8xf32>
  func.return %2 : tensor<1x4x3x8xf32>
}
