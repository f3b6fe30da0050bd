// RUN: mllm-opt %s -p cancel-transposes | filecheck %s

// CHECK-LABEL: func.func @moves_up_to_the_one_that_it_undoes
// CHECK-NEXT: [[A:%.+]] = mllm.unary silu %x : (tensor<2x3x4xf32>)
// CHECK-NEXT: [[B:%.+]] = mllm.transpose %y {perm = array<i64: 0, 2, 1>}
// CHECK-NEXT: [[C:%.+]] = mllm.binary mul [[A]], [[B]]
// CHECK-NEXT: func.return [[C]]
func.func @moves_up_to_the_one_that_it_undoes(%x: tensor<2x3x4xf32>, %y: tensor<2x4x3xf32>) -> tensor<2x3x4xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = mllm.unary silu %0 : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
  %2 = mllm.binary mul %1, %y : (tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
  %3 = mllm.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  func.return %3 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @moves_through_slices_conversions_and_numbers
// CHECK-NOT: mllm.transpose
// CHECK: mllm.slice %x {starts = #mllm.dims<"1", "2", "0">, steps = array<i64: 1, 2, 1>} : (tensor<4x5x3xf32>) -> tensor<2x2x3xf32>
// CHECK: mllm.cast {{.+}} -> tensor<2x2x3xf64>
// CHECK-NOT: mllm.transpose
// CHECK: return
func.func @moves_through_slices_conversions_and_numbers(%x: tensor<4x5x3xf32>) -> tensor<2x2x3xf64> {
  %c = mllm.constant dense<2.0> : tensor<f64>
  %0 = mllm.transpose %x {perm = array<i64: 1, 2, 0>} : (tensor<4x5x3xf32>) -> tensor<5x3x4xf32>
  %1 = mllm.slice %0 {starts = #mllm.dims<"2", "0", "1">, steps = array<i64: 2, 1, 1>} : (tensor<5x3x4xf32>) -> tensor<2x3x2xf32>
  %2 = mllm.cast %1 : (tensor<2x3x2xf32>) -> tensor<2x3x2xf64>
  %3 = mllm.binary mul %2, %c : (tensor<2x3x2xf64>, tensor<f64>) -> tensor<2x3x2xf64>
  %4 = mllm.transpose %3 {perm = array<i64: 2, 0, 1>} : (tensor<2x3x2xf64>) -> tensor<2x2x3xf64>
  func.return %4 : tensor<2x2x3xf64>
}

// CHECK-LABEL: func.func @takes_what_is_there_already
// CHECK-NEXT: [[T:%.+]] = mllm.transpose %x
// CHECK-NEXT: [[C:%.+]] = mllm.constant dense<{{.+}}> : tensor<1x2xf32>
// CHECK-NEXT: [[M:%.+]] = mllm.binary mul [[T]], [[C]]
// CHECK-NEXT: func.return [[T]], [[M]]
func.func @takes_what_is_there_already(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>) {
  %c = mllm.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = mllm.binary mul %x, %c : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  func.return %0, %2 : tensor<3x2xf32>, tensor<3x2xf32>
}

// CHECK-LABEL: func.func @keeps_transposes_of_other_axes
// CHECK-COUNT-2: mllm.transpose
func.func @keeps_transposes_of_other_axes(%x: tensor<4x5x3xf32>) -> tensor<3x4x5xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 1, 2, 0>} : (tensor<4x5x3xf32>) -> tensor<5x3x4xf32>
  %1 = mllm.unary exp %0 : (tensor<5x3x4xf32>) -> tensor<5x3x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 1, 2, 0>} : (tensor<5x3x4xf32>) -> tensor<3x4x5xf32>
  func.return %2 : tensor<3x4x5xf32>
}

// CHECK-LABEL: func.func @keeps_what_something_else_reads
// CHECK-COUNT-2: mllm.transpose
func.func @keeps_what_something_else_reads(%x: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<5x4xf32>) {
  %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  %1 = mllm.unary exp %0 : (tensor<5x4xf32>) -> tensor<5x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 1, 0>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
  func.return %2, %1 : tensor<4x5xf32>, tensor<5x4xf32>
}

// CHECK-LABEL: func.func @keeps_what_would_cost_as_many
// CHECK: mllm.binary add %x, %y
// CHECK-NEXT: mllm.transpose
func.func @keeps_what_would_cost_as_many(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) -> tensor<5x4xf32> {
  %0 = mllm.binary add %x, %y : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  %1 = mllm.transpose %0 {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  func.return %1 : tensor<5x4xf32>
}

// CHECK-LABEL: func.func @keeps_operands_that_broadcast_along_other_axes
// CHECK-COUNT-2: mllm.transpose
func.func @keeps_operands_that_broadcast_along_other_axes(%x: tensor<4x5xf32>, %b: tensor<4xf32>) -> tensor<4x5xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  %1 = mllm.binary add %0, %b : (tensor<5x4xf32>, tensor<4xf32>) -> tensor<5x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 1, 0>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
  func.return %2 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @keeps_a_norm_over_its_last_axis
// CHECK-COUNT-2: mllm.transpose
func.func @keeps_a_norm_over_its_last_axis(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  %1 = mllm.layer_norm %0 {epsilon = 0.5 : f64} : (tensor<5x4xf32>) -> tensor<5x4xf32>
  %2 = mllm.transpose %1 {perm = array<i64: 1, 0>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
  func.return %2 : tensor<4x5xf32>
}
