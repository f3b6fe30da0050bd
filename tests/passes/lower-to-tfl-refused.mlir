// RUN: not mllm-opt %s -p lower-to-tfl 2>&1 | filecheck %s

// CHECK: 'mllm.quantized_linear' has no home on 'tflite': its rows have no zero points [MLC-R001] (run dynamic-rows before)
func.func @rows_without_zero_points(%x: tensor<4x32xf32>, %q: tensor<8x32xi8>) -> tensor<4x8xf32> {
  %c, %s = mllm.dynamic_quantize %x {axis = 1 : i64} : (tensor<4x32xf32>) -> (tensor<4x32xi8>, tensor<4x1xf32>)
  %t = mllm.constant dense<0.5> : tensor<f32>
  %y = mllm.quantized_linear %c, %s, %q, %t : (tensor<4x32xi8>, tensor<4x1xf32>, tensor<8x32xi8>, tensor<f32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
