// RUN: mllm-opt %s -p lift-selective-scan | filecheck %s

// CHECK-LABEL: func.func @reads_a_scan_of_states
// CHECK: %[[Y:.*]], %[[LAST:.*]] = mllm.selective_scan %x, %step, %a, %b, %c, %h : (tensor<2x5x3xf32>, tensor<2x5x3xf32>, tensor<3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x3x4xf32>) -> (tensor<2x5x3xf32>, tensor<2x3x4xf32>)
// CHECK-NEXT: %[[TURNED:.*]] = mllm.transpose %[[Y]] {perm = array<i64: 0, 2, 1>}
// CHECK-NEXT: func.return %[[LAST]], %[[TURNED]]
func.func @reads_a_scan_of_states(%x: tensor<2x5x3xf32>, %step: tensor<2x5x3xf32>, %a: tensor<3x4xf32>, %b: tensor<2x5x4xf32>, %c: tensor<2x5x4xf32>, %h: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x5xf32>) {
  %0 = mllm.transpose %step {perm = array<i64: 0, 2, 1>} : (tensor<2x5x3xf32>) -> tensor<2x3x5xf32>
  %1 = mllm.reshape %0 : (tensor<2x3x5xf32>) -> tensor<2x3x5x1xf32>
  %2 = mllm.reshape %a : (tensor<3x4xf32>) -> tensor<1x3x1x4xf32>
  %3 = mllm.binary mul %2, %1 : (tensor<1x3x1x4xf32>, tensor<2x3x5x1xf32>) -> tensor<2x3x5x4xf32>
  %kept = mllm.unary exp %3 : (tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %4 = mllm.reshape %b : (tensor<2x5x4xf32>) -> tensor<2x1x5x4xf32>
  %5 = mllm.binary mul %1, %4 : (tensor<2x3x5x1xf32>, tensor<2x1x5x4xf32>) -> tensor<2x3x5x4xf32>
  %6 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x5x3xf32>) -> tensor<2x3x5xf32>
  %7 = mllm.reshape %6 : (tensor<2x3x5xf32>) -> tensor<2x3x5x1xf32>
  %added = mllm.binary mul %5, %7 : (tensor<2x3x5x4xf32>, tensor<2x3x5x1xf32>) -> tensor<2x3x5x4xf32>
  %last, %read = onnx.Scan %h, %kept, %added, %c {num_scan_inputs = 3 : i64, scan_input_axes = array<i64: 2, 2, 1>, scan_output_axes = array<i64: 2>} body {
  ^bb0(%s: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %p: tensor<2x3x4xf32>, %o: tensor<2x4xf32>):
    %8 = mllm.binary mul %s, %k : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %9 = mllm.binary add %p, %8 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %10 = mllm.reshape %o : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %11 = mllm.matmul %9, %10 : (tensor<2x3x4xf32>, tensor<2x4x1xf32>) -> tensor<2x3x1xf32>
    %12 = mllm.reshape %11 : (tensor<2x3x1xf32>) -> tensor<2x3xf32>
    onnx.yield %9, %12 : tensor<2x3x4xf32>, tensor<2x3xf32>
  } : (tensor<2x3x4xf32>, tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<2x5x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x5xf32>)
  func.return %last, %read : tensor<2x3x4xf32>, tensor<2x3x5xf32>
}

// CHECK-LABEL: func.func @keeps_a_scan_whose_decay_is_no_product
// CHECK: onnx.Scan
func.func @keeps_a_scan_whose_decay_is_no_product(%kept: tensor<5x2x3x4xf32>, %added: tensor<5x2x3x4xf32>, %c: tensor<5x2x4xf32>, %h: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<5x2x3xf32>) {
  %last, %read = onnx.Scan %h, %kept, %added, %c {num_scan_inputs = 3 : i64} body {
  ^bb0(%s: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %p: tensor<2x3x4xf32>, %o: tensor<2x4xf32>):
    %8 = mllm.binary mul %s, %k : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %9 = mllm.binary add %p, %8 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %10 = mllm.reshape %o : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %11 = mllm.matmul %9, %10 : (tensor<2x3x4xf32>, tensor<2x4x1xf32>) -> tensor<2x3x1xf32>
    %12 = mllm.reshape %11 : (tensor<2x3x1xf32>) -> tensor<2x3xf32>
    onnx.yield %9, %12 : tensor<2x3x4xf32>, tensor<2x3xf32>
  } : (tensor<2x3x4xf32>, tensor<5x2x3x4xf32>, tensor<5x2x3x4xf32>, tensor<5x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<5x2x3xf32>)
  func.return %last, %read : tensor<2x3x4xf32>, tensor<5x2x3xf32>
}

// CHECK-LABEL: func.func @keeps_a_running_sum
// CHECK: onnx.Scan
func.func @keeps_a_running_sum(%x: tensor<5x3xf32>, %h: tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
  %last, %sums = onnx.Scan %h, %x {num_scan_inputs = 1 : i64} body {
  ^bb0(%s: tensor<3xf32>, %v: tensor<3xf32>):
    %0 = mllm.binary add %s, %v : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    onnx.yield %0, %0 : tensor<3xf32>, tensor<3xf32>
  } : (tensor<3xf32>, tensor<5x3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>)
  func.return %last, %sums : tensor<3xf32>, tensor<5x3xf32>
}

// CHECK-LABEL: func.func @keeps_a_scan_from_the_last_token_on
// CHECK-NOT: mllm.selective_scan
// CHECK: onnx.Scan
func.func @keeps_a_scan_from_the_last_token_on(%x: tensor<2x5x3xf32>, %step: tensor<2x5x3xf32>, %a: tensor<3x4xf32>, %b: tensor<2x5x4xf32>, %c: tensor<2x5x4xf32>, %h: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x5xf32>) {
  %0 = mllm.transpose %step {perm = array<i64: 0, 2, 1>} : (tensor<2x5x3xf32>) -> tensor<2x3x5xf32>
  %1 = mllm.reshape %0 : (tensor<2x3x5xf32>) -> tensor<2x3x5x1xf32>
  %2 = mllm.reshape %a : (tensor<3x4xf32>) -> tensor<1x3x1x4xf32>
  %3 = mllm.binary mul %2, %1 : (tensor<1x3x1x4xf32>, tensor<2x3x5x1xf32>) -> tensor<2x3x5x4xf32>
  %kept = mllm.unary exp %3 : (tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %4 = mllm.reshape %b : (tensor<2x5x4xf32>) -> tensor<2x1x5x4xf32>
  %5 = mllm.binary mul %1, %4 : (tensor<2x3x5x1xf32>, tensor<2x1x5x4xf32>) -> tensor<2x3x5x4xf32>
  %6 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x5x3xf32>) -> tensor<2x3x5xf32>
  %7 = mllm.reshape %6 : (tensor<2x3x5xf32>) -> tensor<2x3x5x1xf32>
  %added = mllm.binary mul %5, %7 : (tensor<2x3x5x4xf32>, tensor<2x3x5x1xf32>) -> tensor<2x3x5x4xf32>
  %last, %read = onnx.Scan %h, %kept, %added, %c {num_scan_inputs = 3 : i64, scan_input_axes = array<i64: 2, 2, 1>, scan_output_axes = array<i64: 2>, scan_input_directions = array<i64: 1, 1, 1>} body {
  ^bb0(%s: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %p: tensor<2x3x4xf32>, %o: tensor<2x4xf32>):
    %8 = mllm.binary mul %s, %k : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %9 = mllm.binary add %p, %8 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %10 = mllm.reshape %o : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %11 = mllm.matmul %9, %10 : (tensor<2x3x4xf32>, tensor<2x4x1xf32>) -> tensor<2x3x1xf32>
    %12 = mllm.reshape %11 : (tensor<2x3x1xf32>) -> tensor<2x3xf32>
    onnx.yield %9, %12 : tensor<2x3x4xf32>, tensor<2x3xf32>
  } : (tensor<2x3x4xf32>, tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<2x5x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x5xf32>)
  func.return %last, %read : tensor<2x3x4xf32>, tensor<2x3x5xf32>
}
