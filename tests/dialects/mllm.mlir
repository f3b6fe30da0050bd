// RUN: mllm-opt %s | mllm-opt | filecheck %s

// One example of every op of the dialect, in its custom form.

mllm.pipeline @"meeting-vlm" {edges = [#mllm.edge<"projector" "features" from "vision" "last_hidden_state">], caches = [#mllm.cache<"decoder", key "past_key_values.{layer}.key", value "past_key_values.{layer}.value", out "present.{layer}.{kind}", layers 2>], bounds = [#mllm.bound<"past" <= 2048>], overlaps = [["vision", "decoder"]], banks = [#mllm.bank<"npu", bytes 8388608, alignment 262144 from 1048576, least 262144, contiguous>, #mllm.bank<"rest", alignment 64 from 1048576>]}

// CHECK: mllm.pipeline @"meeting-vlm"
// CHECK-SAME: #mllm.edge<"projector" "features" from "vision" "last_hidden_state">

func.func @constants() {
  %w = mllm.weight #mllm.blob<"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", f32, [16, 8]> {name = "a.weight"} : tensor<16x8xf32>
  %c = mllm.constant dense<[1, 2]> : tensor<2xi64>
  %i = mllm.iota {start = #mllm.dims<"past">, step = 1 : i64} : tensor<?xi64, #mllm.dims<"seq">>
  func.return
}

// CHECK: mllm.weight #mllm.blob<"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", f32, [16, 8]> {name = "a.weight"} : tensor<16x8xf32>

func.func @elementwise(%x: tensor<?x8xf32, #mllm.dims<"seq", "8">>, %y: tensor<8xf32>) {
  %0 = mllm.unary gelu %x : (tensor<?x8xf32, #mllm.dims<"seq", "8">>) -> tensor<?x8xf32, #mllm.dims<"seq", "8">>
  %1 = mllm.binary add %x, %y : (tensor<?x8xf32, #mllm.dims<"seq", "8">>, tensor<8xf32>) -> tensor<?x8xf32, #mllm.dims<"seq", "8">>
  %2 = mllm.compare le %x, %y : (tensor<?x8xf32, #mllm.dims<"seq", "8">>, tensor<8xf32>) -> tensor<?x8xi1, #mllm.dims<"seq", "8">>
  %3 = mllm.select %2, %x, %y : (tensor<?x8xi1, #mllm.dims<"seq", "8">>, tensor<?x8xf32, #mllm.dims<"seq", "8">>, tensor<8xf32>) -> tensor<?x8xf32, #mllm.dims<"seq", "8">>
  %4 = mllm.cast %2 : (tensor<?x8xi1, #mllm.dims<"seq", "8">>) -> tensor<?x8xi64, #mllm.dims<"seq", "8">>
  func.return
}

// CHECK: mllm.unary gelu %{{.*}} : (tensor<?x8xf32, #mllm.dims<"seq", "8">>) -> tensor<?x8xf32, #mllm.dims<"seq", "8">>

func.func @linear(%x: tensor<2x3x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>, %d: tensor<8x16xf32>, %ids: tensor<2x3xi64>, %e: tensor<8xf32>) {
  %0 = mllm.linear %x, %w, %b : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x3x16xf32>
  %1 = mllm.linear %x, %w : (tensor<2x3x8xf32>, tensor<16x8xf32>) -> tensor<2x3x16xf32>
  %2 = mllm.matmul %x, %d : (tensor<2x3x8xf32>, tensor<8x16xf32>) -> tensor<2x3x16xf32>
  %3 = mllm.embedding %w, %ids : (tensor<16x8xf32>, tensor<2x3xi64>) -> tensor<2x3x8xf32>
  %4 = mllm.gather %x, %ids {axis = 1 : i64} : (tensor<2x3x8xf32>, tensor<2x3xi64>) -> tensor<2x2x3x8xf32>
  %5 = mllm.gated_mlp silu %x, %w, %w, %d : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x3x8xf32>
  %6 = mllm.mlp gelu %x, %w, %d b1(%b : tensor<16xf32>) b2(%e : tensor<8xf32>) : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x3x8xf32>
  func.return
}

// CHECK: mllm.linear %{{.*}}, %{{.*}}, %{{.*}} : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x3x16xf32>

func.func @states(%x: tensor<2x3x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x3x4xf32>, %s: tensor<2x8x4xf32>) {
  %y, %last = mllm.selective_scan %x, %x, %a, %b, %b, %s : (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<8x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x8x4xf32>) -> (tensor<2x3x8xf32>, tensor<2x8x4xf32>)
  func.return
}

// CHECK: %{{.*}}, %{{.*}} = mllm.selective_scan

func.func @norm(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>) {
  %0 = mllm.layer_norm %x weight(%w : tensor<8xf32>) bias(%w : tensor<8xf32>) {epsilon = 1.0e-05 : f64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %1 = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %sum = mllm.cumsum %x {axis = 1 : i64, reverse = true} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %2 = mllm.softmax %x {axis = 2 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %3 = mllm.reduce mean %x {axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  func.return
}

// CHECK: mllm.layer_norm %{{.*}} weight(%{{.*}} : tensor<8xf32>) bias(%{{.*}} : tensor<8xf32>) {epsilon = {{.*}}}

func.func @attention(%q: tensor<2x3x8xf32>, %k: tensor<2x2x5x2xf32>, %m: tensor<2x5xi64>, %b: tensor<1x4x3x5xf32>, %p: tensor<2x3xi64>, %f: tensor<1xf32>) {
  %0 = mllm.attention %q, %k, %k key_mask(%m : tensor<2x5xi64>) bias(%b : tensor<1x4x3x5xf32>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64, causal = true, window = 4 : i64} : (tensor<2x3x8xf32>, tensor<2x2x5x2xf32>, tensor<2x2x5x2xf32>) -> tensor<2x3x8xf32>
  %1 = mllm.cross_attn %q, %k, %k {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : (tensor<2x3x8xf32>, tensor<2x2x5x2xf32>, tensor<2x2x5x2xf32>) -> tensor<2x3x8xf32>
  %2 = mllm.rope %q, %p, %f {heads = 4 : i64} : (tensor<2x3x8xf32>, tensor<2x3xi64>, tensor<1xf32>) -> tensor<2x3x8xf32>
  %3 = mllm.alibi {heads = 4 : i64} : tensor<1x4x3x5xf32>
  func.return
}

func.func @fused(%x: tensor<2x3x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>, %p: tensor<2x3xi64>, %f: tensor<1xf32>, %n: tensor<8xf32>, %d: tensor<8x16xf32>, %k: tensor<2x2x5x2xf32>, %m: tensor<2x8xi64>, %s: tensor<2x2xf16>) {
  %0, %1, %2 = mllm.qkv %x, %w bias(%b : tensor<16xf32>) rope(%p : tensor<2x3xi64>) inv_freq(%f : tensor<1xf32>) {heads = 4 : i64, kv_heads = 2 : i64, interleaved = true} : (tensor<2x3x8xf32>, tensor<16x8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>)
  %3, %4, %5 = mllm.cached_attention %0, %1, %2 past(%k, %k) key_mask(%m : tensor<2x8xi64>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64, causal = true, window = 4 : i64} : (tensor<2x3x8xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x2x5x2xf32>, tensor<2x2x5x2xf32>) -> (tensor<2x3x8xf32>, tensor<2x2x8x2xf32>, tensor<2x2x8x2xf32>)
  %6, %7 = mllm.residual_norm layer %x, %3 weight(%n : tensor<8xf32>) bias(%n : tensor<8xf32>) {epsilon = 0.5 : f64} : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3x8xf32>)
  %8 = mllm.norm_gated_mlp rms silu %6, %w, %w, %d weight(%n : tensor<8xf32>) {epsilon = 0.5 : f64} : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<2x3x8xf32>
  %9 = mllm.activated_linear gelu %8, %w, %b : (tensor<2x3x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x3x16xf32>
  %10, %11, %12 = mllm.cached_attention %0, %1, %2 past(%k, %k) k_scale(%s : tensor<2x2xf16>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64, cache_bits = 4 : i64} : (tensor<2x3x8xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x2x5x2xf32>, tensor<2x2x5x2xf32>) -> (tensor<2x3x8xf32>, tensor<2x2x8x2xf32>, tensor<2x2x8x2xf32>)
  func.return
}

// CHECK: mllm.attention %{{.*}} key_mask(%{{.*}} : tensor<2x5xi64>) bias(%{{.*}} : tensor<1x4x3x5xf32>) {heads = 4 : i64, kv_heads = 2 : i64,
// CHECK: mllm.cross_attn

func.func @vision(%i: tensor<2x3x8x8xf32>, %w: tensor<16x3x4x4xf32>, %b: tensor<16xf32>, %c: tensor<1x1x16xf32>, %p: tensor<1x5x16xf32>) {
  %0 = mllm.patch_embed %i, %w bias(%b : tensor<16xf32>) cls(%c : tensor<1x1x16xf32>) position(%p : tensor<1x5x16xf32>) {patch = 4 : i64} : (tensor<2x3x8x8xf32>, tensor<16x3x4x4xf32>) -> tensor<2x5x16xf32>
  %1 = mllm.conv %i, %w, %b {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<16x3x4x4xf32>, tensor<16xf32>) -> tensor<2x16x4x4xf32>
  %2 = mllm.pool average %i {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>
  %3 = mllm.resize linear half_pixel %i {scales = array<f64>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf32>
  func.return
}

// CHECK: mllm.patch_embed
// CHECK: mllm.resize linear half_pixel

func.func @shape(%x: tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>) {
  %0 = mllm.reshape %x : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>) -> tensor<?x8xf32, #mllm.dims<"2 * seq", "8">>
  %1 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>) -> tensor<2x8x?xf32, #mllm.dims<"2", "8", "seq">>
  %2 = mllm.concat %x, %x {axis = 1 : i64} : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>, tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>) -> tensor<2x?x8xf32, #mllm.dims<"2", "2 * seq", "8">>
  %3 = mllm.slice %x {starts = #mllm.dims<"0", "seq - 1", "0">, steps = array<i64: 1, 1, 1>} : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>) -> tensor<2x1x8xf32>
  %4 = mllm.broadcast %3 : (tensor<2x1x8xf32>) -> tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>
  %5 = mllm.pad %3 {before = array<i64: 0, 1, 0>, after = array<i64: 0, 1, 0>, value = 0.0 : f64} : (tensor<2x1x8xf32>) -> tensor<2x3x8xf32>
  func.return
}

// CHECK: mllm.slice

func.func @cache(%past: tensor<2x3x?x4xf32, #mllm.dims<"2", "3", "past", "4">>, %new: tensor<2x5x12xf32>, %t: tensor<2x2xi64>, %pages: tensor<9x3x16x4xf32>) {
  %0 = mllm.kv_append %past, %new {kv_heads = 3 : i64} : (tensor<2x3x?x4xf32, #mllm.dims<"2", "3", "past", "4">>, tensor<2x5x12xf32>) -> tensor<2x3x?x4xf32, #mllm.dims<"2", "3", "past + 5", "4">>
  %1 = mllm.kv_view %pages, %t : (tensor<9x3x16x4xf32>, tensor<2x2xi64>) -> tensor<2x3x20x4xf32>
  func.return
}

// CHECK: mllm.kv_append

func.func @tokens(%x: tensor<2x8x12xf32>) {
  %0 = mllm.token_importance %x, %x {heads = 3 : i64} : (tensor<2x8x12xf32>, tensor<2x8x12xf32>) -> tensor<2x8xf32>
  %1, %2 = mllm.top_k %0 {axis = 1 : i64, by_index = true} : (tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xi64>)
  %3 = mllm.token_gather %x, %2 : (tensor<2x8x12xf32>, tensor<2x4xi64>) -> tensor<2x4x12xf32>
  func.return
}

// CHECK: mllm.token_gather

func.func @quant(%x: tensor<4x8xf32>, %s: tensor<4x1xf32>, %z: tensor<4x1xi8>, %b: tensor<4x2xf32>, %r: tensor<4xf32>) {
  %0 = mllm.quantize %x, %s, %z : (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xi8>) -> tensor<4x8xi8>
  %1 = mllm.dequantize %0, %s, %z : (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi8>) -> tensor<4x8xf32>
  %2 = mllm.quantize %x, %b {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<4x8xi4>
  %3 = mllm.dequantize %2, %b {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %4, %5, %6 = mllm.dynamic_quantize %x : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<f32>, tensor<ui8>)
  %7, %8 = mllm.dynamic_quantize %x {axis = 1 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  %9 = mllm.quantized_linear %4, %5, %0, %s x_zero(%6 : tensor<ui8>) weight_zero(%z : tensor<4x1xi8>) bias(%r : tensor<4xf32>) : (tensor<4x8xui8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<4x4xf32>
  %10 = mllm.quantized_linear %7, %8, %2, %b {block_size = 4 : i64} : (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %11, %12, %13 = mllm.dynamic_quantize %x {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<4x2xf32>, tensor<4x2xui8>)
  %14 = mllm.quantized_linear %11, %12, %2, %b x_zero(%13 : tensor<4x2xui8>) {block_size = 4 : i64} : (tensor<4x8xui8>, tensor<4x2xf32>, tensor<4x8xi4>, tensor<4x2xf32>) -> tensor<4x4xf32>
  func.return
}
func.func @integers(%a: tensor<4x8xui8>, %b: tensor<8x4xi8>, %z: tensor<ui8>, %x: tensor<1x3x4x4xui8>, %w: tensor<2x3x2x2xi8>) {
  %0 = mllm.integer_matmul %a, %b a_zero(%z : tensor<ui8>) : (tensor<4x8xui8>, tensor<8x4xi8>) -> tensor<4x4xi32>
  %1 = mllm.integer_conv %x, %w x_zero(%z : tensor<ui8>) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xui8>, tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xi32>
  func.return
}

// CHECK: mllm.integer_conv
