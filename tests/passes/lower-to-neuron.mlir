// RUN: mllm-opt %s -p 'lower-to-neuron{adapter="9.0.3"}' | filecheck %s

// A product without a bias gets one of zeros; a number is a tensor of one element.
// CHECK-LABEL: func.func @rows
// CHECK: [[ONE:%.+]] = mllm.constant dense<1.000000e+00> : tensor<1xf32>
// CHECK: [[ZEROS:%.+]] = mllm.constant dense<0.000000e+00> : tensor<3xf32>
// CHECK: [[Y:%.+]] = neuron.fully_connected %x, %w, [[ZEROS]] {fuse = "RELU1"}
// CHECK: neuron.add [[Y]], [[ONE]] {fuse = "NONE"}
func.func @rows(%x: tensor<2x4xf32>, %w: tensor<3x4xf32>) -> tensor<2x3xf32> {
  %0 = tfl.fully_connected %x, %w, none {fused_activation_function = "RELU_N1_TO_1", keep_num_dims = true, asymmetric_quantize_inputs = false} : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
  %1 = mllm.constant dense<1.0> : tensor<f32>
  %2 = tfl.add %0, %1 {fused_activation_function = "NONE"} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}

// Codes of 4 bits keep their scales with this library.
// CHECK-LABEL: func.func @codes
// CHECK: [[W:%.+]] = neuron.symm_per_channel %q, {{%.+}} {channel_dim = 0 : i64, adapter = array<i64: 9, 0, 3>}
// CHECK: neuron.fully_connected %x, [[W]]
func.func @codes(%x: tensor<2x4xf32>, %q: tensor<3x4xi4>) -> tensor<2x3xf32> {
  %0 = mllm.constant dense<[[0.5], [0.25], [1.0]]> : tensor<3x1xf32>
  %1 = tfl.pseudo_qconst %q, %0 {block_size = 0 : i64} : (tensor<3x4xi4>, tensor<3x1xf32>) -> tensor<3x4xi4>
  %2 = tfl.fully_connected %x, %1, none {fused_activation_function = "NONE", keep_num_dims = true, asymmetric_quantize_inputs = false} : (tensor<2x4xf32>, tensor<3x4xi4>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}

// What the plugin leaves to LiteRT stays.
// CHECK-LABEL: func.func @rest
// CHECK: tfl.gather
// CHECK: neuron.gelu {{%.+}} {approximate = 1 : i64}
func.func @rest(%t: tensor<8x4xf32>, %at: tensor<2xi32>) -> tensor<2x4xf32> {
  %0 = tfl.gather %t, %at {axis = 0 : i64, batch_dims = 0 : i64} : (tensor<8x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  %1 = tfl.gelu %0 {approximate = true} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %1 : tensor<2x4xf32>
}

// Codes keep what they mean; a bias is told the scales of its channels, and one that is not there is 0.
// CHECK-LABEL: func.func @coded
// CHECK: [[X:%.+]] = neuron.quantize %x {scale = 5.000000e-01 : f32, zero_point = 3 : i64} : (tensor<2x4xf32>) -> tensor<2x4xi8>
// CHECK: [[W:%.+]] = neuron.symm_per_channel %q
// CHECK: [[B:%.+]] = neuron.symm_per_channel %b, {{%.+}} {channel_dim = 0 : i64, adapter = array<i64: 9, 0, 3>} : (tensor<3xi32>, tensor<3xf32>) -> tensor<3xi32>
// CHECK: [[Y:%.+]] = neuron.fully_connected [[X]], [[W]], [[B]] {fuse = "NONE", scale = 2.500000e-01 : f32, zero_point = -7 : i64}
// CHECK: [[C:%.+]] = neuron.quant_constant %c {scale = 1.000000e+00 : f32, zero_point = 0 : i64}
// CHECK: neuron.add [[Y]], [[C]] {fuse = "NONE", scale = 1.000000e+00 : f32, zero_point = 1 : i64}
// CHECK: neuron.dequantize
func.func @coded(%x: tensor<2x4xf32>, %q: tensor<3x4xi8>, %b: tensor<3xi32>, %c: tensor<3xi8>) -> tensor<2x3xf32> {
  %0 = tfl.quantize %x {scale = 5.0e-01 : f32, zero_point = 3 : i64} : (tensor<2x4xf32>) -> tensor<2x4xi8>
  %1 = mllm.constant dense<[[0.5], [0.25], [1.0]]> : tensor<3x1xf32>
  %2 = tfl.pseudo_qconst %q, %1 {block_size = 0 : i64} : (tensor<3x4xi8>, tensor<3x1xf32>) -> tensor<3x4xi8>
  %3 = tfl.pseudo_qconst %b, %1 {block_size = 0 : i64} : (tensor<3xi32>, tensor<3x1xf32>) -> tensor<3xi32>
  %4 = tfl.fully_connected %0, %2, %3 {fused_activation_function = "NONE", keep_num_dims = true, asymmetric_quantize_inputs = false, scale = 2.5e-01 : f32, zero_point = -7 : i64} : (tensor<2x4xi8>, tensor<3x4xi8>, tensor<3xi32>) -> tensor<2x3xi8>
  %5 = tfl.pseudo_qconst %c, none {block_size = 0 : i64, scale = 1.0 : f32, zero_point = 0 : i64} : (tensor<3xi8>) -> tensor<3xi8>
  %6 = tfl.add %4, %5 {fused_activation_function = "NONE", scale = 1.0 : f32, zero_point = 1 : i64} : (tensor<2x3xi8>, tensor<3xi8>) -> tensor<2x3xi8>
  %7 = tfl.dequantize %6 : (tensor<2x3xi8>) -> tensor<2x3xf32>
  func.return %7 : tensor<2x3xf32>
}
