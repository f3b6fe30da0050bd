"""Quantised ops on the C runtime: what their codes and sums are equals the reference bit for bit.

The truth is the NumPy meaning of the `mllm` ops, which `tests/reference/mllm_quant_test.py` holds
to ONNX Runtime; the lowered module on the reference is compared on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import TensorType, f32, i8, i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.types import ELEMENTS, shape_of, ui8
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.plan_memory import PlanMemory
from mllm_compiler.reference import run_function
from mllm_compiler.reference.cpu import run_lowered
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, module_of

Array = NDArray[np.generic]
Build = Callable[[Graph], dict[str, SSAValue]]

NARROW = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, np.int8, np.uint8]


def both(inputs: dict[str, Array], build: Build, *, exact: bool = True) -> list[str]:
    """The kernels of a graph, after three levels were run on the same inputs."""
    types: dict[str, Attribute] = {
        name: TensorType(ELEMENTS[a.dtype], a.shape) for name, a in inputs.items()
    }
    g = Graph("main", "graph", WeightStore(), types)
    module = module_of(g.finish(build(g)))
    module.verify()
    want = run_function(module, "main", inputs, g.store)
    LowerToCpu().apply(Context(), module)
    module.verify()
    lowered = run_lowered(module, "main", inputs, g.store)
    PlanMemory().apply(Context(), module)
    kernels = [op.kernel() for op in block_of(g.func).ops if isinstance(op, cpu.CpuOp)]
    with CRunner(emit(module), g.store, threads=2) as runner:
        got = runner.run("main", inputs)
    for name, expected in want.items():
        np.testing.assert_array_equal(lowered[name], expected)
        if exact:
            np.testing.assert_array_equal(got[name], expected)
        else:
            atol = 2e-6 * np.abs(expected).max()
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=atol)
    return kernels


def stored(g: Graph, array: Array) -> SSAValue:
    """An array as a weight; one of at most 64 elements as a constant."""
    if array.size <= 64:
        return g.add(mllm.ConstantOp.of(array))
    blob = mllm.BlobAttr.of(g.store.add(array), ELEMENTS[array.dtype], array.shape)
    return g.add(mllm.WeightOp(blob, "w"))


def codes(g: Graph, dtype: type[np.generic], *shape: int) -> SSAValue:
    limits = ml_dtypes.iinfo(dtype)
    made = g.rng.integers(limits.min, limits.max, shape, endpoint=True)
    return stored(g, made.astype(dtype))


def scales(g: Graph, dtype: type[np.generic], *shape: int) -> SSAValue:
    return stored(g, g.rng.uniform(0.001, 0.1, shape).astype(dtype))


SIDES = {
    "one": ((), ()),
    "rows": ((70, 1), (70, 1)),
    "blocks": ((70, 3), (70, 3)),
    "rows of blocks": ((70, 1), (70, 3)),
    "columns of blocks": ((1, 3), (1, 1)),
}
"""Shapes of scale and zero point of a weight [70, 45] in blocks of 16."""


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.__name__)
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("tokens", [1, 5])
def test_a_product_of_codes(dtype: type[np.generic], sides: str, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    x = rng.standard_normal((2, tokens, 45)).astype(np.float32)
    scale, zero = SIDES[sides]

    def build(g: Graph) -> dict[str, SSAValue]:
        in_blocks = "blocks" in sides
        size = 16 if in_blocks else None
        made = mllm.DynamicQuantizeOp(g["x"], ui8, symmetric=False, axis=2, block_size=size)
        g.add(made)
        assert made.zero_point is not None
        y = mllm.QuantizedLinearOp(
            made.codes,
            made.scale,
            codes(g, dtype, 70, 45),
            scales(g, np.float16, *scale),
            x_zero=made.zero_point,
            weight_zero=codes(g, dtype, *zero),
            bias=g.weight("bias", 70),
            block_size=size,
        )
        return {"y": g.add(y)}

    kernels = both({"x": x}, build)
    assert kernels[-1] == "quantized_linear"
    assert "unpack" not in kernels or sides == "columns of blocks" or sides == "rows of blocks"


def real(g: Graph) -> SSAValue:
    return g.add(mllm.LinearOp(g["x"], g.weight("w", 70, 45), g.weight("bias", 70)))


def real_by_codes(g: Graph) -> SSAValue:
    weight = mllm.DequantizeOp(codes(g, np.int8, 70, 45), scales(g, np.float32, 70, 1))
    return g.add(mllm.LinearOp(g["x"], g.add(weight), g.weight("bias", 70)))


def by_codes(g: Graph) -> SSAValue:
    made = mllm.DynamicQuantizeOp(g["x"], i8, symmetric=True, axis=2)
    g.add(made)
    sides = codes(g, np.int8, 70, 45), scales(g, np.float16, 70, 1)
    bias = g.weight("bias", 70)
    return g.add(mllm.QuantizedLinearOp(made.codes, made.scale, *sides, bias=bias))


def cut(g: Graph, y: SSAValue, *columns: int) -> dict[str, SSAValue]:
    """The columns of a product between some, each as a result."""
    dims = shape_of(y)
    return {
        f"y{start}": g.add(mllm.SliceOp(y, (0, 0, start), (*dims[:2], end - start)))
        for start, end in itertools.pairwise(columns)
    }


PRODUCTS = {"real": real, "real by codes": real_by_codes, "codes by codes": by_codes}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_columns_of_a_product_are_its_results(product: str, tokens: int) -> None:
    x = np.random.default_rng(tokens).standard_normal((2, tokens, 45)).astype(np.float32)
    exact, make = product == "codes by codes", PRODUCTS[product]
    kernels = both({"x": x}, lambda g: cut(g, make(g), 0, 16, 48, 70), exact=exact)
    assert "slice" not in kernels
    assert sum(name.endswith("linear") for name in kernels) == 1


@pytest.mark.parametrize("columns", [(0, 8, 70), (0, 16, 48), (16, 48, 70)])
def test_columns_are_copied_where_a_product_is_not_cut_at_panels(columns: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).standard_normal((1, 3, 45)).astype(np.float32)
    kernels = both({"x": x}, lambda g: cut(g, by_codes(g), *columns))
    assert kernels.count("slice") == 2


def test_columns_are_copied_where_the_whole_product_is_read_too() -> None:
    x = np.random.default_rng(7).standard_normal((1, 3, 45)).astype(np.float32)

    def build(g: Graph) -> dict[str, SSAValue]:
        y = by_codes(g)
        return {"y": y, **cut(g, y, 0, 16, 70)}

    assert both({"x": x}, build).count("slice") == 2


@pytest.mark.parametrize("x_zero", [(), (5, 1), (1, 1)])
def test_rows_may_share_what_their_codes_mean(x_zero: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (2, 5, 40)).astype(np.uint8)
    zero = rng.integers(0, 256, x_zero).astype(np.uint8)

    def build(g: Graph) -> dict[str, SSAValue]:
        scale = scales(g, np.float32, *x_zero[::-1][:1])
        made = mllm.QuantizedLinearOp(
            g["x"], scale, codes(g, np.int8, 24, 40), scales(g, np.float32, 24, 1), x_zero=g["z"]
        )
        return {"y": g.add(made)}

    both({"x": x, "z": zero}, build)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.__name__)
@pytest.mark.parametrize("sides", SIDES)
def test_a_weight_stays_codes(dtype: type[np.generic], sides: str) -> None:
    """The product is of real numbers and has their tolerance; the rows are equal."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 3, 45)).astype(np.float32)
    ids = rng.integers(0, 70, (1, 3))
    scale, zero = SIDES[sides]

    def weight(g: Graph) -> SSAValue:
        in_blocks = {"axis": 1, "block_size": 16} if "blocks" in sides else {}
        sides_ = scales(g, np.float32, *scale), codes(g, dtype, *zero)
        return g.add(mllm.DequantizeOp(codes(g, dtype, 70, 45), *sides_, **in_blocks))

    kernels = both({"x": x}, lambda g: {"y": g.add(mllm.LinearOp(g["x"], weight(g)))}, exact=False)
    assert kernels[-1] == "f32_dequantized_linear"
    assert "dequantize" not in kernels
    for make in (
        lambda g: mllm.EmbeddingOp(weight(g), g["ids"]),
        lambda g: mllm.GatherOp(weight(g), g["ids"], 0),
    ):
        kernels = both({"ids": ids}, lambda g, make=make: {"y": g.add(make(g))})
        assert kernels[-1] == "f32_dequantized_embedding"


def test_an_activation_is_the_epilogue_of_a_product_with_codes() -> None:
    x = np.random.default_rng(6).standard_normal((1, 3, 32)).astype(np.float32)

    def build(g: Graph) -> dict[str, SSAValue]:
        w = g.add(mllm.DequantizeOp(codes(g, np.int8, 24, 32), scales(g, np.float32, 24, 1)))
        gate = mllm.GatedMlpOp(mllm.Activation.SILU, g["x"], w, w, g.weight("down", 32, 24))
        return {"y": g.add(gate)}

    kernels = both({"x": x}, build, exact=False)
    linear = "f32_dequantized_linear"
    assert kernels == [linear, linear, "f32_elementwise", "f32_linear"]


def test_head_and_embedding_share_their_codes() -> None:
    rng = np.random.default_rng(7)
    given = {
        "x": rng.standard_normal((1, 3, 32)).astype(np.float32),
        "ids": rng.integers(0, 90, (1, 3)),
    }
    types = {"x": TensorType(f32, (1, 3, 32)), "ids": TensorType(i64, (1, 3))}
    g = Graph("main", "graph", WeightStore(), types)
    table = g.add(
        mllm.DequantizeOp(
            codes(g, ml_dtypes.uint4, 90, 32), scales(g, np.float16, 90, 2), axis=1,
            block_size=16, element=f32,
        )
    )  # fmt: skip
    results = {
        "y": g.add(mllm.LinearOp(g["x"], table)),
        "row": g.add(mllm.EmbeddingOp(table, g["ids"])),
    }
    module = module_of(g.finish(results))
    want = run_function(module, "main", given, g.store)
    LowerToCpu().apply(Context(), module)
    PlanMemory().apply(Context(), module)
    artifact = emit(module)
    assert [(w.dtype, w.layout, w.nbytes) for w in artifact.weights] == [
        ("ui4", "quads16", 96 * 32 // 2),
        ("f16", "panel16", 96 * 2 * 2),
    ]
    with CRunner(artifact, g.store) as runner:
        got = runner.run("main", given)
    np.testing.assert_array_equal(got["row"], want["row"])
    np.testing.assert_allclose(got["y"], want["y"], rtol=0, atol=2e-6 * np.abs(want["y"]).max())


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("zero", [True, False])
def test_rows_of_codes_and_scales_are_looked_up_in_the_panels_of_the_table(
    size: int | None, zero: bool
) -> None:
    ids = np.random.default_rng(13).integers(0, 70, (1, 3))

    def build(g: Graph) -> dict[str, SSAValue]:
        blocks = 3 if size else 1
        tables = [codes(g, np.int8, 70, 45), scales(g, np.float16, 70, blocks)]
        tables += [codes(g, np.int8, 70, blocks)] if zero else []
        rows = [g.add(mllm.EmbeddingOp(table, g["ids"])) for table in tables]
        point = rows[2] if zero else None
        where = {"axis": 2, "block_size": size} if size else {}
        return {"y": g.add(mllm.DequantizeOp(*rows[:2], point, **where, element=f32))}

    assert both({"ids": ids}, build) == ["f32_dequantized_embedding"]


def test_rows_of_codes_with_scales_of_other_rows_are_gathered() -> None:
    rng = np.random.default_rng(14)
    given: dict[str, Array] = {n: rng.integers(0, 70, (3,)) for n in ("ids", "others")}

    def build(g: Graph) -> dict[str, SSAValue]:
        row = g.add(mllm.EmbeddingOp(codes(g, np.int8, 70, 45), g["ids"]))
        scale = g.add(mllm.EmbeddingOp(scales(g, np.float32, 70, 1), g["others"]))
        return {"y": g.add(mllm.DequantizeOp(row, scale))}

    assert "dequantize" in both(given, build)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("axis", "size"), [(None, None), (1, None), (2, None), (2, 16), (1, 2)])
def test_scales_from_the_data(symmetric: bool, axis: int | None, size: int | None) -> None:
    x = np.random.default_rng(8).standard_normal((2, 5, 45)).astype(np.float32) * 7

    def build(g: Graph) -> dict[str, SSAValue]:
        made = mllm.DynamicQuantizeOp(g["x"], i8, symmetric=symmetric, axis=axis, block_size=size)
        g.add(made)
        return {f"y{i}": r for i, r in enumerate(made.results)}

    both({"x": x}, build)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize(
    ("side", "blocks"),
    [((), {}), ((5, 1), {}), ((45,), {}), ((2, 5, 3), {"axis": 2, "block_size": 16})],
)
def test_codes_of_given_scales_and_back(
    zero: bool, side: tuple[int, ...], blocks: dict[str, int]
) -> None:
    x = np.random.default_rng(9).standard_normal((2, 5, 45)).astype(np.float32)

    def build(g: Graph) -> dict[str, SSAValue]:
        scale, point = scales(g, np.float32, *side), codes(g, np.uint8, *side) if zero else None
        made = g.add(mllm.QuantizeOp(g["x"], scale, point, ui8, **blocks))
        return {"codes": made, "y": g.add(mllm.DequantizeOp(made, scale, point, **blocks))}

    assert both({"x": x}, build) == ["quantize", "dequantize"]


def test_a_weight_of_4_bits_that_no_kernel_reads_as_codes_is_unpacked() -> None:
    """Scales along the other axis."""
    x = np.random.default_rng(10).standard_normal((3, 45)).astype(np.float32)

    def build(g: Graph) -> dict[str, SSAValue]:
        w = mllm.DequantizeOp(codes(g, ml_dtypes.int4, 70, 45), scales(g, np.float32, 1, 45))
        return {"y": g.add(mllm.LinearOp(g["x"], g.add(w)))}

    assert both({"x": x}, build, exact=False) == ["unpack", "dequantize", "f32_matmul"]


@pytest.mark.parametrize("zeros", [((), ()), ((3, 1), (1, 7)), ((1, 1), (7,))])
def test_an_integer_product(zeros: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(11)
    given: dict[str, Array] = {
        "a": rng.integers(0, 256, (2, 3, 40)).astype(np.uint8),
        "b": rng.integers(-128, 128, (40, 7)).astype(np.int8),
        "p": rng.integers(0, 256, zeros[0]).astype(np.uint8),
        "q": rng.integers(-128, 128, zeros[1]).astype(np.int8),
    }

    def build(g: Graph) -> dict[str, SSAValue]:
        return {"y": g.add(mllm.IntegerMatmulOp(g["a"], g["b"], a_zero=g["p"], b_zero=g["q"]))}

    assert both(given, build)[-1] == "integer_matmul"


@pytest.mark.parametrize("groups", [1, 2])
def test_an_integer_convolution(groups: int) -> None:
    rng = np.random.default_rng(12)
    x = rng.integers(0, 256, (2, 4, 7, 9)).astype(np.uint8)

    def build(g: Graph) -> dict[str, SSAValue]:
        made = mllm.IntegerConvOp(
            g["x"],
            codes(g, ml_dtypes.int4, 6, 4 // groups, 3, 2),
            x_zero=codes(g, np.uint8),
            weight_zero=codes(g, ml_dtypes.int4, 6, 1, 1, 1),
            strides=[2, 1],
            pads=[1, 0, 1, 1],
            dilations=[1, 2],
            groups=groups,
        )
        return {"y": g.add(made)}

    both({"x": x}, build)


def test_new_tokens_of_a_cache_are_rounded_before_they_are_stored() -> None:
    rng = np.random.default_rng(8)
    past = ("past_k", "past_v")
    inputs: dict[str, Array] = {n: rng.standard_normal((2, 2, 5, 16), np.float32) for n in past}
    inputs |= {n: rng.standard_normal((2, 3, 32), np.float32) for n in "kv"}
    inputs["q"] = rng.standard_normal((2, 3, 64), np.float32)
    inputs["v"] *= np.array([0, 1e-9, 1e8], np.float32)[:, None]  # type: ignore[operator]

    def build(g: Graph) -> dict[str, SSAValue]:
        present = TensorType(f32, (2, 2, 8, 16))
        op = mllm.CachedAttentionOp(
            *(g[n] for n in ("q", "k", "v", *past)),
            heads=4,
            kv_heads=2,
            scale=0.25,
            causal=True,
            results=[g["q"].type, present, present],
            k_scale=stored(g, g.rng.uniform(0.5, 3, (2, 16)).astype(np.float16)),
            cache_bits=8,
        )
        g.add(op)
        return {"keys": op.present_k, "values": op.present_v}

    assert "quantize" in both(inputs, build)
