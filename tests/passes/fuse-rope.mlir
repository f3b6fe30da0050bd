// RUN: mllm-opt %s -p fuse-rope | filecheck %s

// CHECK-LABEL: func.func @turns_queries_and_keys_where_they_are_made
// CHECK: [[P:%.+]] = mllm.reshape
// CHECK: [[Q:%.+]], [[K:%.+]], [[V:%.+]] = mllm.qkv %x, %w rope([[P]] : tensor<1x3xi64>) inv_freq(%f : tensor<1xf32>) {heads = 2 : i64, kv_heads = 1 : i64, interleaved = true}
// CHECK-NEXT: func.return [[Q]], [[K]], [[V]]
func.func @turns_queries_and_keys_where_they_are_made(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %n: tensor<3xi64>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %p = mllm.reshape %n : (tensor<3xi64>) -> tensor<1x3xi64>
  %0 = mllm.rope %q, %p, %f {heads = 2 : i64, interleaved = true} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %p, %f {heads = 1 : i64, interleaved = true} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1, %v : tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_keys_that_are_read_as_they_were
// CHECK-COUNT-2: mllm.rope
func.func @keeps_keys_that_are_read_as_they_were(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %p: tensor<1x3xi64>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %0 = mllm.rope %q, %p, %f {heads = 2 : i64} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %p, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1, %k : tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_keys_at_other_positions
// CHECK-COUNT-2: mllm.rope
func.func @keeps_keys_at_other_positions(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %p: tensor<1x3xi64>, %o: tensor<1x3xi64>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %0 = mllm.rope %q, %p, %f {heads = 2 : i64} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %o, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1 : tensor<1x3x4xf32>, tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_pairs_that_are_laid_out_otherwise
// CHECK-COUNT-2: mllm.rope
func.func @keeps_pairs_that_are_laid_out_otherwise(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %p: tensor<1x3xi64>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %0 = mllm.rope %q, %p, %f {heads = 2 : i64, interleaved = true} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %p, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1 : tensor<1x3x4xf32>, tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_other_numbers_of_heads
// CHECK-COUNT-2: mllm.rope
func.func @keeps_other_numbers_of_heads(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %p: tensor<1x3xi64>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %0 = mllm.rope %q, %p, %f {heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %p, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1 : tensor<1x3x4xf32>, tensor<1x3x2xf32>
}

// CHECK-LABEL: func.func @keeps_positions_that_come_from_the_product
// CHECK-COUNT-2: mllm.rope
func.func @keeps_positions_that_come_from_the_product(%x: tensor<1x3x4xf32>, %w: tensor<8x4xf32>, %f: tensor<1xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>) {
  %q, %k, %v = mllm.qkv %x, %w {heads = 2 : i64, kv_heads = 1 : i64} : (tensor<1x3x4xf32>, tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x2xf32>, tensor<1x3x2xf32>)
  %s = mllm.slice %v {starts = #mllm.dims<"0", "0", "0">, steps = array<i64: 1, 1, 1>} : (tensor<1x3x2xf32>) -> tensor<1x3x1xf32>
  %t = mllm.cast %s : (tensor<1x3x1xf32>) -> tensor<1x3x1xi64>
  %p = mllm.reshape %t : (tensor<1x3x1xi64>) -> tensor<1x3xi64>
  %0 = mllm.rope %q, %p, %f {heads = 2 : i64} : (tensor<1x3x4xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
  %1 = mllm.rope %k, %p, %f {heads = 1 : i64} : (tensor<1x3x2xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x2xf32>
  func.return %0, %1 : tensor<1x3x4xf32>, tensor<1x3x2xf32>
}
