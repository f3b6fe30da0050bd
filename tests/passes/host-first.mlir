// RUN: mllm-opt %s -p host-first | filecheck %s

// A look-up and a mask of whole numbers go first; a sum of reals stays where it is.
// CHECK-LABEL: func.func @brings_the_host_forward
// CHECK: [[ROWS:%.+]] = tfl.gather %t, %at
// CHECK: [[SEEN:%.+]] = tfl.logical_and %p, %q
// CHECK: tfl.mul %x, %x
// CHECK: tfl.add {{%.+}}, [[ROWS]]
// CHECK: tfl.cast [[SEEN]]
func.func @brings_the_host_forward(%x: tensor<2x4xf32>, %t: tensor<8x4xf32>, %at: tensor<2xi32>, %p: tensor<4xi1>, %q: tensor<4xi1>) -> tensor<2x4xf32> {
  %0 = tfl.mul %x, %x {fused_activation_function = "NONE"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = tfl.gather %t, %at {axis = 0 : i64, batch_dims = 0 : i64} : (tensor<8x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  %2 = tfl.add %0, %1 {fused_activation_function = "NONE"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = tfl.logical_and %p, %q : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %4 = tfl.cast %3 : (tensor<4xi1>) -> tensor<4xf32>
  %5 = tfl.mul %2, %4 {fused_activation_function = "NONE"} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %5 : tensor<2x4xf32>
}

// What reads the network's results and feeds none of it stays behind.
// CHECK-LABEL: func.func @leaves_what_is_behind
// CHECK: [[A:%.+]] = tfl.mul
// CHECK: [[B:%.+]] = tfl.exp [[A]]
// CHECK: tfl.floor [[B]]
func.func @leaves_what_is_behind(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tfl.mul %x, %x {fused_activation_function = "NONE"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = tfl.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  %2 = tfl.floor %1 : (tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}

// Numbers of 64 bits are for the CPU, whatever the operator.
// CHECK-LABEL: func.func @counts_on_the_host
// CHECK: tfl.add %n, %n
// CHECK: tfl.mul %x, %x
func.func @counts_on_the_host(%x: tensor<4xf32>, %n: tensor<1xi64>) -> (tensor<4xf32>, tensor<1xi64>) {
  %0 = tfl.mul %x, %x {fused_activation_function = "NONE"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = tfl.add %n, %n {fused_activation_function = "NONE"} : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
  func.return %0, %1 : tensor<4xf32>, tensor<1xi64>
}

// A boolean that a choice on the CPU reads goes with it, though the plugin takes its reshape.
// CHECK-LABEL: func.func @brings_booleans_forward
// CHECK: [[C:%.+]] = tfl.reshape %c
// CHECK: tfl.select_v2 [[C]]
// CHECK: tfl.mul %x, %x
func.func @brings_booleans_forward(%x: tensor<4xf32>, %c: tensor<4xi1>, %n: tensor<1x4xi64>) -> (tensor<4xf32>, tensor<1x4xi64>) {
  %0 = tfl.mul %x, %x {fused_activation_function = "NONE"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = mllm.constant dense<[1, 4]> : tensor<2xi32>
  %2 = tfl.reshape %c, %1 : (tensor<4xi1>, tensor<2xi32>) -> tensor<1x4xi1>
  %3 = tfl.select_v2 %2, %n, %n : (tensor<1x4xi1>, tensor<1x4xi64>, tensor<1x4xi64>) -> tensor<1x4xi64>
  func.return %0, %3 : tensor<4xf32>, tensor<1x4xi64>
}
