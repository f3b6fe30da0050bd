// RUN: mllm-opt %s -p lift-rope | filecheck %s

// CHECK-LABEL: func.func @rotates_heads_before_tokens
// CHECK: mllm.rope %{{.*}}, %p, %{{.*}} {heads = 3 : i64} : (tensor<2x4x24xf32>, tensor<2x4xi64>, tensor<4xf32>) -> tensor<2x4x24xf32>
func.func @rotates_heads_before_tokens(%x: tensor<2x3x4x8xf32>, %p: tensor<2x4xi64>) -> tensor<2x3x4x8xf32> {
  %f = mllm.constant dense<[[[1.0], [0.5], [0.25], [0.125]]]> : tensor<1x4x1xf32>
  %0 = mllm.reshape %p : (tensor<2x4xi64>) -> tensor<2x1x4xi64>
  %1 = mllm.cast %0 : (tensor<2x1x4xi64>) -> tensor<2x1x4xf32>
  %2 = mllm.binary mul %f, %1 : (tensor<1x4x1xf32>, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>
  %3 = mllm.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %4 = mllm.concat %3, %3 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %5 = mllm.unary cos %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %6 = mllm.unary sin %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %cos = mllm.reshape %5 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %sin = mllm.reshape %6 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %low = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %high = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %neg = mllm.unary neg %high : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %turned = mllm.concat %neg, %low {axis = 3 : i64} : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x8xf32>
  %7 = mllm.binary mul %x, %cos : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %8 = mllm.binary mul %turned, %sin : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %9 = mllm.binary add %7, %8 : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  func.return %9 : tensor<2x3x4x8xf32>
}

// CHECK-LABEL: func.func @rotates_heads_behind_tokens
// CHECK-NOT: mllm.transpose
// CHECK: mllm.rope %{{.*}}, %p, %{{.*}} {heads = 3 : i64}
func.func @rotates_heads_behind_tokens(%x: tensor<2x4x3x8xf32>, %p: tensor<2x4xi64>) -> tensor<2x4x3x8xf32> {
  %f = mllm.constant dense<[[[1.0], [0.5], [0.25], [0.125]]]> : tensor<1x4x1xf32>
  %0 = mllm.reshape %p : (tensor<2x4xi64>) -> tensor<2x1x4xi64>
  %1 = mllm.cast %0 : (tensor<2x1x4xi64>) -> tensor<2x1x4xf32>
  %2 = mllm.binary mul %f, %1 : (tensor<1x4x1xf32>, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>
  %3 = mllm.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %4 = mllm.concat %3, %3 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %5 = mllm.unary cos %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %6 = mllm.unary sin %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %cos = mllm.reshape %5 : (tensor<2x4x8xf32>) -> tensor<2x4x1x8xf32>
  %sin = mllm.reshape %6 : (tensor<2x4x8xf32>) -> tensor<2x4x1x8xf32>
  %low = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %high = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %neg = mllm.unary neg %high : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x4xf32>
  %turned = mllm.concat %neg, %low {axis = 3 : i64} : (tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>) -> tensor<2x4x3x8xf32>
  %7 = mllm.binary mul %x, %cos : (tensor<2x4x3x8xf32>, tensor<2x4x1x8xf32>) -> tensor<2x4x3x8xf32>
  %8 = mllm.binary mul %turned, %sin : (tensor<2x4x3x8xf32>, tensor<2x4x1x8xf32>) -> tensor<2x4x3x8xf32>
  %9 = mllm.binary add %7, %8 : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  func.return %9 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @keeps_halves_that_stay_in_place
// CHECK-NOT: mllm.rope
func.func @keeps_halves_that_stay_in_place(%x: tensor<2x3x4x8xf32>, %p: tensor<2x4xi64>) -> tensor<2x3x4x8xf32> {
  %f = mllm.constant dense<[[[1.0], [0.5], [0.25], [0.125]]]> : tensor<1x4x1xf32>
  %0 = mllm.reshape %p : (tensor<2x4xi64>) -> tensor<2x1x4xi64>
  %1 = mllm.cast %0 : (tensor<2x1x4xi64>) -> tensor<2x1x4xf32>
  %2 = mllm.binary mul %f, %1 : (tensor<1x4x1xf32>, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>
  %3 = mllm.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %4 = mllm.concat %3, %3 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %5 = mllm.unary cos %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %6 = mllm.unary sin %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %cos = mllm.reshape %5 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %sin = mllm.reshape %6 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %low = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %high = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %neg = mllm.unary neg %high : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %turned = mllm.concat %low, %neg {axis = 3 : i64} : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x8xf32>
  %7 = mllm.binary mul %x, %cos : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %8 = mllm.binary mul %turned, %sin : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %9 = mllm.binary add %7, %8 : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  func.return %9 : tensor<2x3x4x8xf32>
}

// CHECK-LABEL: func.func @keeps_a_sine_of_other_angles
// CHECK-NOT: mllm.rope
func.func @keeps_a_sine_of_other_angles(%x: tensor<2x3x4x8xf32>, %p: tensor<2x4xi64>) -> tensor<2x3x4x8xf32> {
  %f = mllm.constant dense<[[[1.0], [0.5], [0.25], [0.125]]]> : tensor<1x4x1xf32>
  %0 = mllm.reshape %p : (tensor<2x4xi64>) -> tensor<2x1x4xi64>
  %1 = mllm.cast %0 : (tensor<2x1x4xi64>) -> tensor<2x1x4xf32>
  %2 = mllm.binary mul %f, %1 : (tensor<1x4x1xf32>, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>
  %3 = mllm.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %4 = mllm.concat %3, %3 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %5 = mllm.unary cos %4 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %o = mllm.binary add %4, %4 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %6 = mllm.unary sin %o : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %cos = mllm.reshape %5 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %sin = mllm.reshape %6 : (tensor<2x4x8xf32>) -> tensor<2x1x4x8xf32>
  %low = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %high = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %neg = mllm.unary neg %high : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %turned = mllm.concat %neg, %low {axis = 3 : i64} : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x8xf32>
  %7 = mllm.binary mul %x, %cos : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %8 = mllm.binary mul %turned, %sin : (tensor<2x3x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x3x4x8xf32>
  %9 = mllm.binary add %7, %8 : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  func.return %9 : tensor<2x3x4x8xf32>
}
