"""Each C kernel, called through a real program file, computes what the reference says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i1, i32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.program import DTYPES
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.cpu.conv import COORDINATES, MODES
from mllm_compiler.dialects.cpu.elementwise import ARITY, BINARY, INTEGER, UNARY
from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.mllm import BoundAttr, PipelineOp
from mllm_compiler.dialects.types import ELEMENTS
from mllm_compiler.passes.graphs import block_of, named
from mllm_compiler.passes.plan_memory import PlanMemory
from mllm_compiler.reference.cpu import run_lowered
from mllm_compiler.reference.panels import pack
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]
RNG = np.random.default_rng(7)


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ids(high: int, *shape: int) -> Array:
    return RNG.integers(0, high, shape)


def call(
    kind: type[cpu.CpuOp],
    operands: Sequence[Array | None],
    shape: Sequence[int],
    element: Attribute = f32,
    /,
    **properties: Value,
) -> tuple[ModuleOp, dict[str, Array]]:
    """A module whose one graph is one call of a kernel, and its inputs."""
    given = {f"x{i}": a for i, a in enumerate(operands) if a is not None}
    types = [TensorType(ELEMENTS[a.dtype], a.shape) for a in given.values()]
    func = FuncOp("main", (types, []))
    values = iter(block_of(func).args)
    arguments = [None if a is None else next(values) for a in operands]
    op = kind.call(arguments, TensorType(element, shape), **properties)
    block_of(func).add_ops([op, ReturnOp(op.results[0])])
    func.properties |= {"arg_attrs": named(given), "res_attrs": named(["y"])}
    func.update_function_type()
    return ModuleOp([func]), given


def both(module: ModuleOp, inputs: dict[str, Array]) -> tuple[Array, Array]:
    """What the C runtime and what the reference compute."""
    module.verify()
    PlanMemory().apply(Context(), module)
    store = WeightStore()
    want = run_lowered(module, "main", inputs, store)["y"]
    with CRunner(emit(module), store, threads=2) as runner:
        return runner.run("main", inputs)["y"], want


def agree(module: ModuleOp, inputs: dict[str, Array], tolerance: float = 2e-6) -> None:
    got, want = both(module, inputs)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=tolerance * scale)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 8, 16), (1, 49, 33), (5, 16, 7), (37, 50, 40)])
def test_linear(activation: str, rows: int, n: int, k: int) -> None:
    for bias in (None, real(n)):
        operands = [real(1, rows, k), pack(real(n, k)), bias]
        case = call(cpu.F32LinearOp, operands, (1, rows, n), n=n, activation=activation)
        agree(*case)


@pytest.mark.parametrize("rows", [1, 3, 37])
@pytest.mark.parametrize("widths", [(32, 16, 16), (16, 32, 5), (16,)])
def test_a_product_of_several_results_is_that_of_one(rows: int, widths: tuple[int, ...]) -> None:
    n = sum(widths)
    operands = [real(1, rows, 33), pack(real(n, 33)), real(n)]
    whole, inputs = call(cpu.F32LinearOp, operands, (1, rows, n), n=n, activation="silu")
    want, _ = both(whole, inputs)
    for part, (got, meant) in enumerate(zip(*parts_of(operands, widths), strict=True)):
        columns = want[..., sum(widths[:part]) : sum(widths[: part + 1])]
        np.testing.assert_array_equal(got, columns)
        np.testing.assert_allclose(got, meant, rtol=1e-5, atol=1e-5)


def parts_of(operands: Sequence[Array], widths: Sequence[int]) -> tuple[list[Array], list[Array]]:
    """The results of one product, by the C runtime and by the reference."""
    given = {f"x{i}": a for i, a in enumerate(operands)}
    types = [TensorType(f32, a.shape) for a in operands]
    func = FuncOp("main", (types, []))
    results = [TensorType(f32, (*operands[0].shape[:-1], n)) for n in widths]
    op = cpu.F32LinearOp.call(func.args, results, n=sum(widths), activation="silu")
    block_of(func).add_ops([op, ReturnOp(*op.results)])
    names = [f"y{i}" for i in range(len(widths))]
    func.properties |= {"arg_attrs": named(given), "res_attrs": named(names)}
    func.update_function_type()
    module = ModuleOp([func])
    PlanMemory().apply(Context(), module)
    meant = run_lowered(module, "main", given, WeightStore())
    with CRunner(emit(module), WeightStore(), threads=2) as runner:
        return list(runner.run("main", given).values()), list(meant.values())


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [((), ()), ((2, 3), (2, 3)), ((3,), (1,)), ((2, 3), (3,))])
def test_matmul(transpose_b: bool, batch: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a = real(*batch[0], 5, 19)
    b = real(*batch[1], 17, 19) if transpose_b else real(*batch[1], 19, 17)
    shape = (*np.broadcast_shapes(*batch), 5, 17)
    agree(*call(cpu.F32MatmulOp, [a, b], shape, transpose_b=transpose_b))


@pytest.mark.parametrize("width", [1, 16, 61])
def test_norms(width: int) -> None:
    x, shape = real(2, 3, width), (2, 3, width)
    agree(*call(cpu.F32RmsNormOp, [x, real(width)], shape, epsilon=1e-5))
    for sides in ([None, None], [real(width), None], [None, real(width)], [real(width)] * 2):
        agree(*call(cpu.F32LayerNormOp, [x, *sides], shape, epsilon=1e-3))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis: int) -> None:
    agree(*call(cpu.F32SoftmaxOp, [real(3, 5, 21) * 10], (3, 5, 21), axis=axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("smallest", "by_index"), [(False, False), (True, True)])
def test_top_k(axis: int, smallest: bool, by_index: bool) -> None:
    shape = tuple(2 if i == axis else n for i, n in enumerate((3, 5, 21)))
    orders = {"axis": axis, "smallest": smallest, "by_index": by_index}
    for x, kind in ((real(3, 5, 21), f32), (ids(9, 3, 5, 21), i64)):
        agree(*call(cpu.TopKOp, [x], shape, kind, **orders, part="values"))
        agree(*call(cpu.TopKOp, [x], shape, i64, **orders, part="indices"))


@pytest.mark.parametrize(
    "kind",
    ["sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"],
)
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [0, 1, 2]])
def test_reduce(kind: str, axes: list[int]) -> None:
    x = np.abs(real(4, 3, 9)) + 0.1 if kind == "log_sum" else real(4, 3, 9)
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    dropped = [n for i, n in enumerate(x.shape) if i not in axes]
    for shape in (kept, dropped):
        agree(*call(cpu.F32ReduceOp, [x], shape, kind=kind, axes=axes), tolerance=5e-6)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("half", [2, 4])
def test_rope(interleaved: bool, half: int) -> None:
    frequency = (1 / 100 ** (np.arange(half) / half)).astype(np.float32)
    operands = [real(2, 5, 24), ids(1000, 2, 5), frequency]
    case = call(cpu.F32RopeOp, operands, (2, 5, 24), heads=3, interleaved=interleaved)
    agree(*case, tolerance=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("tokens", "keys"), [(1, 1), (1, 9), (7, 7), (4, 11)])
@pytest.mark.parametrize("cached", [False, True])
def test_attention(
    causal: bool, masked: bool, biased: bool, tokens: int, keys: int, cached: bool
) -> None:
    heads, kv_heads, size = 4, 2, 6
    layout = (2, kv_heads, keys, size) if cached else (2, keys, kv_heads * size)
    mask = (RNG.random((2, keys)) < 0.7).astype(np.int64) if masked else None
    bias = real(1, heads, tokens, keys) if biased else None
    operands = [real(2, tokens, heads * size), real(*layout), real(*layout), mask, bias]
    for window in (0, 3) if causal else (0,):
        case = call(
            cpu.F32AttentionOp,
            operands,
            (2, tokens, heads * size),
            heads=heads,
            kv_heads=kv_heads,
            scale=size**-0.5,
            causal=causal,
            window=window,
        )
        agree(*case, tolerance=5e-6)


POSITIVE = {"log", "sqrt", "rsqrt", "acosh", "pow"}
SMALL = {"asin", "acos", "atanh"}


INTEGERS_ONLY = {"bitnot", "bitand", "bitor", "bitxor", "shl", "shr"}
IN_NUMPY = [d for d, e in ELEMENTS.items() if str(e) in DTYPES and d.name != "bfloat16"]
"""The element types of the runtime that arrays can be given in to its binding."""


@pytest.mark.parametrize("name", sorted((UNARY.keys() | BINARY.keys()) - INTEGERS_ONLY))
def test_f32_functions(name: str) -> None:
    count = ARITY[name]
    operands = [real(3, 1000) * 3 for _ in range(count)]
    if name in POSITIVE:
        operands = [np.abs(x) + (1 if name == "acosh" else 0.1) for x in operands]
    if name in SMALL:
        operands = [np.tanh(x).astype(np.float32) * np.float32(0.99) for x in operands]
    if name in ("and", "or", "xor", "not", "eq", "ne"):
        operands = [np.rint(x / 3).astype(np.float32) for x in operands]
    program = " ".join([*(f"in{i}" for i in range(count)), name])
    agree(*call(cpu.F32ElementwiseOp, operands, (3, 1000), program=program), tolerance=1e-5)


@pytest.mark.parametrize("name", sorted(INTEGER))
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_i64_functions(name: str, dtype: type[np.integer]) -> None:
    count = ARITY[name]
    operands: list[Array] = [RNG.integers(-9, 9, (3, 200)).astype(dtype) for _ in range(count)]
    if name in ("div", "mod", "fmod", "floordiv"):
        operands[1] = np.where(operands[1] == 0, 4, operands[1])
    if name in ("shl", "shr"):
        operands = [np.abs(x) for x in operands]
    program = " ".join([*(f"in{i}" for i in range(count)), name])
    element = ELEMENTS[np.dtype(dtype)]
    agree(*call(cpu.I64ElementwiseOp, operands, (3, 200), element, program=program))


@pytest.mark.parametrize(
    ("shapes", "program"),
    [
        ([(2, 3, 40), (40,)], "in0 in1 mul"),
        ([(2, 1, 40), (3, 1)], "in0 in1 add silu"),
        ([(1,), (5, 7)], "in0 in1 sub in1 mul 0.25 add"),
        ([(), (5, 7)], "in1 in0 div"),
        ([(4, 1, 6, 1), (1, 5, 1, 7)], "in0 in1 max"),
        ([(2100,)], "in0 square in0 mul in0 add -1.5 mul"),
        ([(3, 4)] * 8, "in0 in1 add in2 add in3 add in4 add in5 add in6 add in7 add"),
    ],
)
def test_elementwise_broadcasts(shapes: list[tuple[int, ...]], program: str) -> None:
    operands = [real(*s) for s in shapes]
    agree(*call(cpu.F32ElementwiseOp, operands, np.broadcast_shapes(*shapes), program=program))


def test_elementwise_makes_and_reads_booleans() -> None:
    a, b = real(5, 7), real(7)
    agree(*call(cpu.F32ElementwiseOp, [a, b], (5, 7), i1, program="in0 in1 lt"))
    c = real(5, 7) > 0
    agree(*call(cpu.F32ElementwiseOp, [c, a, b], (5, 7), program="in0 in1 in2 select"))
    agree(*call(cpu.I64ElementwiseOp, [c, a > 0], (5, 7), i1, program="in0 in1 and not"))
    agree(*call(cpu.I64ElementwiseOp, [ids(9, 5)], (5,), i1, program="in0 4 ge"))


@pytest.mark.parametrize("dtype", IN_NUMPY, ids=str)
def test_movement_takes_any_element(dtype: np.dtype[np.generic]) -> None:
    raw = RNG.integers(0, 2, (2, 3, 4 * dtype.itemsize), np.uint8)
    x, element = raw.view(dtype), ELEMENTS[dtype]
    agree_bits(*call(cpu.TransposeOp, [x], (4, 2, 3), element, perm=[2, 0, 1]))
    starts, steps = DimsAttr((Dim.const(1), Dim.const(0), Dim.const(3))), [1, 2, -2]
    agree_bits(*call(cpu.SliceOp, [x], (1, 2, 2), element, starts=starts, steps=steps))
    agree_bits(*call(cpu.ConcatOp, [x, x[:, :1], x], (2, 7, 4), element, axis=1))
    agree_bits(*call(cpu.BroadcastOp, [x[:, :1]], (5, 2, 3, 4), element))
    agree_bits(*call(cpu.CopyOp, [x], x.shape, element))
    agree_bits(*call(cpu.GatherOp, [x, ids(3, 2, 2)], (2, 2, 2, 4), element, axis=1))
    agree_bits(*call(cpu.PadOp, [x], (3, 2, 7), element, before=[1, -1, 2], value=1))


def agree_bits(module: ModuleOp, inputs: dict[str, Array]) -> None:
    got, want = both(module, inputs)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("source", [np.float32, np.int64, np.int32, np.bool_, np.uint8])
@pytest.mark.parametrize("element", [f32, i64, i32, i1], ids=str)
def test_cast(source: type[np.generic], element: Attribute) -> None:
    x = (np.abs(real(3, 50)) * 3).astype(source)
    agree(*call(cpu.CastOp, [x], (3, 50), element))


def test_embedding() -> None:
    table = pack(real(37, 20))
    agree_bits(*call(cpu.F32EmbeddingOp, [ids(37, 2, 5), table], (2, 5, 20)))


@pytest.mark.parametrize("n", [8, 33])
def test_patch_embed(n: int) -> None:
    pixels, weight = real(2, 3, 9, 12), pack(real(n, 3, 3, 3))
    for bias in (None, real(n)):
        agree(*call(cpu.F32PatchEmbedOp, [pixels, weight, bias], (2, 12, n), patch=3, n=n))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "pads", "dilations"),
    [
        ((2, 4, 11), [3], [1], [1, 1], [1]),
        ((1, 4, 12), [3], [2], [1, 0], [2]),
        ((2, 4, 7, 9), [3, 2], [2, 1], [1, 0, 1, 1], [1, 1]),
        ((1, 4, 6, 6), [1, 1], [1, 1], [0, 0, 0, 0], [1, 1]),
        ((1, 2, 4, 5, 6), [2, 2, 3], [1, 2, 1], [0, 1, 1, 0, 0, 1], [1, 1, 1]),
    ],
)
def test_conv(
    groups: int,
    shape: tuple[int, ...],
    kernel: list[int],
    strides: list[int],
    pads: list[int],
    dilations: list[int],
) -> None:
    out, n = 6, len(kernel)
    weight = real(out, shape[1] // groups, *kernel)
    spatial = [
        -(-(shape[2 + i] + pads[i] + pads[n + i] - dilations[i] * (kernel[i] - 1)) // strides[i])
        for i in range(n)
    ]
    for bias in (None, real(out)):
        case = call(
            cpu.F32ConvOp,
            [real(*shape), pack(weight) if groups == 1 else weight, bias],
            (shape[0], out, *spatial),
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=groups,
            out_channels=out,
            activation="none" if bias is None else "silu",
        )
        agree(*case)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("counted", [False, True])
def test_pool(kind: str, counted: bool) -> None:
    case = call(
        cpu.F32PoolOp,
        [real(2, 3, 7, 9)],
        (2, 3, 4, 4),
        kind=kind,
        kernel_shape=[3, 2],
        strides=[2, 2],
        pads=[1, 0, 1, 0],
        count_include_pad=counted,
    )
    agree(*case)


T = Dim.symbol("tokens")


@pytest.mark.parametrize("tokens", [1, 5, 8])
def test_expressions_are_evaluated_when_a_program_runs(tokens: int) -> None:
    """The last row, and the numbers 2T, 2T + 3, .. 2T + 3 (T // 2)."""
    func = FuncOp("main", ([tensor_of(f32, (T, 4))], []))
    x = block_of(func).args[0]
    starts = DimsAttr((T - 1, Dim()))
    last = cpu.SliceOp.call([x], tensor_of(f32, (1, 4)), starts=starts, steps=[1, 1])
    count = tensor_of(i64, (T // 2 + 1,))
    numbers = cpu.IotaOp.call([], count, start=DimsAttr((T * 2,)), step=3)
    flat = cpu.AliasOp.call([last.y], tensor_of(f32, (4,)))
    wide = cpu.BroadcastOp.call([flat.y], tensor_of(f32, (T, 2, 4)))
    results = {"numbers": numbers.y, "y": wide.y}
    block_of(func).add_ops([last, numbers, flat, wide, ReturnOp(*results.values())])
    func.properties |= {"arg_attrs": named(["x"]), "res_attrs": named(results)}
    func.update_function_type()
    module = ModuleOp([func, PipelineOp("p", bounds=[BoundAttr.of("tokens", 8)])])
    module.verify()
    PlanMemory().apply(Context(), module)
    store, given = WeightStore(), {"x": real(tokens, 4)}
    with CRunner(emit(module), store) as runner:
        got = runner.run("main", given)
    np.testing.assert_array_equal(got["numbers"], 2 * tokens + 3 * np.arange(tokens // 2 + 1))
    np.testing.assert_array_equal(got["y"], np.broadcast_to(given["x"][-1], (tokens, 2, 4)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_resize(mode: str, coordinates: str) -> None:
    for axis, size, scale in ((2, 9, 0.0), (3, 3, 0.0), (2, 1, 0.0), (3, 11, 1.7)):
        x = real(2, 3, 5, 7)
        shape = tuple(size if i == axis else n for i, n in enumerate(x.shape))
        how = {"mode": mode, "coordinates": coordinates, "cubic_coeff": -0.5, "scale": scale}
        agree(*call(cpu.F32ResizeOp, [x], shape, axis=axis, **how))
