// RUN: not mllm-opt %s -p host-first 2>&1 | filecheck %s

// CHECK: /layer/Exp: error: 'tfl.exp' has no home on 'neuron': it is left to the CPU between operators of the NPU [MLC-R001]
func.func @cuts_the_network(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tfl.mul %x, %x {fused_activation_function = "NONE"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = tfl.exp %0 : (tensor<4xf32>) -> tensor<4xf32> loc("/layer/Exp")
  %2 = tfl.floor %1 : (tensor<4xf32>) -> tensor<4xf32>
  %3 = tfl.mul %2, %x {fused_activation_function = "NONE"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
