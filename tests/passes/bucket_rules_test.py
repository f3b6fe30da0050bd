"""Each op of a padded graph gives what it gives without padding, at every length: the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import (
    Activation,
    BinaryKind,
    BoundAttr,
    NormKind,
    PipelineOp,
    PoolKind,
    ReduceKind,
    UnaryKind,
)
from mllm_compiler.dialects.types import ui8
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.bucket_shapes import BucketShapes
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph

T, U, P = Dim.symbol("t"), Dim.symbol("u"), Dim.symbol("past")
LARGEST = 9
BOUNDS = [
    BoundAttr.of("t", LARGEST, least=1, buckets=(4, LARGEST)),
    BoundAttr.of("u", 5, buckets=(5,)),
    BoundAttr.of("past", 6, buckets=(6,)),
]
TOKENS = {"x": tensor_of(f32, [1, T, 8])}
IMAGE = {"x": tensor_of(f32, [1, 4, T])}
OTHER = {**TOKENS, "s": tensor_of(f32, [1, U, 8])}
CACHED = {**TOKENS, "past": tensor_of(f32, [1, 1, P, 8])}

Build = Callable[[Graph], SSAValue]


def constant(g: Graph, array: object, dtype: type = np.float32) -> SSAValue:
    return g.add(mllm.ConstantOp.of(np.asarray(array, dtype)))


def reduction(kind: ReduceKind, *axes: int, keepdims: bool = False) -> Build:
    return lambda g: g.add(mllm.ReduceOp(kind, g["x"], axes, keepdims=keepdims))


def product_over_tokens(g: Graph) -> SSAValue:
    turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
    return g.add(mllm.MatmulOp(turned, g["x"]))


def quotient_of_empty_rows(g: Graph) -> SSAValue:
    total = g.add(mllm.ReduceOp(ReduceKind.L2, g["x"], (2,), keepdims=True))
    unit = g.add(mllm.BinaryOp(BinaryKind.DIV, g["x"], total))
    logs = g.add(mllm.UnaryOp(UnaryKind.LOG, total))
    both = g.add(mllm.BinaryOp(BinaryKind.MUL, unit, logs))
    turned = g.add(mllm.TransposeOp(both, (0, 2, 1)))
    return g.add(mllm.MatmulOp(turned, g["x"]))


WITHIN_ONE = (UnaryKind.ACOS, UnaryKind.ASIN, UnaryKind.ATANH)
ABOVE = (UnaryKind.LOG, UnaryKind.SQRT, UnaryKind.RSQRT, UnaryKind.RECIPROCAL, UnaryKind.ACOSH)


def outside_of_its_domain(kind: UnaryKind) -> Build:
    """A function whose operand is in its domain, but not where padding is; then a product."""

    def build(g: Graph) -> SSAValue:
        size = g.add(mllm.UnaryOp(UnaryKind.ABS, g["x"]))
        steep = g.add(mllm.BinaryOp(BinaryKind.MUL, size, constant(g, -1e6)))
        bump = g.add(mllm.UnaryOp(UnaryKind.EXP, steep))
        two = g.add(mllm.BinaryOp(BinaryKind.MUL, bump, constant(g, 2.0)))
        if kind in WITHIN_ONE:
            inner = g.add(mllm.UnaryOp(UnaryKind.TANH, g["x"]))
            operand = g.add(mllm.BinaryOp(BinaryKind.ADD, inner, two))
        elif kind is UnaryKind.RECIPROCAL:
            operand = size
        else:
            above = g.add(mllm.BinaryOp(BinaryKind.ADD, size, constant(g, 1.0)))
            operand = g.add(mllm.BinaryOp(BinaryKind.SUB, above, two))
        turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
        return g.add(mllm.MatmulOp(turned, g.add(mllm.UnaryOp(kind, operand))))

    return build


def sliced(start: Dim | int, count: Dim | int, step: int = 1) -> Build:
    return lambda g: g.add(mllm.SliceOp(g["x"], (0, start, 0), (1, count, 8), (1, step, 1)))


def gathered(*indices: int) -> Build:
    return lambda g: g.add(mllm.GatherOp(g["x"], constant(g, indices, np.int64), 1))


def gathered_at_a_point(g: Graph) -> SSAValue:
    return g.add(mllm.GatherOp(g["x"], constant(g, -1, np.int64), 1))


def convolved(kernel: int, stride: int, begin: int, end: int, groups: int = 1) -> Build:
    def build(g: Graph) -> SSAValue:
        weight = g.weight("w", 4, 4 // groups, kernel)
        window = {"strides": [stride], "pads": [begin, end], "dilations": [1]}
        once = g.add(mllm.ConvOp(g["x"], weight, g.weight("b", 4), groups=groups, **window))
        second = {"strides": [1], "pads": [1, 1], "dilations": [1]}
        return g.add(mllm.ConvOp(once, g.weight("v", 4, 4, 3), None, **second))

    return build


def pooled(kind: PoolKind, begin: int, end: int, *, count: bool = False) -> Build:
    window = {"kernel": [3], "strides": [2], "pads": [begin, end]}
    return lambda g: g.add(mllm.PoolOp(kind, g["x"], count_include_pad=count, **window))


def padded_and_convolved(g: Graph) -> SSAValue:
    wide = g.add(mllm.PadOp(g["x"], (0, 0, 2), (0, 0, 1), value=0.5))
    window = {"strides": [1], "pads": [0, 0], "dilations": [1]}
    return g.add(mllm.ConvOp(wide, g.weight("w", 4, 4, 3), None, **window))


def behind_a_token(g: Graph) -> SSAValue:
    joined = g.add(mllm.ConcatOp([constant(g, np.ones((1, 1, 8))), g["x"]], 1))
    return attended(g, joined, joined)


def before_a_token(g: Graph) -> SSAValue:
    joined = g.add(mllm.ConcatOp([g["x"], constant(g, np.ones((1, 1, 8)))], 1))
    return attended(g, joined, joined)


def attended(g: Graph, q: SSAValue, k: SSAValue, **options: object) -> SSAValue:
    heads = {"heads": 2, "kv_heads": 2, "scale": 0.5}
    return g.add(mllm.AttentionOp(q, k, k, **heads, **options))  # type: ignore[arg-type]


def attention(**options: object) -> Build:
    return lambda g: attended(g, g["x"], g["x"], **options)


def attention_with_alibi(g: Graph) -> SSAValue:
    bias = g.add(mllm.AlibiOp(f32, T, T, heads=2))
    return attended(g, g["x"], g["x"], bias=bias)


def attention_with_a_mask_of_the_user(g: Graph) -> SSAValue:
    sums = g.add(mllm.ReduceOp(ReduceKind.SUM, g["x"], (2,), keepdims=False))
    seen = g.add(mllm.CompareOp(mllm.CompareKind.LT, sums, constant(g, 1.0)))
    first = g.add(mllm.CompareOp(mllm.CompareKind.EQ, g.add(mllm.IotaOp(T)), constant(g, 0, int)))
    mask = g.add(mllm.BinaryOp(BinaryKind.OR, seen, first))
    return attended(g, g["x"], g["x"], key_mask=mask)


def attention_over_a_cache(window: int | None = None) -> Build:
    def build(g: Graph) -> SSAValue:
        keys = g.add(mllm.KvAppendOp(g["past"], g["x"], kv_heads=1))
        options = {"heads": 1, "kv_heads": 1, "scale": 0.5, "causal": True, "window": window}
        return g.add(mllm.AttentionOp(g["x"], keys, keys, **options))

    return build


def quantised_product(axis: int | None) -> Build:
    def build(g: Graph) -> SSAValue:
        codes, scale, zero = dynamically_quantised(g, axis)
        weight, row_scales = constant(g, np.arange(-16, 16).reshape(4, 8), np.int8), np.ones((4, 1))
        made = mllm.QuantizedLinearOp(codes, scale, weight, constant(g, row_scales), x_zero=zero)
        back = g.add(mllm.DequantizeOp(codes, scale, zero))
        return g.add(mllm.ConcatOp([g.add(made), back], 2))

    return build


def dynamically_quantised(g: Graph, axis: int | None) -> tuple[SSAValue, SSAValue, SSAValue]:
    made = mllm.DynamicQuantizeOp(g["x"], ui8, symmetric=False, axis=axis)
    g.add(made)
    assert made.zero_point is not None
    return made.codes, made.scale, made.zero_point


def integer_product(g: Graph) -> SSAValue:
    codes, _, zero = dynamically_quantised(g, None)
    weight = constant(g, np.arange(-16, 16).reshape(8, 4), np.int8)
    sums = g.add(mllm.IntegerMatmulOp(codes, weight, a_zero=zero))
    return g.add(mllm.CastOp(sums, f32))


def cross_attention(g: Graph) -> SSAValue:
    s = g["s"]
    return g.add(mllm.CrossAttnOp(g["x"], s, s, heads=2, kv_heads=2, scale=0.5))


def positions_looked_up(g: Graph) -> SSAValue:
    table = g.weight("table", LARGEST, 8)
    behind = g.add(mllm.IotaOp(T, P))
    small = g.add(mllm.BinaryOp(BinaryKind.MIN, behind, constant(g, LARGEST - 1, np.int64)))
    rows = g.add(mllm.EmbeddingOp(table, small))
    turned = g.add(mllm.RopeOp(g["x"], g.add(mllm.ReshapeOp(behind, (1, T))), _freq(g), heads=2))
    return g.add(mllm.BinaryOp(BinaryKind.ADD, turned, rows))


def _freq(g: Graph) -> SSAValue:
    return constant(g, [1.0, 0.1])


def normalised_over_tokens(g: Graph) -> SSAValue:
    turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
    return g.add(mllm.LayerNormOp(turned, epsilon=1e-5))


def all_pairs(g: Graph) -> SSAValue:
    other = g.add(mllm.ReshapeOp(g["s"], (U, 8)))
    scores = g.add(mllm.LinearOp(g["x"], other))
    return g.add(mllm.SoftmaxOp(scores, 2))


def heads_apart(g: Graph) -> SSAValue:
    flat = g.add(mllm.ReshapeOp(g["x"], (T, 8)))
    apart = g.add(mllm.ReshapeOp(flat, (1, T, 2, 4)))
    return g.add(mllm.ReshapeOp(apart, (T * 2, 4)))


def states(last: bool) -> Build:
    """A scan over the tokens: what is read of them, or the states behind the last one."""

    def build(g: Graph) -> SSAValue:
        step = g.add(mllm.UnaryOp(UnaryKind.SOFTPLUS, g["x"]))
        rows = g.linear(g["x"], "rows", 3)
        a, start = constant(g, -np.ones((8, 3))), constant(g, np.ones((1, 8, 3)))
        scan = mllm.SelectiveScanOp(g["x"], step, a, rows, rows, start)
        g.add(scan)
        return scan.last if last else scan.y

    return build


def summed_up(**flags: bool) -> Build:
    return lambda g: g.add(mllm.CumsumOp(g["x"], 1, **flags))


def extreme_token(*, smallest: bool) -> Build:
    def build(g: Graph) -> SSAValue:
        sums = g.add(mllm.ReduceOp(ReduceKind.SUM, g["x"], (2,), keepdims=False))
        top = mllm.TopKOp(sums, 1, 1, smallest=smallest)
        g.add(top)
        return g.add(mllm.TokenGatherOp(g["x"], top.indices))

    return build


def fused_layer(*, causal: bool) -> Build:
    """A layer of a decoder out of fused ops."""

    def build(g: Graph) -> SSAValue:
        x, past = g["x"], g["past"]
        places = g.add(mllm.ReshapeOp(g.add(mllm.IotaOp(T, P)), (1, T)))
        turn = {"positions": places, "inv_freq": _freq(g)}
        same, present = x.type, tensor_of(f32, [1, 1, P + T, 8])
        one = {"heads": 1, "kv_heads": 1}
        qkv = mllm.QkvOp(x, g.weight("qkv", 24, 8), None, results=[same] * 3, **one, **turn)
        g.add(qkv)
        kinds = [same, present, present]
        new = (*qkv.results, past, past)
        seen = mllm.CachedAttentionOp(*new, **one, scale=0.5, causal=causal, results=kinds)
        norm, kinds = (g.weight("norm", 8),), [same, same]
        both = mllm.ResidualNormOp(NormKind.RMS, x, g.add(seen), *norm, epsilon=1e-5, results=kinds)
        g.add(both)
        square = [g.weight(name, 8, 8) for name in ("gate", "up", "down")]
        block = mllm.NormGatedMlpOp(
            NormKind.LAYER, Activation.SILU, both.sum, *square, epsilon=1e-5
        )
        end = mllm.ActivatedLinearOp(Activation.GELU, g.add(block), g.weight("end", 8, 8))
        return g.add(mllm.BinaryOp(BinaryKind.ADD, g.add(end), both.result))

    return build


CASES: dict[str, tuple[dict, Build]] = {
    **{f"reduce {k}": (TOKENS, reduction(k, 1)) for k in ReduceKind if k is not ReduceKind.LOG_SUM},
    **{
        f"{k} outside of its domain": (TOKENS, outside_of_its_domain(k))
        for k in (*WITHIN_ONE, *ABOVE)
    },
    "mean of all": (TOKENS, reduction(ReduceKind.MEAN, 0, 1, 2)),
    "mean kept": (TOKENS, reduction(ReduceKind.MEAN, 1, keepdims=True)),
    "softmax over tokens": (TOKENS, lambda g: g.add(mllm.SoftmaxOp(g["x"], 1))),
    "product over tokens": (TOKENS, product_over_tokens),
    "quotient of empty rows": (TOKENS, quotient_of_empty_rows),
    "the last token": (TOKENS, sliced(T - 1, 1)),
    "all but the first token": (TOKENS, sliced(1, T - 1)),
    "all but the last token": (TOKENS, sliced(0, T - 1)),
    "tokens backwards": (TOKENS, sliced(T - 1, T, -1)),
    "indices from the end": (TOKENS, gathered(-1, 0)),
    "an index from the end": (TOKENS, gathered_at_a_point),
    "convolutions": (IMAGE, convolved(3, 1, 1, 1)),
    "a strided convolution": (IMAGE, convolved(3, 2, 1, 1)),
    "a convolution without a border": (IMAGE, convolved(1, 1, 0, 0)),
    "a causal convolution": (IMAGE, convolved(4, 1, 3, 0)),
    "a convolution of groups": (IMAGE, convolved(3, 2, 0, 2, groups=2)),
    "maxima": (IMAGE, pooled(PoolKind.MAX, 1, 1)),
    "averages": (IMAGE, pooled(PoolKind.AVERAGE, 2, 0)),
    "averages with the border": (IMAGE, pooled(PoolKind.AVERAGE, 1, 1, count=True)),
    "padding": (IMAGE, padded_and_convolved),
    "behind a token": (TOKENS, behind_a_token),
    "before a token": (TOKENS, before_a_token),
    "attention": (TOKENS, attention()),
    "causal attention": (TOKENS, attention(causal=True)),
    "windowed attention": (TOKENS, attention(causal=True, window=2)),
    "attention with alibi": (TOKENS, attention_with_alibi),
    "attention with a mask": (TOKENS, attention_with_a_mask_of_the_user),
    "attention over a cache": (CACHED, attention_over_a_cache()),
    "windowed attention over a cache": (CACHED, attention_over_a_cache(3)),
    "a fused layer": (CACHED, fused_layer(causal=True)),
    "a fused layer that sees all": (CACHED, fused_layer(causal=False)),
    "cross attention": (OTHER, cross_attention),
    "positions looked up": (CACHED, positions_looked_up),
    "normalised over tokens": (TOKENS, normalised_over_tokens),
    "all pairs of two streams": (OTHER, all_pairs),
    "heads apart": (TOKENS, heads_apart),
    "tokens summed up": (TOKENS, summed_up()),
    "tokens summed up backwards": (TOKENS, summed_up(reverse=True, exclusive=True)),
    "states that are read": (TOKENS, states(last=False)),
    "states behind the last token": (TOKENS, states(last=True)),
    "the largest token": (TOKENS, extreme_token(smallest=False)),
    "the smallest token": (TOKENS, extreme_token(smallest=True)),
    "codes of all tokens": (TOKENS, quantised_product(None)),
    "codes of each token": (TOKENS, quantised_product(2)),
    "an integer product": (TOKENS, integer_product),
}


def graph_of(arguments: dict, build: Build, store: WeightStore) -> FuncOp:
    graph = Graph("g", "graph", store, arguments)
    return graph.finish({"y": build(graph)})


@pytest.mark.parametrize("name", CASES)
def test_an_op_is_the_same_with_padding(name: str) -> None:
    arguments, build = CASES[name]
    store = WeightStore()
    module = ModuleOp([graph_of(arguments, build, store), PipelineOp("p", bounds=BOUNDS)])
    dynamic = module.clone()
    run_passes(module, [BucketShapes()], make_context(store))
    runner = NumpyRunner(module, store)
    for tokens in range(1, LARGEST + 1):
        for other in range(1, 7) if len(arguments) > 1 else (1,):
            inputs = drawn(arguments, {"t": tokens, "u": min(other, 5), "past": other})
            want = run_function(dynamic, "g", inputs, store)["y"]
            got = runner.run("g", inputs)["y"]
            assert got.shape == want.shape, (tokens, other)
            assert np.abs(got - want).max(initial=0) <= 1e-5 * max(np.abs(want).max(initial=0), 1)


def drawn(arguments: dict, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(sum(sizes.values()))
    return {
        name: rng.standard_normal(
            [d.evaluate(sizes) for d in (type.encoding.data if type.encoding else ())]
        ).astype(np.float32)
        for name, type in arguments.items()
    }
