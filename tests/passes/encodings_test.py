"""Encodings of a graph's values: ranges are those that NumPy finds on the samples, and the rules of
a vendor, here a small one over the tfl dialect, are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context, tfl
from mllm_compiler.dialects.types import element_of, is_float
from mllm_compiler.passes.encodings import Encodings, Rules, encodings_of
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.quantisation.recipe import Values
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore

RNG = np.random.default_rng(11)
MINMAX = Values(bits=8)
SOFTMAX = Encoding(1 / 256, -128, 8)


def moved(op: Operation) -> Sequence[SSAValue]:
    return op.operands[:1] if isinstance(op, tfl.ReshapeOp) else reals(op, tfl.ConcatenationOp)


def reals(op: Operation, *kinds: type[Operation]) -> list[SSAValue]:
    wanted = not kinds or isinstance(op, kinds)
    return [v for v in op.operands if is_float(element_of(v))] if wanted else []


RULES = Rules(
    coded=lambda op: not isinstance(op, tfl.DivOp | tfl.CastOp | tfl.GatherOp | tfl.CosOp),
    operands=reals,
    moves=moved,
    fixed=lambda op: SOFTMAX if isinstance(op, tfl.SoftmaxOp) else None,
    symmetric=lambda value: isinstance(value.owner, tfl.SubOp),
)


def found(text: str, values: Values = MINMAX, /, **inputs: Array) -> tuple[FuncOp, Encodings]:
    """The encodings of the graph `f` of a module on one sample."""
    store = WeightStore()
    (graph,) = graphs(Parser(make_context(store), text).parse_module())
    return graph, encodings_of(graph, [inputs], store, values, RULES)


def made(graph: FuncOp, kind: type[Operation]) -> SSAValue:
    return next(op for op in block_of(graph).ops if isinstance(op, kind)).results[0]


def test_every_value_reaches_as_far_as_on_the_samples() -> None:
    graph, encodings = found(
        """func.func @f(%x: tensor<2x3xf32> {mllm.name = "x"}) -> tensor<2x3xf32> {
             %c = mllm.constant dense<[0.5, -4.0, 2.0]> : tensor<3xf32>
             %y = tfl.mul %x, %c {fused_activation_function = "NONE"}
               : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
             %z = tfl.sub %y, %x {fused_activation_function = "NONE"}
               : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
             func.return %z : tensor<2x3xf32>
           }""",
        x=(x := RNG.standard_normal((2, 3)).astype(np.float32)),
    )
    constant = np.array([0.5, -4.0, 2.0], np.float32)
    y = x * constant
    for value, array in ((graph.args[0], x), (made(graph, tfl.MulOp), y)):
        low, high = min(0, array.min()), max(0, array.max())
        np.testing.assert_allclose(encodings.of[value].scale, (high - low) / 255, rtol=1e-6)
    symmetric = encodings.of[made(graph, tfl.SubOp)]
    assert symmetric.zero_point == 0
    np.testing.assert_allclose(symmetric.scale, np.abs(y - x).max() / 127, rtol=1e-6)
    assert encodings.of[block_of(graph).first_op.results[0]].reach[0] == np.float32(-4.0)
    assert {op.name for op in encodings.coded} == {"tfl.mul", "tfl.sub"}


def test_values_that_only_move_have_one_encoding_and_a_fixed_one_stays() -> None:
    graph, encodings = found(
        """func.func @f(%x: tensor<2x3xf32> {mllm.name = "x"},
                          %v: tensor<1x6xf32> {mllm.name = "v"}) -> tensor<2x6xf32> {
             %d = mllm.constant dense<[1, 6]> : tensor<2xi32>
             %r = tfl.reshape %x, %d : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<1x6xf32>
             %s = tfl.softmax %v {beta = 1.0 : f64} : (tensor<1x6xf32>) -> tensor<1x6xf32>
             %y = tfl.concatenation %r, %v, %s {axis = 0, fused_activation_function = "NONE"}
               : (tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>) -> tensor<3x6xf32>
             func.return %y : tensor<3x6xf32>
           }""",
        x=RNG.uniform(-1, 1, (2, 3)).astype(np.float32),
        v=np.array([[-3.0, 0, 0, 0, 0, 5.0]], np.float32),
    )
    x, v = graph.args
    shared = encodings.of[x]
    assert shared.scale == np.float32(8 / 255)
    assert encodings.of[v] == encodings.of[made(graph, tfl.ReshapeOp)] == shared
    assert encodings.of[made(graph, tfl.ConcatenationOp)] == shared
    assert encodings.of[made(graph, tfl.SoftmaxOp)] == SOFTMAX


def test_what_is_counted_stays_real_until_it_meets_codes() -> None:
    """Angles of positions; a quotient computes on reals but its result has codes."""
    graph, encodings = found(
        """func.func @f(%i: tensor<4xi64> {mllm.name = "i"}, %x: tensor<4xf32> {mllm.name = "x"})
             -> tensor<4xf32> {
             %two = mllm.constant dense<2.0> : tensor<f32>
             %p = tfl.cast %i : (tensor<4xi64>) -> tensor<4xf32>
             %a = tfl.mul %p, %two {fused_activation_function = "NONE"}
               : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
             %c = tfl.cos %a : (tensor<4xf32>) -> tensor<4xf32>
             %y = tfl.add %x, %c {fused_activation_function = "NONE"}
               : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
             %z = tfl.div %y, %two {fused_activation_function = "NONE"}
               : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
             func.return %z : tensor<4xf32>
           }""",
        i=np.arange(4),
        x=RNG.standard_normal(4).astype(np.float32),
    )
    assert {op.name for op in encodings.coded} == {"tfl.add"}
    coded = {made(graph, kind) for kind in (tfl.CosOp, tfl.AddOp, tfl.DivOp)}
    assert encodings.of.keys() == {graph.args[1], *coded}


def test_rows_of_a_table_have_codes_once_they_are_real() -> None:
    graph, encodings = found(
        """func.func @f(%i: tensor<2xi32> {mllm.name = "i"}) -> tensor<2x2xf32> {
             %t = mllm.constant dense<[[100, -50], [3, 4]]> : tensor<2x2xi8>
             %s = mllm.constant dense<[[0.01], [0.02]]> : tensor<2x1xf32>
             %c = tfl.gather %t, %i {axis = 0, batch_dims = 0}
               : (tensor<2x2xi8>, tensor<2xi32>) -> tensor<2x2xi8>
             %n = tfl.cast %c : (tensor<2x2xi8>) -> tensor<2x2xf32>
             %g = tfl.gather %s, %i {axis = 0, batch_dims = 0}
               : (tensor<2x1xf32>, tensor<2xi32>) -> tensor<2x1xf32>
             %x = tfl.mul %n, %g {fused_activation_function = "NONE"}
               : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
             %y = tfl.add %x, %x {fused_activation_function = "NONE"}
               : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
             func.return %y : tensor<2x2xf32>
           }""",
        i=np.array([0, 1], np.int32),
    )
    assert {op.name for op in encodings.coded} == {"tfl.add"}
    np.testing.assert_allclose(encodings.of[made(graph, tfl.MulOp)].scale, 1.5 / 255, rtol=1e-6)
