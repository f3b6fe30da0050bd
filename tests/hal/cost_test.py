"""What an op costs, counted by hand."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
from xdsl.dialects import test
from xdsl.dialects.builtin import TensorType, f32
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.hal import cost_of
from mllm_compiler.passes.graphs import graphs

TEXT = """
func.func @f(%x: tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>, %w: tensor<4x8xf32>) {
  %0 = mllm.linear %x, %w
    : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>, tensor<4x8xf32>)
    -> tensor<2x?x4xf32, #mllm.dims<"2", "seq", "4">>
  %1 = mllm.reshape %0
    : (tensor<2x?x4xf32, #mllm.dims<"2", "seq", "4">>)
    -> tensor<?x4xf32, #mllm.dims<"2 * seq", "4">>
  %2 = mllm.attention %x, %x, %x {heads = 2 : i64, kv_heads = 2 : i64, scale = 1.0 : f64}
    : (tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>,
       tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>,
       tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>)
    -> tensor<2x?x8xf32, #mllm.dims<"2", "seq", "8">>
  func.return
}
"""


def test_operations_are_counted_as_the_textbook_does() -> None:
    module = Parser(make_context(), TEXT).parse_module()
    linear, reshape, attention, _ = (
        cost_of(op, {"seq": 3}) for op in graphs(module)[0].body.block.ops
    )
    rows = 2 * 3
    assert linear.flops == 2 * rows * 8 * 4
    assert linear.read == 4 * (rows * 8 + 4 * 8)
    assert linear.written == 4 * rows * 4
    assert linear.weights == 0
    assert reshape.flops == 0
    scores = 2 * 3 * 3
    assert attention.flops == 2 * scores * 8 + 2 * scores * 8


def test_weights_are_told_from_what_flows() -> None:
    weight = mllm.ConstantOp.of(np.ones((4, 8), np.float32)).results[0]
    x = test.TestOp(result_types=[TensorType(f32, [3, 8])]).results[0]
    cost = cost_of(mllm.LinearOp(x, weight), {})
    assert (cost.weights, cost.read, cost.written) == (4 * 32, 4 * (24 + 32), 4 * 12)


def test_a_product_with_a_weight_of_codes_reads_the_codes() -> None:
    """Of 4 bits [4, 8] with a scale of 16 bits and a zero point of 4 for each block of 4."""
    codes = mllm.ConstantOp.of(np.zeros((4, 8), ml_dtypes.uint4)).results[0]
    scale = mllm.ConstantOp.of(np.ones((4, 2), np.float16)).results[0]
    zero = mllm.ConstantOp.of(np.zeros((4, 2), ml_dtypes.uint4)).results[0]
    meant = mllm.DequantizeOp(codes, scale, zero, axis=1, block_size=4, element=f32)
    x = test.TestOp(result_types=[TensorType(f32, [3, 8])]).results[0]
    cost = cost_of(mllm.LinearOp(x, meant.result), {})
    packed = 4 * 8 // 2 + 2 * 4 * 2 + 4 * 2 // 2
    assert (cost.weights, cost.read, cost.written) == (packed, 4 * 24 + packed, 4 * 12)
    assert cost.flops == 2 * 3 * 8 * 4
    assert cost_of(meant, {}).bytes == 0
    mllm.UnaryOp(mllm.UnaryKind.ABS, meant.result)
    assert cost_of(meant, {}).written == 4 * 32


def test_a_scan_counts_products_a_sum_and_an_exponential_of_each_state() -> None:
    batch, tokens, channels, states = sizes = 2, 3, 5, 4
    rows, reads = [batch, tokens, channels], [batch, tokens, states]
    shapes = [rows, rows, [channels, states], reads, reads, [batch, channels, states]]
    values = test.TestOp(result_types=[TensorType(f32, shape) for shape in shapes]).results
    # step a, exp, step b, times x, times h, plus, times c and the sum over states (Gu & Dao 2023).
    assert cost_of(mllm.SelectiveScanOp(*values), {}).flops == 8 * prod(sizes)
