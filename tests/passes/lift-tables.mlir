// RUN: mllm-opt %s -p lift-tables | filecheck %s

// CHECK-LABEL: func.func @reads_a_window_of_a_triangle
// CHECK: %[[I:.*]] = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
// CHECK-NEXT: %[[KEYS:.*]] = mllm.reshape %[[I]] : (tensor<3xi64>) -> tensor<1x1x1x3xi64>
// CHECK-NEXT: %[[J:.*]] = mllm.iota {start = #mllm.dims<"1">, step = 1 : i64} : tensor<2xi64>
// CHECK-NEXT: %[[QUERIES:.*]] = mllm.reshape %[[J]] : (tensor<2xi64>) -> tensor<1x1x2x1xi64>
// CHECK-NEXT: mllm.compare le %[[KEYS]], %[[QUERIES]]
// CHECK-NEXT: func.return
func.func @reads_a_window_of_a_triangle() -> tensor<1x1x2x3xi1> {
  %t = mllm.constant dense<[[[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, true, true, true]]]]> : tensor<1x1x4x4xi1>
  %0 = mllm.slice %t {starts = #mllm.dims<"0", "0", "1", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xi1>) -> tensor<1x1x2x4xi1>
  %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0", "0", "0">, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x2x4xi1>) -> tensor<1x1x2x3xi1>
  func.return %1 : tensor<1x1x2x3xi1>
}

// CHECK-LABEL: func.func @reads_a_whole_triangle
// CHECK: mllm.compare le %{{.*}}, %{{.*}} : (tensor<1x2xi64>, tensor<2x1xi64>) -> tensor<2x2xi1>
func.func @reads_a_whole_triangle() -> tensor<2x2xi1> {
  %t = mllm.constant dense<[[true, false], [true, true]]> : tensor<2x2xi1>
  func.return %t : tensor<2x2xi1>
}

// CHECK-LABEL: func.func @reads_a_window_of_positions
// CHECK: %[[I:.*]] = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
// CHECK-NEXT: mllm.reshape %[[I]] : (tensor<3xi64>) -> tensor<1x3xi64>
// CHECK-NEXT: func.return
func.func @reads_a_window_of_positions() -> tensor<1x3xi64> {
  %t = mllm.constant dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>
  %0 = mllm.slice %t {starts = #mllm.dims<"0", "2">, steps = array<i64: 1, 1>} : (tensor<1x6xi64>) -> tensor<1x3xi64>
  func.return %0 : tensor<1x3xi64>
}

// CHECK-LABEL: func.func @keeps_a_table_of_other_booleans
// CHECK-NOT: mllm.compare
func.func @keeps_a_table_of_other_booleans() -> (tensor<2x2xi1>, tensor<2x2xi1>) {
  %all = mllm.constant dense<true> : tensor<2x2xi1>
  %above = mllm.constant dense<[[true, true], [false, true]]> : tensor<2x2xi1>
  func.return %all, %above : tensor<2x2xi1>, tensor<2x2xi1>
}

// CHECK-LABEL: func.func @keeps_positions_in_steps
// CHECK-NOT: mllm.iota
func.func @keeps_positions_in_steps() -> (tensor<2xi64>, tensor<2xi64>) {
  %t = mllm.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %0 = mllm.slice %t {starts = #mllm.dims<"0">, steps = array<i64: 2>} : (tensor<4xi64>) -> tensor<2xi64>
  %u = mllm.constant dense<[1, 2, 3, 4]> : tensor<4xi64>
  %1 = mllm.slice %u {starts = #mllm.dims<"0">, steps = array<i64: 1>} : (tensor<4xi64>) -> tensor<2xi64>
  func.return %0, %1 : tensor<2xi64>, tensor<2xi64>
}

// CHECK-LABEL: func.func @keeps_a_short_list_of_numbers
// CHECK: mllm.constant
// CHECK-NOT: mllm.iota
func.func @keeps_a_short_list_of_numbers() -> tensor<3xi64> {
  %t = mllm.constant dense<[0, 1, 2]> : tensor<3xi64>
  func.return %t : tensor<3xi64>
}

// CHECK-LABEL: func.func @keeps_a_triangle_of_numbers
// CHECK-NOT: mllm.compare
func.func @keeps_a_triangle_of_numbers() -> tensor<2x2xi64> {
  %t = mllm.constant dense<[[1, 0], [1, 1]]> : tensor<2x2xi64>
  func.return %t : tensor<2x2xi64>
}
