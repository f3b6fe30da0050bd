// RUN: not mllm-opt %s -p infer-shapes 2>&1 | filecheck %s

// CHECK: /fc/MatMul: error: 'onnx.MatMul' needs equal dimensions, but they are 8 and 9 [MLC-I015]
func.func @inner_extents_differ(%x: tensor<2x8xf32>, %w: tensor<9x4xf32>) -> !onnx.unknown attributes {onnx.opset = {"" = 17}} {
  %y = onnx.MatMul %x, %w : (tensor<2x8xf32>, tensor<9x4xf32>) -> (!onnx.unknown) loc("/fc/MatMul")
  func.return %y : !onnx.unknown
}
