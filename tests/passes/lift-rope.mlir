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

// CHECK-LABEL: func.func @rotates_pairs_that_stand_side_by_side
// CHECK: mllm.rope %{{.*}}, %p, %{{.*}} {heads = 3 : i64, interleaved = true}
func.func @rotates_pairs_that_stand_side_by_side(%x: tensor<2x3x4x4xf32>, %p: tensor<2x4xi64>) -> tensor<2x3x4x4xf32> {
  %f = mllm.constant dense<[1.0, 0.25]> : tensor<2xf32>
  %0 = mllm.cast %p : (tensor<2x4xi64>) -> tensor<2x4xf32>
  %1 = mllm.reshape %0 : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
  %2 = mllm.binary mul %1, %f : (tensor<2x4x1xf32>, tensor<2xf32>) -> tensor<2x4x2xf32>
  %3 = mllm.unary cos %2 : (tensor<2x4x2xf32>) -> tensor<2x4x2xf32>
  %4 = mllm.unary sin %2 : (tensor<2x4x2xf32>) -> tensor<2x4x2xf32>
  %5 = mllm.reshape %3 : (tensor<2x4x2xf32>) -> tensor<2x4x2x1xf32>
  %6 = mllm.reshape %4 : (tensor<2x4x2xf32>) -> tensor<2x4x2x1xf32>
  %7 = mllm.concat %5, %5 {axis = 3 : i64} : (tensor<2x4x2x1xf32>, tensor<2x4x2x1xf32>) -> tensor<2x4x2x2xf32>
  %8 = mllm.broadcast %6 : (tensor<2x4x2x1xf32>) -> tensor<2x4x2x2xf32>
  %cos = mllm.reshape %7 : (tensor<2x4x2x2xf32>) -> tensor<2x1x4x4xf32>
  %sin = mllm.reshape %8 : (tensor<2x4x2x2xf32>) -> tensor<2x1x4x4xf32>
  %even = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 2>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x2xf32>
  %odd = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "1">, steps = array<i64: 1, 1, 1, 2>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x2xf32>
  %neg = mllm.unary neg %odd : (tensor<2x3x4x2xf32>) -> tensor<2x3x4x2xf32>
  %9 = mllm.reshape %neg : (tensor<2x3x4x2xf32>) -> tensor<2x3x4x2x1xf32>
  %10 = mllm.reshape %even : (tensor<2x3x4x2xf32>) -> tensor<2x3x4x2x1xf32>
  %11 = mllm.concat %9, %10 {axis = 4 : i64} : (tensor<2x3x4x2x1xf32>, tensor<2x3x4x2x1xf32>) -> tensor<2x3x4x2x2xf32>
  %turned = mllm.reshape %11 : (tensor<2x3x4x2x2xf32>) -> tensor<2x3x4x4xf32>
  %12 = mllm.binary mul %x, %cos : (tensor<2x3x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x3x4x4xf32>
  %13 = mllm.binary mul %turned, %sin : (tensor<2x3x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x3x4x4xf32>
  %14 = mllm.binary add %12, %13 : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  func.return %14 : tensor<2x3x4x4xf32>
}

// CHECK-LABEL: func.func @rotates_the_first_dims_by_rows_of_tables
// CHECK: %[[F:.*]] = mllm.constant dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf32>
// CHECK: mllm.rope %{{.*}}, %p, %[[F]] {heads = 3 : i64} : (tensor<2x4x18xf32>, tensor<2x4xi64>, tensor<2xf32>) -> tensor<2x4x18xf32>
func.func @rotates_the_first_dims_by_rows_of_tables(%x: tensor<2x4x3x6xf32>, %p: tensor<2x4xi64>) -> tensor<2x4x3x6xf32> {
  %costable = mllm.constant dense<[[1.0, 1.0], [0.5403023, 0.87758255], [-0.41614684, 0.5403023]]> : tensor<3x2xf32>
  %sintable = mllm.constant dense<[[0.0, 0.0], [0.84147096, 0.47942555], [0.9092974, 0.84147096]]> : tensor<3x2xf32>
  %0 = mllm.embedding %costable, %p : (tensor<3x2xf32>, tensor<2x4xi64>) -> tensor<2x4x2xf32>
  %1 = mllm.embedding %sintable, %p : (tensor<3x2xf32>, tensor<2x4xi64>) -> tensor<2x4x2xf32>
  %cos = mllm.reshape %0 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %sin = mllm.reshape %1 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %first = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x6xf32>) -> tensor<2x4x3x4xf32>
  %rest = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x6xf32>) -> tensor<2x4x3x2xf32>
  %a = mllm.slice %first {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %b = mllm.slice %first {starts = #mllm.dims<"0", "0", "0", "2">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %ac = mllm.binary mul %a, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bs = mllm.binary mul %b, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bc = mllm.binary mul %b, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %as = mllm.binary mul %a, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %real = mllm.binary sub %ac, %bs : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %imaginary = mllm.binary add %bc, %as : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %turned = mllm.concat %real, %imaginary {axis = 3 : i64} : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x4xf32>
  %y = mllm.concat %turned, %rest {axis = 3 : i64} : (tensor<2x4x3x4xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x6xf32>
  func.return %y : tensor<2x4x3x6xf32>
}

// CHECK-LABEL: func.func @keeps_rows_of_tables_of_no_angles
// CHECK-NOT: mllm.rope
func.func @keeps_rows_of_tables_of_no_angles(%x: tensor<2x4x3x4xf32>, %p: tensor<2x4xi64>) -> tensor<2x4x3x4xf32> {
  %costable = mllm.constant dense<[[1.0, 1.0], [0.5, 0.9], [-0.4, 0.5]]> : tensor<3x2xf32>
  %sintable = mllm.constant dense<[[0.0, 0.0], [0.8, 0.5], [0.9, 0.8]]> : tensor<3x2xf32>
  %0 = mllm.embedding %costable, %p : (tensor<3x2xf32>, tensor<2x4xi64>) -> tensor<2x4x2xf32>
  %1 = mllm.embedding %sintable, %p : (tensor<3x2xf32>, tensor<2x4xi64>) -> tensor<2x4x2xf32>
  %cos = mllm.reshape %0 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %sin = mllm.reshape %1 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %a = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %b = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "2">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %ac = mllm.binary mul %a, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bs = mllm.binary mul %b, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bc = mllm.binary mul %b, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %as = mllm.binary mul %a, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %real = mllm.binary sub %ac, %bs : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %imaginary = mllm.binary add %bc, %as : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %turned = mllm.concat %real, %imaginary {axis = 3 : i64} : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x4xf32>
  func.return %turned : tensor<2x4x3x4xf32>
}

// CHECK-LABEL: func.func @keeps_a_rotation_the_other_way
// CHECK-NOT: mllm.rope
func.func @keeps_a_rotation_the_other_way(%x: tensor<2x4x3x4xf32>, %p: tensor<2x4xi64>) -> tensor<2x4x3x4xf32> {
  %f = mllm.constant dense<[1.0, 0.25]> : tensor<2xf32>
  %0 = mllm.cast %p : (tensor<2x4xi64>) -> tensor<2x4xf32>
  %1 = mllm.reshape %0 : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
  %2 = mllm.binary mul %1, %f : (tensor<2x4x1xf32>, tensor<2xf32>) -> tensor<2x4x2xf32>
  %3 = mllm.unary cos %2 : (tensor<2x4x2xf32>) -> tensor<2x4x2xf32>
  %4 = mllm.unary sin %2 : (tensor<2x4x2xf32>) -> tensor<2x4x2xf32>
  %cos = mllm.reshape %3 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %sin = mllm.reshape %4 : (tensor<2x4x2xf32>) -> tensor<2x4x1x2xf32>
  %a = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %b = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "2">, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x2xf32>
  %ac = mllm.binary mul %a, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bs = mllm.binary mul %b, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %bc = mllm.binary mul %b, %cos : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %as = mllm.binary mul %a, %sin : (tensor<2x4x3x2xf32>, tensor<2x4x1x2xf32>) -> tensor<2x4x3x2xf32>
  %real = mllm.binary add %ac, %bs : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %imaginary = mllm.binary sub %bc, %as : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %turned = mllm.concat %real, %imaginary {axis = 3 : i64} : (tensor<2x4x3x2xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x4xf32>
  func.return %turned : tensor<2x4x3x4xf32>
}
