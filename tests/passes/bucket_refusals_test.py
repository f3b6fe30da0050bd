"""Each op that padding would spoil is refused by name, and what has no size or too many graphs."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import UNKNOWN, tensor_of
from mllm_compiler.dialects.locations import named as location
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BoundAttr,
    Coordinates,
    PipelineOp,
    PoolKind,
    ReduceKind,
    ResizeMode,
)
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.bucket_shapes import BucketShapes
from mllm_compiler.passes.graphs import block_of, named
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph
from tests.passes.bucket_rules_test import (
    BOUNDS,
    IMAGE,
    OTHER,
    TOKENS,
    Build,
    P,
    T,
    cross_attention,
    graph_of,
    pooled,
)


def resized(g: Graph) -> SSAValue:
    kind = tensor_of(f32, [1, 4, T * 2])
    linear = (ResizeMode.LINEAR, Coordinates.HALF_PIXEL)
    return g.add(mllm.ResizeOp(*linear, g["x"], kind))


def joined_twice(g: Graph) -> SSAValue:
    return g.add(mllm.ConcatOp([g["x"], g["x"]], 1))


def scaled_over_tokens(g: Graph) -> SSAValue:
    turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
    ones = g.add(mllm.ReduceOp(ReduceKind.MAX, g["x"], (0, 2), keepdims=False))
    return g.add(mllm.LayerNormOp(turned, ones, epsilon=1e-5))


def features_before_tokens(g: Graph) -> SSAValue:
    turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
    return g.add(mllm.ReshapeOp(turned, (1, T * 8)))


def two_streams_added(g: Graph) -> SSAValue:
    return g.add(mllm.BinaryOp(BinaryKind.ADD, g["x"], g["s"]))


def cache_of_four_bits(g: Graph) -> SSAValue:
    past, scale = g["past"], mllm.ConstantOp.of(np.ones((2, 4), np.float16))
    present = tensor_of(f32, [1, 2, P + T, 4])
    attention = mllm.CachedAttentionOp(
        *(g["x"], g["x"], g["x"], past, past),
        heads=2,
        kv_heads=2,
        scale=0.5,
        causal=True,
        results=[g["x"].type, present, present],
        k_scale=g.add(scale),
        cache_bits=4,
    )
    return g.add(attention)


REFUSED: dict[str, tuple[dict, Build, str]] = {
    "resize": (IMAGE, resized, "'mllm.resize' cannot be padded: nothing is known of its padding"),
    "twice": (TOKENS, joined_twice, "padding would stand between t and t elements"),
    "norm": (TOKENS, scaled_over_tokens, "it scales the elements along t"),
    "reshape": (TOKENS, features_before_tokens, "it joins or splits an axis of t elements"),
    "streams": (OTHER, two_streams_added, "extents u and t may pad differently"),
    "average": (IMAGE, pooled(PoolKind.AVERAGE, 1, 1), "an average over the end counts fewer"),
    "left": (
        {"x": tensor_of(f32, [1, T, 8]), "past": tensor_of(f32, [1, P, 8])},
        lambda g: g.add(mllm.ConcatOp([g["x"], g["past"], g["x"]], 1)),
        "padding would stand between",
    ),
    "pages": (
        {"x": tensor_of(f32, [1, T, 8]), "past": tensor_of(f32, [1, 2, P, 4])},
        cache_of_four_bits,
        "padding would move the pages of its cache",
    ),
    "importance": (
        TOKENS,
        lambda g: g.add(mllm.TokenImportanceOp(g["x"], g["x"], heads=2)),
        "it mixes the elements along t",
    ),
    "patches": (
        {"x": tensor_of(f32, [1, 3, T, 8])},
        lambda g: g.add(mllm.PatchEmbedOp(g["x"], g.weight("w", 8, 3, 4, 4))),
        "it mixes the elements along t",
    ),
    "chosen": (TOKENS, lambda g: g.add(mllm.TopKOp(g["x"], T, 1)), "it counts along t"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_op_that_would_mix_padding_is_named(name: str) -> None:
    arguments, build, words = REFUSED[name]
    graph = graph_of(arguments, build, WeightStore())
    module = ModuleOp([graph, PipelineOp("p", bounds=BOUNDS)])
    with pytest.raises(CompileError) as caught:
        run_passes(module, [BucketShapes()], make_context(WeightStore()))
    assert caught.value.code == "MLC-P002"
    assert words in str(caught.value)
    assert str(caught.value).startswith("/g/")


def test_a_shape_that_data_decide_is_refused() -> None:
    function = FuncOp("g", ([tensor_of(f32, [T, 8])], []))
    some = mllm.ReshapeOp(block_of(function).args[0], (UNKNOWN, 4))
    some.location = location("/some")
    block_of(function).add_ops([some, ReturnOp(some.result)])
    function.properties |= {"arg_attrs": named(["x"]), "res_attrs": named(["y"])}
    function.update_function_type()
    module = ModuleOp([function, PipelineOp("p", bounds=BOUNDS)])
    with pytest.raises(CompileError, match=r"/some: error: .* its shape depends on data"):
        run_passes(module, [BucketShapes()], make_context(WeightStore()))


def test_too_many_graphs_are_refused() -> None:
    graph = graph_of(OTHER, cross_attention, WeightStore())
    sizes = tuple(range(1, 18))
    bounds = [BoundAttr.of(s, 17, buckets=sizes) for s in ("t", "u")]
    module = ModuleOp([graph, PipelineOp("p", bounds=bounds)])
    with pytest.raises(CompileError, match="g: error: the buckets make 289 graphs"):
        run_passes(module, [BucketShapes()], make_context(WeightStore()))
