"""A fused op computes what its parts compute: the reference of both, and what is written back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import Activation, NormKind
from mllm_compiler.dialects.types import ELEMENTS, shape_of
from mllm_compiler.dialects.verify import verify
from mllm_compiler.passes.fused_parts import PARTS, take_apart
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore

RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def qkv(
    x: SSAValue, weight: SSAValue, bias: SSAValue, *turn: SSAValue, paired: bool = False
) -> Operation:
    types = [tensor_of(f32, (*shape_of(x)[:2], n)) for n in (16, 8, 4)]
    positions, inv_freq = turn or (None, None)
    return mllm.QkvOp(
        x,
        weight,
        bias,
        results=types,
        heads=4,
        kv_heads=2,
        positions=positions,
        inv_freq=inv_freq,
        interleaved=paired,
    )


def residual_norm(kind: NormKind, x: SSAValue, y: SSAValue, *sides: SSAValue) -> Operation:
    return mllm.ResidualNormOp(kind, x, y, *sides, epsilon=1e-3, results=[x.type, x.type])


def norm_gated_mlp(kind: NormKind, *values: SSAValue) -> Operation:
    weight, bias = (*values[4:], None, None)[:2]
    sides = {"weight": weight, "bias": bias}
    return mllm.NormGatedMlpOp(kind, Activation.SILU, *values[:4], **sides, epsilon=1e-3)


def cached(q: SSAValue, k: SSAValue, v: SSAValue, *rest: SSAValue, **options: object) -> Operation:
    past_k, past_v, *sides = rest
    types = [q.type] + [tensor_of(f32, (2, 2, 8, size)) for size in (4, 4)]
    names = ("k_scale",) if "cache_bits" in options else ("key_mask", "bias")
    given = dict(zip(names, sides, strict=False))
    sizes = {"heads": 4, "kv_heads": 2, "scale": 0.5}
    return mllm.CachedAttentionOp(
        q, k, v, past_k, past_v, results=types, **sizes, **given, **options
    )


CACHE = [real(2, 3, 16), real(2, 3, 8), real(2, 3, 8), real(2, 2, 5, 4), real(2, 2, 5, 4)]
KEY_SCALE = np.linspace(0.5, 2, 8).astype(np.float16).reshape(2, 4)
BLOCK = [real(2, 3, 8), real(6, 8), real(6, 8), real(8, 6)]
PLACES = np.array([[0, 7, 2000]])
CASES: dict[str, tuple[Callable[..., Operation], list[np.ndarray]]] = {
    "activated_linear": (
        lambda *values: mllm.ActivatedLinearOp(Activation.GELU, *values),
        [real(2, 3, 8), real(6, 8), real(6)],
    ),
    "residual_norm": (partial(residual_norm, NormKind.RMS), [real(2, 3), real(2, 3), real(3)]),
    "residual_norm-layer": (
        partial(residual_norm, NormKind.LAYER),
        [real(2, 3), real(2, 3), real(3), real(3)],
    ),
    "residual_norm-plain": (partial(residual_norm, NormKind.LAYER), [real(2, 3), real(2, 3)]),
    "norm_gated_mlp": (partial(norm_gated_mlp, NormKind.RMS), [*BLOCK, real(8)]),
    "norm_gated_mlp-layer": (partial(norm_gated_mlp, NormKind.LAYER), [*BLOCK, real(8), real(8)]),
    "cached_attention": (cached, CACHE),
    "cached_attention-window": (partial(cached, causal=True, window=3), CACHE),
    "cached_attention-masks": (
        partial(cached, causal=True),
        [*CACHE, RNG.integers(0, 2, (2, 8)), real(1, 4, 3, 8)],
    ),
    "cached_attention-halves": (partial(cached, causal=True, cache_bits=16), CACHE),
    "cached_attention-codes": (partial(cached, causal=True, cache_bits=8), [*CACHE, KEY_SCALE]),
    "qkv": (qkv, [real(2, 3, 8), real(28, 8), real(28)]),
    "qkv-rope": (qkv, [real(2, 3, 8), real(28, 8), real(28), PLACES, real(2)]),
    "qkv-pairs": (
        lambda *values: qkv(*values, paired=True),
        [real(2, 3, 8), real(28, 8), real(28), PLACES, real(1)],
    ),
}
"""An op and its operands."""


def module_of(make: Callable[..., Operation], arrays: list[np.ndarray]) -> ModuleOp:
    function = FuncOp("f", ([tensor_of(ELEMENTS[a.dtype], a.shape) for a in arrays], []))
    op = make(*block_of(function).args)
    block_of(function).add_ops([op, ReturnOp(*op.results)])
    function.update_function_type()
    return ModuleOp([function])


@pytest.mark.parametrize("name", CASES)
def test_an_op_computes_what_its_parts_do(name: str) -> None:
    make, arrays = CASES[name]
    module = module_of(make, arrays)
    verify(module)
    inputs = {f"arg{i}": a for i, a in enumerate(arrays)}
    whole = run_function(module, "f", inputs, WeightStore())
    graph = next(op for op in module.ops if isinstance(op, FuncOp))
    take_apart(graph, PARTS)
    verify(module)
    assert not {type(op) for op in module.walk()} & PARTS.keys()
    for result, value in run_function(module, "f", inputs, WeightStore()).items():
        np.testing.assert_allclose(whole[result], value, rtol=1e-6, atol=1e-6)


def test_a_cache_of_four_bits_stays_whole() -> None:
    module = module_of(partial(cached, causal=True, cache_bits=4), [*CACHE, KEY_SCALE])
    before = str(module)
    take_apart(next(op for op in module.ops if isinstance(op, FuncOp)), PARTS)
    assert str(module) == before


def test_every_fused_op_has_a_case() -> None:
    assert {
        type(next(iter(module_of(*case).ops)).body.block.first_op) for case in CASES.values()
    } == {*PARTS}
