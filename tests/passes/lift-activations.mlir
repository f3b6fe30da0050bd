// RUN: mllm-opt %s -p lift-activations | filecheck %s

// CHECK-LABEL: func.func @reads_gelu
// CHECK: mllm.unary gelu %x
// CHECK-NEXT: func.return
func.func @reads_gelu(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = mllm.constant dense<1.41421354> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %h = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.binary div %x, %r : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.unary erf %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = mllm.binary mul %x, %2 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %4 = mllm.binary mul %3, %h : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// CHECK-LABEL: func.func @reads_gelu_in_another_order
// CHECK: mllm.unary gelu %x
// CHECK-NEXT: func.return
func.func @reads_gelu_in_another_order(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = mllm.constant dense<0.707106769> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %h = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.binary mul %x, %r : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.unary erf %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = mllm.binary mul %x, %h : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %4 = mllm.binary mul %2, %3 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// CHECK-LABEL: func.func @reads_the_tanh_form
// CHECK: mllm.unary gelu_tanh %x
// CHECK-NEXT: func.return
func.func @reads_the_tanh_form(%x: tensor<8xf32>) -> tensor<8xf32> {
  %three = mllm.constant dense<3.0> : tensor<f32>
  %c = mllm.constant dense<0.044715> : tensor<f32>
  %s = mllm.constant dense<0.797884583> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %h = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.binary pow %x, %three : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.binary mul %0, %c : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = mllm.binary add %x, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = mllm.binary mul %2, %s : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %4 = mllm.unary tanh %3 : (tensor<8xf32>) -> tensor<8xf32>
  %5 = mllm.binary add %4, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %6 = mllm.binary mul %x, %h : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %7 = mllm.binary mul %6, %5 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %7 : tensor<8xf32>
}

// CHECK-LABEL: func.func @reads_silu_with_a_spelled_sigmoid
// CHECK: mllm.unary silu %x
// CHECK-NEXT: func.return
func.func @reads_silu_with_a_spelled_sigmoid(%x: tensor<8xf32>) -> tensor<8xf32> {
  %one = mllm.constant dense<1.0> : tensor<f32>
  %0 = mllm.unary neg %x : (tensor<8xf32>) -> tensor<8xf32>
  %1 = mllm.unary exp %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = mllm.unary reciprocal %2 : (tensor<8xf32>) -> tensor<8xf32>
  %4 = mllm.binary mul %3, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// CHECK-LABEL: func.func @keeps_a_gate_of_another_value
// CHECK-NOT: mllm.unary gelu
// CHECK-NOT: mllm.unary silu
func.func @keeps_a_gate_of_another_value(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r = mllm.constant dense<0.707106769> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %h = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.binary mul %y, %r : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.unary erf %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = mllm.binary mul %x, %h : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %4 = mllm.binary mul %2, %3 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %5 = mllm.unary sigmoid %y : (tensor<8xf32>) -> tensor<8xf32>
  %6 = mllm.binary mul %5, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %4, %6 : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @keeps_another_slope
// CHECK-NOT: mllm.unary gelu
func.func @keeps_another_slope(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = mllm.constant dense<0.8> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %h = mllm.constant dense<0.5> : tensor<f32>
  %0 = mllm.binary mul %x, %r : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.unary erf %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = mllm.binary mul %x, %2 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %4 = mllm.binary mul %3, %h : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}
