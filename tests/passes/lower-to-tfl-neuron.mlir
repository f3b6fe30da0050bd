// RUN: mllm-opt %s -p 'lower-to-tfl{target="neuron"}' | filecheck %s

// What MediaTek's plugin lacks is written in operators that it has.
// CHECK-LABEL: func.func @other_operators
// CHECK: [[NEG:%.+]] = tfl.mul %x, {{%.+}}
// CHECK: [[M:%.+]] = tfl.cast %c
// CHECK: [[A:%.+]] = tfl.mul %x, [[M]]
// CHECK: [[R:%.+]] = tfl.sub {{%.+}}, [[M]]
// CHECK: [[B:%.+]] = tfl.mul [[NEG]], [[R]]
// CHECK: tfl.add [[A]], [[B]]
// CHECK: tfl.mul %s
// CHECK: [[P:%.+]] = tfl.strided_slice %x
// CHECK: tfl.reshape [[P]]
func.func @other_operators(%x: tensor<2x4xf32>, %c: tensor<2x4xi1>, %s: tensor<1x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>) {
  %0 = mllm.unary neg %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = mllm.select %c, %x, %0 : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %2 = mllm.broadcast %s : (tensor<1x4xf32>) -> tensor<2x4xf32>
  %3 = mllm.constant dense<-1> : tensor<i64>
  %4 = mllm.gather %x, %3 {axis = 0 : i64} : (tensor<2x4xf32>, tensor<i64>) -> tensor<4xf32>
  func.return %1, %2, %4 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>
}

// Cosines and sines are rows of tables, as long as the keys; masks are numbers that a half has.
// CHECK-LABEL: func.func @positions
// CHECK: mllm.constant dense<-1.000000e+04> : tensor<f32>
// CHECK-NOT: tfl.cos
// CHECK: tfl.gather {{%.+}}, {{%.+}} {axis = 0 : i64, batch_dims = 0 : i64} : (tensor<5x1x2xf32>, tensor<1x3xi32>) -> tensor<1x3x1x2xf32>
// CHECK: tfl.gather {{%.+}}, {{%.+}} {axis = 0 : i64, batch_dims = 0 : i64} : (tensor<5x1x2xf32>, tensor<1x3xi32>) -> tensor<1x3x1x2xf32>
func.func @positions(%x: tensor<1x3x4xf32>, %p: tensor<1x3xi64>, %k: tensor<1x1x5x4xf32>, %m: tensor<1x5xi64>) -> tensor<1x3x4xf32> {
  %0 = mllm.constant dense<[1.0, 0.5]> : tensor<2xf32>
  %1 = mllm.rope %x, %p, %0 {heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<2xf32>) -> tensor<1x3x4xf32>
  %2 = mllm.attention %1, %k, %k key_mask(%m : tensor<1x5xi64>) {heads = 1 : i64, kv_heads = 1 : i64, scale = 0.5 : f64, causal = true} : (tensor<1x3x4xf32>, tensor<1x1x5x4xf32>, tensor<1x1x5x4xf32>) -> tensor<1x3x4xf32>
  func.return %2 : tensor<1x3x4xf32>
}

