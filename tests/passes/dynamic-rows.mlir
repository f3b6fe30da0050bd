// RUN: mllm-opt %s -p dynamic-rows | filecheck %s

// CHECK-LABEL: func.func @gives_a_row_a_zero_point
// CHECK: [[C:%.+]], [[S:%.+]], [[Z:%.+]] = mllm.dynamic_quantize %x {axis = 2 : i64} : (tensor<1x4x32xf32>) -> (tensor<1x4x32xi8>, tensor<1x4x1xf32>, tensor<1x4x1xi8>)
// CHECK: mllm.quantized_linear [[C]], [[S]], %q, {{%.+}} x_zero([[Z]] : tensor<1x4x1xi8>)
func.func @gives_a_row_a_zero_point(%x: tensor<1x4x32xf32>, %q: tensor<8x32xi8>) -> tensor<1x4x8xf32> {
  %c, %s = mllm.dynamic_quantize %x {axis = 2 : i64} : (tensor<1x4x32xf32>) -> (tensor<1x4x32xi8>, tensor<1x4x1xf32>)
  %t = mllm.constant dense<0.5> : tensor<f32>
  %y = mllm.quantized_linear %c, %s, %q, %t : (tensor<1x4x32xi8>, tensor<1x4x1xf32>, tensor<8x32xi8>, tensor<f32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

// Blocks of activations become rows; scales of 0.2 and 1.001 have eight bits, as bfloat16 has.
// CHECK-LABEL: func.func @gives_blocks_one_scale
// CHECK: [[W:%.+]] = mllm.constant dense<{{\[}}[2.001950e-01, 1.000000e+00]]> : tensor<1x2xf16>
// CHECK: [[C:%.+]], [[S:%.+]], [[Z:%.+]] = mllm.dynamic_quantize %x {axis = 1 : i64} : {{.*}} tensor<2x1xf32>, tensor<2x1xi8>)
// CHECK: mllm.quantized_linear [[C]], [[S]], %q, [[W]] x_zero([[Z]] : tensor<2x1xi8>) {block_size = 32 : i64}
func.func @gives_blocks_one_scale(%x: tensor<2x64xf32>, %q: tensor<1x64xi4>) -> tensor<2x1xf32> {
  %c, %s = mllm.dynamic_quantize %x {axis = 1 : i64, block_size = 32 : i64} : (tensor<2x64xf32>) -> (tensor<2x64xi8>, tensor<2x2xf32>)
  %t = mllm.constant dense<[[2.000000e-01, 1.001000e+00]]> : tensor<1x2xf16>
  %y = mllm.quantized_linear %c, %s, %q, %t {block_size = 32 : i64} : (tensor<2x64xi8>, tensor<2x2xf32>, tensor<1x64xi4>, tensor<1x2xf16>) -> tensor<2x1xf32>
  func.return %y : tensor<2x1xf32>
}

// Static activations, and rows that have zero points, stay as they are.
// CHECK-LABEL: func.func @leaves_static_activations
// CHECK: mllm.quantized_linear %c, %s, %q, %t :
func.func @leaves_static_activations(%c: tensor<4x32xi8>, %s: tensor<f32>, %q: tensor<8x32xi8>, %t: tensor<f32>) -> tensor<4x8xf32> {
  %y = mllm.quantized_linear %c, %s, %q, %t : (tensor<4x32xi8>, tensor<f32>, tensor<8x32xi8>, tensor<f32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
