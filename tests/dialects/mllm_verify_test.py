"""Each numbered constraint of each `mllm` op: the smallest IR that breaks it, and the line."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import OPS
from mllm_compiler.dialects.verify import verify
from mllm_compiler.errors import CompileError

WHILE_BUILDING = {("mllm.weight", 1), ("mllm.constant", 2)}
"""Constraints that the custom form cannot break, since it says each fact once."""

# (op and constraint, types of %0, %1, .., the op)
BROKEN = """
unary 1 | 2x8xf32 | mllm.unary exp %0 : (tensor<2x8xf32>) -> tensor<2x7xf32>
unary 2 | 8xi64 | mllm.unary exp %0 : (tensor<8xi64>) -> tensor<8xi64>
unary 2 | 8xf32 | mllm.unary not %0 : (tensor<8xf32>) -> tensor<8xf32>
unary 3 | 8xf32 | mllm.unary isnan %0 : (tensor<8xf32>) -> tensor<8xf32>
binary 1 | 8xf32, 8xf64 | mllm.binary add %0, %1 : (tensor<8xf32>, tensor<8xf64>) -> tensor<8xf32>
binary 2 | 8xf32, 7xf32 | mllm.binary add %0, %1 : (tensor<8xf32>, tensor<7xf32>) -> tensor<8xf32>
binary 2 | 8xf32, 1xf32 | mllm.binary add %0, %1 : (tensor<8xf32>, tensor<1xf32>) -> tensor<1xf32>
binary 3 | 8xf32, 8xf32 | mllm.binary xor %0, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
compare 1 | 8xf32, 8xf32 | mllm.compare lt %0, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
compare 2 | 8xf32, 3xf32 | mllm.compare lt %0, %1 : (tensor<8xf32>, tensor<3xf32>) -> tensor<8xi1>
select 1 | 8xf32, 8xf32 | mllm.select %0, %0, %1 : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
select 2 | 8xi1, 8xf32 | mllm.select %0, %1, %1 : (tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) -> tensor<2xf32>
cast 1 | 8xf32 | mllm.cast %0 : (tensor<8xf32>) -> tensor<7xi64>
linear 1 | 2x8xf32, 4x7xf32 | mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x7xf32>) -> tensor<2x4xf32>
linear 2 | 2x8xf32, 4x8xf32, 8xf32 | mllm.linear %0, %1, %2 : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<2x4xf32>
linear 3 | 2x8xf32, 4x8xf32 | mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
linear 4 | 2x8xi64, 4x8xi64 | mllm.linear %0, %1 : (tensor<2x8xi64>, tensor<4x8xi64>) -> tensor<2x4xi64>
matmul 1 | 2x8xf32, 7x4xf32 | mllm.matmul %0, %1 : (tensor<2x8xf32>, tensor<7x4xf32>) -> tensor<2x4xf32>
matmul 2 | 2x8xf32, 8x4xf32 | mllm.matmul %0, %1 : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<4x2xf32>
matmul 3 | 2x8xf32, 8x4xf64 | mllm.matmul %0, %1 : (tensor<2x8xf32>, tensor<8x4xf64>) -> tensor<2x4xf32>
embedding 1 | 9x4x2xf32, 3xi64 | mllm.embedding %0, %1 : (tensor<9x4x2xf32>, tensor<3xi64>) -> tensor<3x4xf32>
embedding 2 | 9x4xf32, 3xf32 | mllm.embedding %0, %1 : (tensor<9x4xf32>, tensor<3xf32>) -> tensor<3x4xf32>
embedding 3 | 9x4xf32, 3xi64 | mllm.embedding %0, %1 : (tensor<9x4xf32>, tensor<3xi64>) -> tensor<3x9xf32>
gather 1 | 9x4xf32, 3xi64 | mllm.gather %0, %1 {axis = 2 : i64} : (tensor<9x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
gather 2 | 9x4xf32, 3xf32 | mllm.gather %0, %1 {axis = 0 : i64} : (tensor<9x4xf32>, tensor<3xf32>) -> tensor<3x4xf32>
gather 3 | 9x4xf32, 3xi64 | mllm.gather %0, %1 {axis = 1 : i64} : (tensor<9x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
gated_mlp 1 | 2x8xf32, 6x8xf32, 5x8xf32, 8x6xf32 | mllm.gated_mlp silu %0, %1, %2, %3 : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<5x8xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
gated_mlp 2 | 2x8xf32, 6x8xf32, 8x5xf32 | mllm.gated_mlp silu %0, %1, %1, %2 : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<2x8xf32>
gated_mlp 3 | 2x8xf32, 6x8xf32, 8x6xf32 | mllm.gated_mlp silu %0, %1, %1, %2 : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<2x6xf32>
gated_mlp 4 | 2x8xf32, 6x8xf64, 8x6xf32 | mllm.gated_mlp silu %0, %1, %1, %2 : (tensor<2x8xf32>, tensor<6x8xf64>, tensor<6x8xf64>, tensor<8x6xf32>) -> tensor<2x8xf32>
mlp 1 | 2x8xf32, 6x7xf32, 8x6xf32 | mllm.mlp relu %0, %1, %2 : (tensor<2x8xf32>, tensor<6x7xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
mlp 2 | 2x8xf32, 6x8xf32, 8x6xf32, 6xf32 | mllm.mlp relu %0, %1, %2 b2(%3 : tensor<6xf32>) : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
mlp 3 | 2x8xf32, 6x8xf32, 8x6xf32 | mllm.mlp relu %0, %1, %2 : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<1x8xf32>
mlp 4 | 2x8xf32, 6x8xf32, 8x6xf64 | mllm.mlp relu %0, %1, %2 : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<8x6xf64>) -> tensor<2x8xf32>
layer_norm 1 | 2x8xf32, 2xf32 | mllm.layer_norm %0 weight(%1 : tensor<2xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
layer_norm 2 | 2x8xf32 | mllm.layer_norm %0 {epsilon = -1.0 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
layer_norm 3 | 2x8xf32 | mllm.layer_norm %0 {epsilon = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<8x2xf32>
rms_norm 1 | 2x8xf32, 7xf32 | mllm.rms_norm %0, %1 {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<7xf32>) -> tensor<2x8xf32>
rms_norm 2 | 2x8xf32, 8xf32 | mllm.rms_norm %0, %1 {epsilon = -1.0 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
rms_norm 3 | 2x8xi64, 8xi64 | mllm.rms_norm %0, %1 {epsilon = 1.0 : f64} : (tensor<2x8xi64>, tensor<8xi64>) -> tensor<2x8xi64>
softmax 1 | 2x8xf32 | mllm.softmax %0 {axis = 2 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
softmax 2 | 2x8xf32 | mllm.softmax %0 {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x1xf32>
cumsum 1 | 2x8xf32 | mllm.cumsum %0 {axis = 2 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
cumsum 2 | 2x8xf32 | mllm.cumsum %0 {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x7xf32>
cumsum 2 | 2x8xi1 | mllm.cumsum %0 {axis = 1 : i64} : (tensor<2x8xi1>) -> tensor<2x8xi1>
selective_scan 1 | 1x5x6xf32, 1x4x6xf32, 6x4xf32, 1x5x4xf32, 1x6x4xf32 | mllm.selective_scan %0, %1, %2, %3, %3, %4 : (tensor<1x5x6xf32>, tensor<1x4x6xf32>, tensor<6x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x6x4xf32>) -> (tensor<1x5x6xf32>, tensor<1x6x4xf32>)
selective_scan 2 | 1x5x6xf32, 1x5x6xf32, 4x6xf32, 1x5x4xf32, 1x6x4xf32 | mllm.selective_scan %0, %1, %2, %3, %3, %4 : (tensor<1x5x6xf32>, tensor<1x5x6xf32>, tensor<4x6xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x6x4xf32>) -> (tensor<1x5x6xf32>, tensor<1x6x4xf32>)
selective_scan 3 | 1x5x6xf32, 1x5x6xf32, 6x4xf32, 1x5x3xf32, 1x6x4xf32 | mllm.selective_scan %0, %1, %2, %3, %3, %4 : (tensor<1x5x6xf32>, tensor<1x5x6xf32>, tensor<6x4xf32>, tensor<1x5x3xf32>, tensor<1x5x3xf32>, tensor<1x6x4xf32>) -> (tensor<1x5x6xf32>, tensor<1x6x4xf32>)
selective_scan 4 | 1x5x6xf32, 1x5x6xf32, 6x4xf32, 1x5x4xf32, 1x4x6xf32 | mllm.selective_scan %0, %1, %2, %3, %3, %4 : (tensor<1x5x6xf32>, tensor<1x5x6xf32>, tensor<6x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x4x6xf32>) -> (tensor<1x5x6xf32>, tensor<1x6x4xf32>)
selective_scan 5 | 1x5x6xf32, 1x5x6xf32, 6x4xf32, 1x5x4xf32, 1x6x4xf32 | mllm.selective_scan %0, %1, %2, %3, %3, %4 : (tensor<1x5x6xf32>, tensor<1x5x6xf32>, tensor<6x4xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x6x4xf32>) -> (tensor<1x5x6xf32>, tensor<1x6x3xf32>)
reduce 1 | 2x8xf32 | mllm.reduce sum %0 {axes = array<i64: 1, 0>, keepdims = true} : (tensor<2x8xf32>) -> tensor<1x1xf32>
reduce 2 | 2x8xf32 | mllm.reduce sum %0 {axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2xf32>
reduce 3 | 2x8xf32 | mllm.reduce sum %0 {axes = array<i64: 1>, keepdims = false} : (tensor<2x8xf32>) -> tensor<2xf64>
attention 1 | 1x3x8xf32 | mllm.attention %0, %0, %0 {heads = 4 : i64, kv_heads = 3 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
attention 2 | 3x8xf32, 1x3x8xf32 | mllm.attention %0, %1, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
attention 3 | 1x3x8xf32, 1x3xf32 | mllm.attention %0, %1, %0 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
attention 4 | 1x3x8xf32, 1x5x8xf32 | mllm.attention %0, %0, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x5x8xf32>) -> tensor<1x3x8xf32>
attention 5 | 1x3x8xf32, 1x3xf32 | mllm.attention %0, %0, %0 key_mask(%1 : tensor<1x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
attention 6 | 1x3x8xf32 | mllm.attention %0, %0, %0 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x4xf32>
attention 7 | 1x3x8xf32, 3x3xf32 | mllm.attention %0, %0, %0 bias(%1 : tensor<3x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
attention 8 | 1x3x8xf32 | mllm.attention %0, %0, %0 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64, window = 2 : i64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
cross_attn 1 | 1x3x8xf32 | mllm.cross_attn %0, %0, %0 {heads = 4 : i64, kv_heads = 0 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
cross_attn 2 | 1x3x7xf32, 1x3x8xf32 | mllm.cross_attn %0, %1, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x7xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
cross_attn 3 | 1x3x8xf32, 1x3x7xf32 | mllm.cross_attn %0, %0, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x7xf32>) -> tensor<1x3x8xf32>
cross_attn 4 | 1x3x8xf32, 2x3x8xf32 | mllm.cross_attn %0, %1, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<1x3x8xf32>
cross_attn 5 | 1x3x8xf32, 1x4xi64 | mllm.cross_attn %0, %0, %0 key_mask(%1 : tensor<1x4xi64>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
cross_attn 6 | 1x3x8xf32, 1x3x8xf64 | mllm.cross_attn %0, %1, %1 {heads = 4 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x8xf64>, tensor<1x3x8xf64>) -> tensor<1x3x8xf32>
rope 1 | 1x3x9xf32, 1x3xi64, 1xf32 | mllm.rope %0, %1, %2 {heads = 4 : i64} : (tensor<1x3x9xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x9xf32>
rope 2 | 1x3x8xf32, 1x4xi64, 1xf32 | mllm.rope %0, %1, %2 {heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<1x4xi64>, tensor<1xf32>) -> tensor<1x3x8xf32>
rope 3 | 1x3x8xf32, 1x3xi64, 2xf32 | mllm.rope %0, %1, %2 {heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<1x3xi64>, tensor<2xf32>) -> tensor<1x3x8xf32>
rope 4 | 1x3x8xf32, 1x3xi64, 1xf32 | mllm.rope %0, %1, %2 {heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<1x3xi64>, tensor<1xf32>) -> tensor<1x3x4xf32>
alibi 1 | | mllm.alibi {heads = 0 : i64} : tensor<1x0x3x5xf32>
alibi 2 | | mllm.alibi {heads = 4 : i64} : tensor<1x3x3x5xf32>
qkv 1 | 1x3x8xf32, 24x8xf32 | mllm.qkv %0, %1 {heads = 4 : i64, kv_heads = 3 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
qkv 2 | 1x3x8xf32, 24x7xf32 | mllm.qkv %0, %1 {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x7xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
qkv 2 | 1x3x8xf32, 24x8xf32, 8xf32 | mllm.qkv %0, %1 bias(%2 : tensor<8xf32>) {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
qkv 3 | 1x3x8xf32, 24x8xf32 | mllm.qkv %0, %1 {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x4xf32>)
qkv 3 | 1x3x8xf32, 20x8xf32 | mllm.qkv %0, %1 {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<20x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x8xf32>)
qkv 4 | 1x3x8xf32, 24x8xf32, 1x3xi64 | mllm.qkv %0, %1 rope(%2 : tensor<1x3xi64>) {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
qkv 4 | 1x3x8xf32, 24x8xf32, 1x3xi64, 2xf32 | mllm.qkv %0, %1 rope(%2 : tensor<1x3xi64>) inv_freq(%3 : tensor<2xf32>) {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
qkv 5 | 1x3x8xf32, 24x8xf64 | mllm.qkv %0, %1 {heads = 4 : i64, kv_heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<24x8xf64>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>)
cached_attention 1 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 3 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 2 | 1x4x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x4x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x4x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 3 | 1x3x8xf32, 1x3x4xf32, 1x2x5x3xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x3xf32>, tensor<1x2x8x3xf32>)
cached_attention 3 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 1x2x4x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %3) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x4x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 4 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>)
cached_attention 5 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 1x5xi64 | mllm.cached_attention %0, %1, %1 past(%2, %2) key_mask(%3 : tensor<1x5xi64>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 5 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 3x8xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) bias(%3 : tensor<3x8xf32>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 6 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x4xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 6 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf64 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf64>, tensor<1x2x5x2xf64>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf64>, tensor<1x2x8x2xf64>)
cached_attention 7 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, window = 2 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, cache_bits = 8 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 2x2xf16 | mllm.cached_attention %0, %1, %1 past(%2, %2) k_scale(%3 : tensor<2x2xf16>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 2x2xf16 | mllm.cached_attention %0, %1, %1 past(%2, %2) k_scale(%3 : tensor<2x2xf16>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, cache_bits = 2 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 2x2xf16 | mllm.cached_attention %0, %1, %1 past(%2, %2) k_scale(%3 : tensor<2x2xf16>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, cache_bits = 16 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 2x2xf32 | mllm.cached_attention %0, %1, %1 past(%2, %2) k_scale(%3 : tensor<2x2xf32>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, cache_bits = 8 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
cached_attention 8 | 1x3x8xf32, 1x3x4xf32, 1x2x5x2xf32, 2x4xf16 | mllm.cached_attention %0, %1, %1 past(%2, %2) k_scale(%3 : tensor<2x4xf16>) {heads = 4 : i64, kv_heads = 2 : i64, scale = 1.0 : f64, cache_bits = 4 : i64} : (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x2x5x2xf32>, tensor<1x2x5x2xf32>) -> (tensor<1x3x8xf32>, tensor<1x2x8x2xf32>, tensor<1x2x8x2xf32>)
residual_norm 1 | 2x8xf32, 8xf32 | mllm.residual_norm rms %0, %1 weight(%1 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 1 | 2x8xf32, 8xf32 | mllm.residual_norm rms %0, %0 weight(%1 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x4xf32>)
residual_norm 2 | 2x8xf32 | mllm.residual_norm rms %0, %0 {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 2 | 2x8xf32, 7xf32 | mllm.residual_norm layer %0, %0 weight(%1 : tensor<7xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 2 | 2x8xf32, 8xf32 | mllm.residual_norm rms %0, %0 weight(%1 : tensor<8xf32>) bias(%1 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 3 | 2x8xf32, 8xf32 | mllm.residual_norm rms %0, %0 weight(%1 : tensor<8xf32>) {epsilon = -1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 4 | 2x8xf32, 8xf32, 2x8xf64 | mllm.residual_norm rms %0, %2 weight(%1 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf64>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
residual_norm 4 | 2x8xf32, 8xf64 | mllm.residual_norm rms %0, %0 weight(%1 : tensor<8xf64>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
norm_gated_mlp 1 | 2x8xf32, 6x7xf32, 8x6xf32, 8xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 weight(%3 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<6x7xf32>, tensor<6x7xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
norm_gated_mlp 1 | 2x8xf32, 6x8xf32, 8x5xf32, 8xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 weight(%3 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<2x8xf32>
norm_gated_mlp 2 | 2x8xf32, 6x8xf32, 8x6xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
norm_gated_mlp 3 | 2x8xf32, 6x8xf32, 8x6xf32, 8xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 weight(%3 : tensor<8xf32>) {epsilon = -1.0 : f64} : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<2x8xf32>
norm_gated_mlp 4 | 2x8xf32, 6x8xf32, 8x6xf32, 8xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 weight(%3 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<2x6xf32>
norm_gated_mlp 5 | 2x8xf32, 6x8xf32, 8x6xf64, 8xf32 | mllm.norm_gated_mlp rms silu %0, %1, %1, %2 weight(%3 : tensor<8xf32>) {epsilon = 1.0 : f64} : (tensor<2x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xf64>) -> tensor<2x8xf32>
activated_linear 1 | 2x8xf32, 4x7xf32 | mllm.activated_linear relu %0, %1 : (tensor<2x8xf32>, tensor<4x7xf32>) -> tensor<2x4xf32>
activated_linear 2 | 2x8xf32, 4x8xf32, 8xf32 | mllm.activated_linear relu %0, %1, %2 : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<2x4xf32>
activated_linear 3 | 2x8xf32, 4x8xf32 | mllm.activated_linear relu %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
activated_linear 4 | 2x8xf32, 4x8xf64 | mllm.activated_linear relu %0, %1 : (tensor<2x8xf32>, tensor<4x8xf64>) -> tensor<2x4xf32>
patch_embed 1 | 3x8x8xf32, 5x3x4x4xf32 | mllm.patch_embed %0, %1 {patch = 4 : i64} : (tensor<3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<1x4x5xf32>
patch_embed 2 | 1x3x8x8xf32, 5x3x4x2xf32 | mllm.patch_embed %0, %1 {patch = 4 : i64} : (tensor<1x3x8x8xf32>, tensor<5x3x4x2xf32>) -> tensor<1x4x5xf32>
patch_embed 3 | 1x3x8x8xf32, 5x3x4x4xf32, 1x5x5xf32 | mllm.patch_embed %0, %1 position(%2 : tensor<1x5x5xf32>) {patch = 4 : i64} : (tensor<1x3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<1x4x5xf32>
patch_embed 4 | 1x3x8x8xf32, 5x3x4x4xf32 | mllm.patch_embed %0, %1 {patch = 4 : i64} : (tensor<1x3x8x8xf32>, tensor<5x3x4x4xf32>) -> tensor<1x5x5xf32>
conv 1 | 1x3x8xf32, 5x2x3xf32 | mllm.conv %0, %1 {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8xf32>, tensor<5x2x3xf32>) -> tensor<1x5x6xf32>
conv 2 | 1x3x8xf32, 5x3x3xf32, 3xf32 | mllm.conv %0, %1, %2 {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8xf32>, tensor<5x3x3xf32>, tensor<3xf32>) -> tensor<1x5x6xf32>
conv 3 | 1x3x8xf32, 5x3x3xf32 | mllm.conv %0, %1 {strides = array<i64: 1>, pads = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8xf32>, tensor<5x3x3xf32>) -> tensor<1x5x6xf32>
conv 4 | 1x3x8xf32, 5x3x3xf32 | mllm.conv %0, %1 {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<1x3x8xf32>, tensor<5x3x3xf32>) -> tensor<1x5x8xf32>
pool 1 | 1x3x8xf32 | mllm.pool max %0 {kernel = array<i64: 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0>} : (tensor<1x3x8xf32>) -> tensor<1x3x4xf32>
pool 2 | 1x3x8xf32 | mllm.pool max %0 {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>} : (tensor<1x3x8xf32>) -> tensor<1x3x3xf32>
resize 1 | 1x3x8x8xf32 | mllm.resize linear half_pixel %0 {scales = array<f64>} : (tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32>
resize 2 | 1x3x8x8xf32 | mllm.resize linear half_pixel %0 {scales = array<f64: 2.0>} : (tensor<1x3x8x8xf32>) -> tensor<1x3x16x8xf32>
reshape 1 | 2x8xf32 | mllm.reshape %0 : (tensor<2x8xf32>) -> tensor<15xf32>
reshape 2 | 2x8xf32 | mllm.reshape %0 : (tensor<2x8xf32>) -> tensor<16xf64>
transpose 1 | 2x8xf32 | mllm.transpose %0 {perm = array<i64: 0, 0>} : (tensor<2x8xf32>) -> tensor<2x2xf32>
transpose 2 | 2x8xf32 | mllm.transpose %0 {perm = array<i64: 1, 0>} : (tensor<2x8xf32>) -> tensor<2x8xf32>
concat 1 | 2x8xf32 | mllm.concat %0 {axis = 2 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
concat 2 | 2x8xf32, 3x8xf32 | mllm.concat %0, %1 {axis = 1 : i64} : (tensor<2x8xf32>, tensor<3x8xf32>) -> tensor<2x16xf32>
concat 3 | 2x8xf32, 3x8xf32 | mllm.concat %0, %1 {axis = 0 : i64} : (tensor<2x8xf32>, tensor<3x8xf32>) -> tensor<6x8xf32>
slice 1 | 2x8xf32 | mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 0>} : (tensor<2x8xf32>) -> tensor<2x8xf32>
slice 2 | 2x8xf32 | mllm.slice %0 {starts = #mllm.dims<"0", "0">, steps = array<i64: 1, 1>} : (tensor<2x8xf32>) -> tensor<16xf32>
slice 3 | 2x8xf32 | mllm.slice %0 {starts = #mllm.dims<"0", "4">, steps = array<i64: 1, 1>} : (tensor<2x8xf32>) -> tensor<2x5xf32>
slice 3 | 2x8xf32 | mllm.slice %0 {starts = #mllm.dims<"0", "3">, steps = array<i64: 1, -1>} : (tensor<2x8xf32>) -> tensor<2x5xf32>
broadcast 1 | 2x8xf32 | mllm.broadcast %0 : (tensor<2x8xf32>) -> tensor<4x8xf32>
broadcast 2 | 1x8xf32 | mllm.broadcast %0 : (tensor<1x8xf32>) -> tensor<4x8xf64>
iota 1 | | mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<4xf32>
pad 1 | 2x8xf32 | mllm.pad %0 {before = array<i64: 1>, after = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x8xf32>) -> tensor<3x8xf32>
pad 2 | 2x8xf32 | mllm.pad %0 {before = array<i64: 1, 0>, after = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
kv_append 1 | 1x2x5x8xf32, 1x3x16xf32 | mllm.kv_append %0, %1 {kv_heads = 4 : i64} : (tensor<1x2x5x8xf32>, tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32>
kv_append 2 | 1x2x5x8xf32, 1x3x8xf32 | mllm.kv_append %0, %1 {kv_heads = 2 : i64} : (tensor<1x2x5x8xf32>, tensor<1x3x8xf32>) -> tensor<1x2x8x8xf32>
kv_append 3 | 1x2x5x8xf32, 1x3x16xf32 | mllm.kv_append %0, %1 {kv_heads = 2 : i64} : (tensor<1x2x5x8xf32>, tensor<1x3x16xf32>) -> tensor<1x2x5x8xf32>
kv_view 1 | 9x16x4xf32, 2x2xi64 | mllm.kv_view %0, %1 : (tensor<9x16x4xf32>, tensor<2x2xi64>) -> tensor<2x3x20x4xf32>
kv_view 2 | 9x3x16x4xf32, 2xi64 | mllm.kv_view %0, %1 : (tensor<9x3x16x4xf32>, tensor<2xi64>) -> tensor<2x3x20x4xf32>
kv_view 3 | 9x3x16x4xf32, 2x2xi64 | mllm.kv_view %0, %1 : (tensor<9x3x16x4xf32>, tensor<2x2xi64>) -> tensor<2x3x33x4xf32>
token_importance 1 | 1x3x8xf32 | mllm.token_importance %0, %0 {heads = 3 : i64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3xf32>
token_importance 2 | 1x3x8xf32 | mllm.token_importance %0, %0 {heads = 4 : i64} : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x4xf32>
top_k 1 | 2x8xf32 | mllm.top_k %0 {axis = 2 : i64} : (tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xi64>)
top_k 2 | 2x8xf32 | mllm.top_k %0 {axis = 1 : i64} : (tensor<2x8xf32>) -> (tensor<3x4xf32>, tensor<3x4xi64>)
token_gather 1 | 3x8xf32, 1x2xi64 | mllm.token_gather %0, %1 : (tensor<3x8xf32>, tensor<1x2xi64>) -> tensor<1x2x8xf32>
token_gather 2 | 1x3x8xf32, 2xi64 | mllm.token_gather %0, %1 : (tensor<1x3x8xf32>, tensor<2xi64>) -> tensor<1x2x8xf32>
token_gather 3 | 1x3x8xf32, 1x2xi64 | mllm.token_gather %0, %1 : (tensor<1x3x8xf32>, tensor<1x2xi64>) -> tensor<1x3x8xf32>
quantize 1 | 4x8xf32, 3x1xf32 | mllm.quantize %0, %1 : (tensor<4x8xf32>, tensor<3x1xf32>) -> tensor<4x8xi8>
quantize 1 | 4x8xf32, 4x2xf32 | mllm.quantize %0, %1 {axis = 1 : i64, block_size = 3 : i64} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<4x8xi8>
quantize 1 | 4x8xf32, f32 | mllm.quantize %0, %1 {axis = 1 : i64} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
quantize 2 | 4x8xf32, f32, i8 | mllm.quantize %0, %1, %2 : (tensor<4x8xf32>, tensor<f32>, tensor<i8>) -> tensor<4x8xi16>
quantize 3 | 4x8xf32, f32, i8 | mllm.quantize %0, %1, %2 : (tensor<4x8xf32>, tensor<f32>, tensor<i8>) -> tensor<8x4xi8>
dequantize 1 | 4x8xi8, 4xf32, 4xi8 | mllm.dequantize %0, %1, %2 : (tensor<4x8xi8>, tensor<4xf32>, tensor<4xi8>) -> tensor<4x8xf32>
dequantize 1 | 4x8xi4, 4x3xf32 | mllm.dequantize %0, %1 {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xi4>, tensor<4x3xf32>) -> tensor<4x8xf32>
dequantize 2 | 4x8xi8, f32, i16 | mllm.dequantize %0, %1, %2 : (tensor<4x8xi8>, tensor<f32>, tensor<i16>) -> tensor<4x8xf32>
dequantize 3 | 4x8xi8, f32, i8 | mllm.dequantize %0, %1, %2 : (tensor<4x8xi8>, tensor<f32>, tensor<i8>) -> tensor<4xf32>
dynamic_quantize 1 | 4x8xf32 | mllm.dynamic_quantize %0 {axis = 2 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<4x8xf32>, tensor<4x8xui8>)
dynamic_quantize 1 | 4x8xf32 | mllm.dynamic_quantize %0 {block_size = 4 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<f32>, tensor<ui8>)
dynamic_quantize 2 | 4x8xf32 | mllm.dynamic_quantize %0 : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<f32>, tensor<i8>)
dynamic_quantize 3 | 4x8xf32 | mllm.dynamic_quantize %0 {axis = 1 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<4xf32>, tensor<4xui8>)
dynamic_quantize 3 | 4x8xf32 | mllm.dynamic_quantize %0 {axis = 1 : i64, block_size = 3 : i64} : (tensor<4x8xf32>) -> (tensor<4x8xui8>, tensor<4x2xf32>, tensor<4x2xui8>)
quantized_linear 1 | 3x8xi8, f32, 4x7xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<f32>, tensor<4x7xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 2 | 3x8xi8, 8xf32, 4x8xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 2 | 3x8xi8, 2x1xf32, 4x8xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<2x1xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 2 | 3x8xi8, 3x2xf32, 4x8xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<3x2xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 2 | 3x8xi8, 3x3xf32, 4x8xi8, 4x2xf32 | mllm.quantized_linear %0, %1, %2, %3 {block_size = 4 : i64} : (tensor<3x8xi8>, tensor<3x3xf32>, tensor<4x8xi8>, tensor<4x2xf32>) -> tensor<3x4xf32>
quantized_linear 3 | 3x8xi8, f32, 4x8xi8, 4xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4xf32>) -> tensor<3x4xf32>
quantized_linear 3 | 3x8xi8, f32, 4x8xi8, 4x3xf32 | mllm.quantized_linear %0, %1, %2, %3 {block_size = 4 : i64} : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x3xf32>) -> tensor<3x4xf32>
quantized_linear 3 | 3x8xi8, f32, 4x8xi8, 4x1xf32, 8xi8 | mllm.quantized_linear %0, %1, %2, %3 weight_zero(%4 : tensor<8xi8>) : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 4 | 3x8xi8, f32, 4x8xi8, 4x1xf32, 3xf32 | mllm.quantized_linear %0, %1, %2, %3 bias(%4 : tensor<3xf32>) : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 5 | 3x8xi8, f32, 4x8xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x5xf32>
quantized_linear 6 | 3x8xf32, f32, 4x8xi8, 4x1xf32 | mllm.quantized_linear %0, %1, %2, %3 : (tensor<3x8xf32>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
quantized_linear 6 | 3x8xi8, f32, 4x8xi8, 4x1xf32, ui8 | mllm.quantized_linear %0, %1, %2, %3 x_zero(%4 : tensor<ui8>) : (tensor<3x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<3x4xf32>
integer_matmul 1 | 3x8xi8, 7x4xi8 | mllm.integer_matmul %0, %1 : (tensor<3x8xi8>, tensor<7x4xi8>) -> tensor<3x4xi32>
integer_matmul 2 | 3x8xi8, 8x4xi8 | mllm.integer_matmul %0, %1 : (tensor<3x8xi8>, tensor<8x4xi8>) -> tensor<3x5xi32>
integer_matmul 3 | 3x8xi8, 8x4xi8, 3xi8 | mllm.integer_matmul %0, %1 a_zero(%2 : tensor<3xi8>) : (tensor<3x8xi8>, tensor<8x4xi8>) -> tensor<3x4xi32>
integer_matmul 3 | 3x8xi8, 8x4xi8, 8x1xi8 | mllm.integer_matmul %0, %1 b_zero(%2 : tensor<8x1xi8>) : (tensor<3x8xi8>, tensor<8x4xi8>) -> tensor<3x4xi32>
integer_matmul 4 | 3x8xi8, 8x4xi8 | mllm.integer_matmul %0, %1 : (tensor<3x8xi8>, tensor<8x4xi8>) -> tensor<3x4xi64>
integer_conv 1 | 1x3x4x4xi8, 2x2x2x2xi8 | mllm.integer_conv %0, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x2x2x2xi8>) -> tensor<1x2x3x3xi32>
integer_conv 2 | 1x3x4x4xi8, 2x3x2x2xi8 | mllm.integer_conv %0, %1 {strides = array<i64: 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xi32>
integer_conv 3 | 1x3x4x4xi8, 2x3x2x2xi8, 3xi8 | mllm.integer_conv %0, %1 x_zero(%2 : tensor<3xi8>) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xi32>
integer_conv 3 | 1x3x4x4xi8, 2x3x2x2xi8, 2xi8 | mllm.integer_conv %0, %1 weight_zero(%2 : tensor<2xi8>) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xi32>
integer_conv 4 | 1x3x4x4xi8, 2x3x2x2xi8 | mllm.integer_conv %0, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x3x2x2xi8>) -> tensor<1x2x4x4xi32>
integer_conv 5 | 1x3x4x4xi8, 2x3x2x2xi8 | mllm.integer_conv %0, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x4x4xi8>, tensor<2x3x2x2xi8>) -> tensor<1x2x3x3xf32>
pipeline 1 | | mllm.pipeline @p {edges = [#mllm.edge<"b" "x" from "a" "y">, #mllm.edge<"b" "x" from "c" "z">], caches = [], bounds = []}
pipeline 2 | | mllm.pipeline @p {edges = [], caches = [], bounds = [#mllm.bound<"n" <= 1>, #mllm.bound<"n" <= 2>]}
pipeline 4 | | mllm.pipeline @p {edges = [], caches = [], bounds = [], overlaps = [["a"]]}
pipeline 5 | | mllm.pipeline @p {edges = [], caches = [], bounds = [], banks = [#mllm.bank<"a", alignment 64 from 1>, #mllm.bank<"a", bytes 1, alignment 64 from 1>]}
pipeline 3 | | mllm.pipeline @p {edges = [], caches = [#mllm.cache<"d", key "k.{layer}", value "v.{layer}", out "o.{layer}", layers 1>, #mllm.cache<"d", key "k.{layer}", value "w.{layer}", out "p.{layer}", layers 1>], bounds = []}
"""  # noqa: E501

CASES = [tuple(part.strip() for part in line.split("|")) for line in BROKEN.split("\n") if line]


def module_of(types: str, op: str) -> ModuleOp:
    names = [t.strip() for t in types.split(",") if t.strip()]
    arguments = ", ".join(f"%{i}: tensor<{t}>" for i, t in enumerate(names))
    results = {
        "mllm.top_k": "%r:2 = ",
        "mllm.selective_scan": "%r:2 = ",
        "mllm.dynamic_quantize": "%r:3 = ",
        "mllm.qkv": "%r:3 = ",
        "mllm.cached_attention": "%r:3 = ",
        "mllm.residual_norm": "%r:2 = ",
        "mllm.pipeline": "",
    }.get(op.split()[0], "%r = ")
    text = f'func.func @f({arguments}) {{\n{results}{op} loc("/here")\nfunc.return\n}}'
    return Parser(make_context(), text).parse_module()


@pytest.mark.parametrize(("constraint", "types", "op"), CASES, ids=lambda v: v[:24])
def test_a_broken_constraint_is_named(constraint: str, types: str, op: str) -> None:
    name, number = constraint.split()
    with pytest.raises(CompileError) as fault:
        verify(module_of(types, op))
    assert str(fault.value).startswith(f"/here: error: 'mllm.{name}' C{number}: ")


def test_every_constraint_is_broken_once() -> None:
    broken = {(f"mllm.{n}", int(c)) for n, c in (case[0].split() for case in CASES)}
    numbered = {
        (op.name, int(n))
        for op in OPS
        for n in re.findall(r"^\s+C(\d+)  ", op.__doc__ or "", re.MULTILINE)
    }
    assert numbered - broken == WHILE_BUILDING | {("mllm.constant", 1)}


def test_a_constant_of_65_elements_is_refused() -> None:
    op = "mllm.constant dense<0> : tensor<65xi64>"
    with pytest.raises(CompileError, match=r"'mllm.constant' C1: at most 64 elements, not 65"):
        verify(module_of("", op))


def test_a_generic_form_that_contradicts_itself_is_refused() -> None:
    weight = f'"mllm.weight"() <{{value = #mllm.blob<"sha256:{"0" * 64}", f32, [2]>}}>'
    for name, op in (
        ("weight' C1", f"{weight} : () -> tensor<3xf32>"),
        (
            "constant' C2",
            '"mllm.constant"() <{value = dense<0> : tensor<2xi64>}> : () -> tensor<3xi64>',
        ),
    ):
        with pytest.raises(CompileError, match=f"'mllm.{name}"):
            verify(module_of("", op))


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ('#mllm.blob<"sha256:12", f32, [2]>', "64 hex digits"),
        ('#mllm.bank<"n", bytes -2, alignment 64 from 1>', "a size of n is negative"),
        ('#mllm.bank<"n", alignment 0 from 1>', "a size of n is negative"),
        ('#mllm.bound<"n" <= -1>', "0 <= n <= -1"),
        ('#mllm.bound<3 <= "n" <= 2>', "3 <= n <= 2"),
        ('#mllm.bound<"n" <= 4 in [1, 2]>', "n <= 4 in [1, 2]"),
        ('#mllm.bound<"n" <= 4 in [2, 1, 4]>', "in [2, 1, 4]"),
        ('#mllm.cache<"d", key "k", value "v", out "o", layers 1>', "must contain {layer}"),
    ],
)
def test_an_attribute_that_says_nothing_is_refused(attribute: str, message: str) -> None:
    with pytest.raises(VerifyException, match=re.escape(message)):
        Parser(make_context(), attribute).parse_attribute()
