// RUN: mllm-opt %s -p fuse-quantized-linear | filecheck %s

// CHECK-LABEL: func.func @joins_codes_scales_and_biases
// CHECK: [[B:%.+]] = mllm.constant dense<[0.000000e+00, 0.000000e+00, 5.000000e+00]> : tensor<3xf32>
// CHECK: [[W:%.+]] = mllm.constant dense<{{\[\[}}1, 1], [1, 1], [2, 2]]> : tensor<3x2xi8>
// CHECK: [[T:%.+]] = mllm.constant dense<{{\[\[}}5.000000e-01], [5.000000e-01], [2.500000e-01]]> : tensor<3x1xf32>
// CHECK: [[Y:%.+]] = mllm.quantized_linear %x, %s, [[W]], [[T]] bias([[B]] : tensor<3xf32>) : {{.+}} -> tensor<1x3x3xf32>
// CHECK: mllm.slice [[Y]] {starts = #mllm.dims<"0", "0", "0">{{.*}}} : (tensor<1x3x3xf32>) -> tensor<1x3x2xf32>
// CHECK: mllm.slice [[Y]] {starts = #mllm.dims<"0", "0", "2">{{.*}}} : (tensor<1x3x3xf32>) -> tensor<1x3x1xf32>
// CHECK-NOT: mllm.quantized_linear
func.func @joins_codes_scales_and_biases(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %bb = mllm.constant dense<5.0> : tensor<1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb bias(%bb : tensor<1xf32>) : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @joins_blocks_and_zero_points
// CHECK: [[Z:%.+]] = mllm.constant dense<{{\[\[}}3, 3], [3, 3], [4, 4]]> : tensor<3x2xui4>
// CHECK: mllm.quantized_linear %x, %s, {{.+}} weight_zero([[Z]] : tensor<3x2xui4>) {block_size = 1 : i64}
// CHECK-NOT: mllm.quantized_linear
func.func @joins_blocks_and_zero_points(%x: tensor<1x3x2xi8>, %s: tensor<1x3x2xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xui4>
  %wb = mllm.constant dense<2> : tensor<1x2xui4>
  %ta = mllm.constant dense<0.5> : tensor<2x2xf16>
  %tb = mllm.constant dense<0.25> : tensor<1x2xf16>
  %za = mllm.constant dense<3> : tensor<2x2xui4>
  %zb = mllm.constant dense<4> : tensor<1x2xui4>
  %a = mllm.quantized_linear %x, %s, %wa, %ta weight_zero(%za : tensor<2x2xui4>) {block_size = 1 : i64} : (tensor<1x3x2xi8>, tensor<1x3x2xf32>, tensor<2x2xui4>, tensor<2x2xf16>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb weight_zero(%zb : tensor<1x2xui4>) {block_size = 1 : i64} : (tensor<1x3x2xi8>, tensor<1x3x2xf32>, tensor<1x2xui4>, tensor<1x2xf16>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_layers_apart
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.attention
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_layers_apart(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %y = mllm.attention %a, %a, %a {heads = 1 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : (tensor<1x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %y, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_products_of_other_codes
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_products_of_other_codes(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>, %u: tensor<1x3x2xi8>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %u, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_products_of_codes_on_another_scale
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_products_of_codes_on_another_scale(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>, %u: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %u, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_codes_of_other_types
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_codes_of_other_types(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi4>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi4>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_a_weight_without_zero_points
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_a_weight_without_zero_points(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %za = mllm.constant dense<3> : tensor<2x1xi8>
  %a = mllm.quantized_linear %x, %s, %wa, %ta weight_zero(%za : tensor<2x1xi8>) : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_blocks_of_another_size
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_blocks_of_another_size(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x2xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta {block_size = 1 : i64} : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_weights_with_one_scale
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_weights_with_one_scale(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %t = mllm.constant dense<0.5> : tensor<f32>
  %a = mllm.quantized_linear %x, %s, %wa, %t : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<f32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %t : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<f32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_a_weight_that_something_else_reads
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_a_weight_that_something_else_reads(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>, tensor<2x2xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %c = mllm.cast %wa : (tensor<2x2xi8>) -> tensor<2x2xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b, %c : tensor<1x3x2xf32>, tensor<1x3x1xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func.func @keeps_weights_that_are_computed
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_weights_that_are_computed(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>, %wb: tensor<1x2xi8>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_weights_whose_bytes_are_unknown
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_weights_whose_bytes_are_unknown(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.weight #mllm.blob<"sha256:0000000000000000000000000000000000000000000000000000000000000001", i8, [2, 2]> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @keeps_a_bias_that_is_given
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x2xf32>
// CHECK: mllm.quantized_linear {{.+}} -> tensor<1x3x1xf32>
func.func @keeps_a_bias_that_is_given(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>, %bb: tensor<1xf32>) -> (tensor<1x3x2xf32>, tensor<1x3x1xf32>) {
  %wa = mllm.constant dense<1> : tensor<2x2xi8>
  %wb = mllm.constant dense<2> : tensor<1x2xi8>
  %ta = mllm.constant dense<0.5> : tensor<2x1xf32>
  %tb = mllm.constant dense<0.25> : tensor<1x1xf32>
  %a = mllm.quantized_linear %x, %s, %wa, %ta : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<2x2xi8>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %b = mllm.quantized_linear %x, %s, %wb, %tb bias(%bb : tensor<1xf32>) : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<1x2xi8>, tensor<1x1xf32>) -> tensor<1x3x1xf32>
  func.return %a, %b : tensor<1x3x2xf32>, tensor<1x3x1xf32>
}
