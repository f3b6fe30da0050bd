// RUN: mllm-opt %s -p lower-to-rknn | filecheck %s
// RUN: mllm-opt %s -p 'lower-to-rknn{soc=rk3576}' | filecheck %s --check-prefix=CHIP

// CHIP: rknn.build = #rknn.build<"rk3576", "f16", "channel">
// CHECK: rknn.build = #rknn.build<"rk3588", "f16", "channel">

// A square as a product and a quotient: the toolkit makes one norm of exactly these.
// CHECK-LABEL: func.func @norm
func.func @norm(%x: tensor<1x4x8xf32>, %w: tensor<8xf32>) -> tensor<1x4x8xf32> {
  // CHECK: [[SQUARE:%.+]] = rknn.Mul %x, %x
  // CHECK: [[MEAN:%.+]] = rknn.ReduceMean [[SQUARE]], {{%.+}} {keepdims = 1
  // CHECK: [[SUM:%.+]] = rknn.Add [[MEAN]]
  // CHECK: [[ROOT:%.+]] = rknn.Sqrt [[SUM]]
  // CHECK: [[NORMED:%.+]] = rknn.Div %x, [[ROOT]]
  // CHECK: rknn.Mul [[NORMED]], %w
  %y = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : (tensor<1x4x8xf32>, tensor<8xf32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

// Patches are rows of a product: a convolution by steps of a patch is no operator of the chip.
// CHECK-LABEL: func.func @patches
func.func @patches(%x: tensor<1x3x28x28xf32>, %w: tensor<8x3x14x14xf32>) -> tensor<1x4x8xf32> {
  // CHECK-NOT: rknn.Conv
  // CHECK: [[TILES:%.+]] = rknn.Transpose %{{.+}} {perm = array<i64: 0, 2, 1, 3>}
  // CHECK: [[ROWS:%.+]] = rknn.Reshape %{{.+}} -> (tensor<1x4x588xf32>)
  // CHECK: rknn.MatMul [[ROWS]], {{%.+}} : (tensor<1x4x588xf32>, tensor<588x8xf32>)
  %y = mllm.patch_embed %x, %w {patch = 14 : i64} : (tensor<1x3x28x28xf32>, tensor<8x3x14x14xf32>) -> tensor<1x4x8xf32>
  func.return %y : tensor<1x4x8xf32>
}

// The scale stands behind the product, queries that share keys are rows of one matrix.
// CHECK-LABEL: func.func @attends
func.func @attends(%q: tensor<1x2x16xf32>, %k: tensor<1x1x2x8xf32>, %v: tensor<1x1x2x8xf32>) -> tensor<1x2x16xf32> {
  // CHECK: [[SCORES:%.+]] = rknn.MatMul {{.+}} -> (tensor<1x1x4x2xf32>)
  // CHECK: [[SCALED:%.+]] = rknn.Mul [[SCORES]], {{%.+}} :
  // CHECK: [[MASKED:%.+]] = rknn.Add [[SCALED]], {{%.+}} :
  // CHECK: [[WEIGHTS:%.+]] = rknn.Softmax [[MASKED]] {axis = -1
  // CHECK: rknn.MatMul [[WEIGHTS]]
  %y = mllm.attention %q, %k, %v {heads = 2 : i64, kv_heads = 1 : i64, scale = 0.5 : f64, causal = true} : (tensor<1x2x16xf32>, tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>) -> tensor<1x2x16xf32>
  func.return %y : tensor<1x2x16xf32>
}

// Codes stay with those who made them: the toolkit is given what they stand for.
// CHECK-LABEL: func.func @codes
func.func @codes(%x: tensor<1x4x2xf32>) -> tensor<1x4x2xf32> {
  // CHECK-NOT: mllm.dequantize
  // CHECK: rknn.MatMul %x
  %q = mllm.constant dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>
  %s = mllm.constant dense<0.5> : tensor<2x1xf32>
  %w = mllm.dequantize %q, %s : (tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = mllm.linear %x, %w : (tensor<1x4x2xf32>, tensor<2x2xf32>) -> tensor<1x4x2xf32>
  func.return %y : tensor<1x4x2xf32>
}

// A turn that moves only axes of one element is no transpose.
// CHECK-LABEL: func.func @turned
func.func @turned(%x: tensor<1x4x8xf32>) -> tensor<4x1x8xf32> {
  // CHECK-NOT: rknn.Transpose
  // CHECK: rknn.Reshape %x
  %a = mllm.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<1x4x8xf32>) -> tensor<4x1x8xf32>
  func.return %a : tensor<4x1x8xf32>
}
