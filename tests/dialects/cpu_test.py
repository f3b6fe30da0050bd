"""The cpu dialect: forms that parse back, contracts that refuse, numbers that match the header."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr, TensorType, f16, f32, i8, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.backends.c.program import KV_FORMATS
from mllm_compiler.dialects import cpu, make_context
from mllm_compiler.dialects.cpu import elementwise
from mllm_compiler.dialects.cpu.coded import FORMATS
from mllm_compiler.dialects.cpu.conv import POOLS
from mllm_compiler.dialects.cpu.linalg import ACTIVATIONS, REDUCTIONS
from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.mllm import BlobAttr
from mllm_compiler.dialects.types import ui8

HEADER = Path(__file__).parents[2] / "runtime_stub/include/mllm_program.h"


def value(*shape: int, element: object = f32) -> SSAValue:
    return test.TestOp(result_types=[TensorType(element, shape)]).results[0]  # type: ignore[arg-type]


def t(*shape: int) -> TensorType:
    return TensorType(f32, shape)


T = Dim.symbol("sequence_length")


def examples() -> list[cpu.CpuOp]:
    """One op of each class, with absent and present optional operands."""
    x, row, ids = value(1, 3, 16), value(16), value(1, 3, element=i64)
    heads = {"heads": 4, "kv_heads": 2, "scale": 1 / 3, "causal": True, "window": 0}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}
    conv = {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "dilations": [1]}
    image = value(1, 3, 28, 28)
    resize = {"mode": "cubic", "coordinates": "half_pixel", "cubic_coeff": -0.75, "scale": 0.0}
    return [
        cpu.F32LinearOp.call([x, value(1, 16, 16), None], t(1, 3, 8), n=8, activation="silu"),
        cpu.F32LinearOp.call([x, value(1, 16, 16), row], t(1, 3, 16), n=16, activation="none"),
        cpu.F32MatmulOp.call([x, value(1, 5, 16)], t(1, 3, 5), transpose_b=True),
        cpu.F32LayerNormOp.call([x, None, row], t(1, 3, 16), epsilon=1e-5),
        cpu.F32RmsNormOp.call([x, row], t(1, 3, 16), epsilon=1e-6),
        cpu.F32SoftmaxOp.call([x], t(1, 3, 16), axis=2),
        cpu.F32ReduceOp.call([x], t(1, 16), kind="mean", axes=[1]),
        cpu.CumsumOp.call([x], t(1, 3, 16), axis=1, exclusive=False, reverse=True),
        cpu.F32SelectiveScanOp.call(
            [x, x, value(16, 4), value(1, 3, 4), value(1, 3, 4), value(1, 16, 4)],
            [t(1, 3, 16), t(1, 16, 4)],
        ),
        cpu.TopKOp.call([x], t(1, 2, 16), axis=1, smallest=True, by_index=False, part="values"),
        cpu.F32RopeOp.call([x, ids, value(2)], t(1, 3, 16), heads=4, interleaved=False),
        cpu.F32AttentionOp.call(
            [x, value(1, 7, 8), value(1, 7, 8), None, value(1, 1, 3, 7)], t(1, 3, 16), **heads
        ),
        cpu.F32KvStoreOp.call([value(1, 3, 8), value(1, 3, 8), None], None, layer=1, kv_heads=2),
        cpu.F32KvStoreOp.call([x, x, value(2, 8, element=f16)], None, layer=1, kv_heads=2, bits=4),
        cpu.F32PagedAttentionOp.call([x, ids, None], t(1, 3, 16), layer=1, **heads),
        cpu.F32ElementwiseOp.call([x, row], t(1, 3, 16), program="in0 in1 add 0.5 mul"),
        cpu.I64ElementwiseOp.call([ids], ids.type, program="in0 3 add"),
        cpu.F32EmbeddingOp.call([ids, value(2, 16, 16)], t(1, 3, 16)),
        cpu.GatherOp.call([x, value(2, element=i64)], t(1, 2, 16), axis=1),
        cpu.TransposeOp.call([x], t(3, 1, 16), perm=[1, 0, 2]),
        cpu.SliceOp.call([x], t(1, 1, 16), starts=DimsAttr((Dim(), T - 1, Dim())), steps=[1, 1, 1]),
        cpu.ConcatOp.call([x, x], t(1, 6, 16), axis=1),
        cpu.BroadcastOp.call([row], t(1, 3, 16)),
        cpu.CopyOp.call([x], t(1, 3, 16)),
        cpu.CastOp.call([ids], t(1, 3)),
        cpu.IotaOp.call([], TensorType(i64, [3]), start=DimsAttr((T,)), step=1),
        cpu.PadOp.call([x], t(1, 5, 16), before=[0, 1, 0], value=0),
        cpu.F32PatchEmbedOp.call([image, value(1, 588, 16), row], t(1, 4, 16), patch=14, n=16),
        cpu.F32ConvOp.call(
            [value(1, 4, 9), value(1, 12, 16), None],
            t(1, 16, 5),
            **conv,
            groups=1,
            out_channels=16,
            activation="none",
        ),
        cpu.F32ResizeOp.call([image], t(1, 3, 7, 28), axis=2, **resize),
        cpu.F32PoolOp.call([image], t(1, 3, 14, 14), kind="max", **pool, count_include_pad=False),
        *coded_examples(),
        cpu.AliasOp.call([x], t(3, 16)),
        cpu.DeviceCallOp.call([x], [t(3), t(4)], device="tflite", callee=SymbolRefAttr("f")),
    ]


CODED = {"n": 20, "code": "ui4", "zero_code": "i8", "block_size": 8}
"""A weight [20, 15] of 4 bits in two blocks, their zero points bytes."""


def coded_examples() -> list[cpu.CpuOp]:
    """The ops on codes."""
    x, codes, real = value(1, 3, 15), value(1, 3, 15, element=i8), value()
    weight = (value(2, 2, 16, 4, element=ui8), value(2, 2, 16, element=f16))
    zero, kind = value(2, 2, 16, element=i8), TensorType(i8, (1, 3, 15))
    window = {"strides": [1], "pads": [0, 0], "dilations": [1], "groups": 1}
    return [
        cpu.QuantizedLinearOp.call(
            [codes, value(1, 3, 2), *weight, zero, None, value(20)], t(1, 3, 20), **CODED
        ),
        cpu.F32DequantizedLinearOp.call(
            [x, *weight, None, value(20)], t(1, 3, 20), **CODED, activation="silu"
        ),
        cpu.F32DequantizedEmbeddingOp.call(
            [value(1, 3, element=i64), weight[0], real, None], t(1, 3, 15), **CODED
        ),
        cpu.QuantizeOp.call([x, value(2, 1), None], kind, axis=2, block_size=8),
        cpu.DequantizeOp.call([codes, real, None], t(1, 3, 15), axis=-1, block_size=0),
        cpu.DynamicQuantizeOp.call([x], [kind, t(1, 3, 2)], axis=2, block_size=8),
        cpu.UnpackOp.call([value(2, element=ui8)], TensorType(i8, (1, 3)), code="i4"),
        cpu.IntegerMatmulOp.call(
            [codes, value(15, 4, element=i8), None, value(1, 4, element=i8)],
            TensorType(i32, (1, 3, 4)),
        ),
        cpu.IntegerConvOp.call(
            [codes, value(2, 3, 4, element=i8), None, value(2, element=i8)],
            TensorType(i32, (1, 2, 12)),
            **window,
        ),
    ]


def module_of(op: cpu.CpuOp) -> ModuleOp:
    sources = dict.fromkeys(v.owner for v in op.operands)
    return ModuleOp([*sources, op])  # type: ignore[list-item]


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("op", examples(), ids=lambda op: op.name)
def test_both_forms_parse_back(op: cpu.CpuOp, generic: bool) -> None:
    module = module_of(op.clone() if op.parent else op)
    module.verify()
    text = StringIO()
    Printer(text, print_generic_format=generic).print_op(module)
    context = make_context()
    context.load_dialect(test.Test)
    again = Parser(context, text.getvalue()).parse_module()
    again.verify()
    assert again.is_structurally_equivalent(module)
    for child in [*module.body.block.ops]:
        child.detach()


def test_every_kernel_op_has_an_example() -> None:
    assert {type(op) for op in examples()} == {*cpu.KERNEL_OPS, cpu.AliasOp}


def test_parameters_are_the_properties_in_order() -> None:
    ops = {op.name: op for op in examples()}
    assert ops["cpu.f32_attention"].params() == [
        ("i64", 4),
        ("i64", 2),
        ("f64", 1 / 3),
        ("i64", 1),
        ("i64", 0),
    ]
    slice_params = ops["cpu.slice"].params()
    assert slice_params[:4] == [("i64", 3), ("expr", Dim()), ("expr", T - 1), ("expr", Dim())]
    assert ops["cpu.iota"].params() == [("expr", T), ("i64", 1)]
    assert ops["cpu.f32_elementwise"].params()[:3] == [("i64", 6), ("i64", 0), ("i64", 1)]


def broken() -> list[tuple[str, cpu.CpuOp]]:
    x, ids = value(1, 3, 16), value(1, 3, element=i64)
    orders = {"smallest": False, "by_index": False}
    resize = {"mode": "linear", "coordinates": "asymmetric", "cubic_coeff": 0.0, "scale": 2.0}
    return [
        ("C0", cpu.F32LinearOp.call([x, value(1, 16, 16), None], t(1, 3, 8), n=8, activation="x")),
        (
            "C1",
            cpu.F32LinearOp.call([x, value(2, 16, 16), None], t(1, 3, 8), n=8, activation="none"),
        ),
        ("C2", cpu.F32LinearOp.call([x, value(1, 16, 16), x], t(1, 3, 8), n=8, activation="none")),
        ("C3", cpu.F32LinearOp.call([x, value(1, 16, 16), None], t(1, 9), n=8, activation="none")),
        ("C2", cpu.F32MatmulOp.call([x, value(1, 5, 16)], t(1, 3, 5), transpose_b=False)),
        ("C1", cpu.F32RmsNormOp.call([x, value(3)], t(1, 3, 16), epsilon=1e-6)),
        ("C2", cpu.F32LayerNormOp.call([x, None, None], t(1, 3), epsilon=1e-6)),
        ("C1", cpu.F32SoftmaxOp.call([x], t(1, 3, 16), axis=3)),
        ("C1", cpu.F32ReduceOp.call([x], t(1), kind="sum", axes=[2, 1])),
        ("C1", cpu.F32ResizeOp.call([x], t(1, 2, 16), axis=3, **resize)),
        ("C2", cpu.F32ResizeOp.call([x], t(1, 2, 8), axis=1, **resize)),
        ("C1", cpu.TopKOp.call([x], t(1, 2, 16), axis=3, **orders, part="values")),
        ("C2", cpu.TopKOp.call([x], t(1, 2, 8), axis=1, **orders, part="values")),
        ("C2", cpu.TopKOp.call([x], t(1, 2, 16), axis=1, **orders, part="indices")),
        ("C2", cpu.F32RopeOp.call([x, ids, value(2)], t(1, 3, 16), heads=5, interleaved=False)),
        ("C1", cpu.F32KvStoreOp.call([x, value(1, 3, 16), None], None, layer=0, kv_heads=3)),
        ("C2", cpu.F32KvStoreOp.call([x, x, None], None, layer=0, kv_heads=2, bits=8)),
        ("C2", cpu.F32KvStoreOp.call([x, x, value(2, 8)], None, layer=0, kv_heads=2, bits=8)),
        ("C1", cpu.F32ElementwiseOp.call([x], t(1, 3, 16), program="in1")),
        ("C2", cpu.F32ElementwiseOp.call([x], t(1, 3, 16), program="in0 in0")),
        ("C3", cpu.F32ElementwiseOp.call([x], t(2, 3, 16), program="in0 neg")),
        ("C4", cpu.I64ElementwiseOp.call([ids], ids.type, program="in0 tanh")),
        ("C2", cpu.GatherOp.call([x, ids], t(1, 3, 16), axis=1)),
        ("C1", cpu.TransposeOp.call([x], t(1, 3, 16), perm=[0, 1, 1])),
        ("C1", cpu.SliceOp.call([x], t(1), starts=DimsAttr((Dim(),)), steps=[1])),
        ("C1", cpu.IotaOp.call([], t(3, 1), start=DimsAttr((T,)), step=1)),
        ("C1", cpu.AliasOp.call([ids], t(3))),
        *broken_codes(),
    ]


def broken_codes() -> list[tuple[str, cpu.CpuOp]]:
    x, codes, ids = value(1, 3, 15), value(1, 3, 15, element=i8), value(1, 3, element=i64)
    w, scale, linear = value(2, 2, 16, 4, element=ui8), value(2, 2, 16), cpu.F32DequantizedLinearOp
    rows, none, y = value(1, 3, 1), {"activation": "none"}, t(1, 3, 20)
    quantised, kind = cpu.QuantizedLinearOp, TensorType(i8, (1, 3, 15))
    matrix, window = value(15, 4, element=i8), {"strides": [1], "dilations": [1], "groups": 1}
    eight, filters = {**CODED, "code": "i8"}, value(2, 3, 4, element=i8)
    return [
        ("C1", linear.call([x, w, scale, None, None], y, **eight, **none)),
        ("C2", linear.call([x, w, value(2, 3, 16), None, None], y, **CODED, **none)),
        ("C2", linear.call([x, w, scale, scale, None], y, **CODED | {"zero_code": "i4"}, **none)),
        ("C3", linear.call([x, w, scale, None, None], y, **CODED | {"block_size": -1}, **none)),
        ("C0", linear.call([x, w, scale, None, None], y, **CODED | {"code": "i5"}, **none)),
        ("C4", linear.call([x, w, scale, None, value(9)], y, **CODED, **none)),
        ("C5", linear.call([x, w, scale, None, None], t(1, 3), **CODED, **none)),
        ("C4", quantised.call([codes, value(9), w, scale, None, None, None], y, **CODED)),
        ("C5", quantised.call([codes, rows, w, scale, None, None, value(9)], y, **CODED)),
        ("C6", quantised.call([codes, rows, w, scale, None, None, None], t(3, 20), **CODED)),
        ("C4", cpu.F32DequantizedEmbeddingOp.call([ids, w, scale, None], t(9, 15), **CODED)),
        ("C1", cpu.QuantizeOp.call([x, rows, None], TensorType(i8, (3,)), axis=-1, block_size=0)),
        ("C1", cpu.DequantizeOp.call([codes, rows, None], t(3), axis=-1, block_size=0)),
        ("C1", cpu.DynamicQuantizeOp.call([x], [TensorType(i8, (3,)), t()], axis=-1, block_size=0)),
        ("C1", cpu.UnpackOp.call([value(3, element=ui8)], TensorType(i8, (1, 3)), code="i4")),
        ("C1", cpu.IntegerMatmulOp.call([codes, filters, None, None], kind)),
        ("C2", cpu.IntegerMatmulOp.call([codes, matrix, None, value(4, element=i8)], kind)),
        ("C1", cpu.IntegerConvOp.call([codes, filters, None, None], kind, pads=[0], **window)),
        ("C1", cpu.DeviceCallOp.call([x], [t(3)], device="", callee=SymbolRefAttr("f"))),
        (
            "C2",
            cpu.DeviceCallOp.call(
                [x], [tensor_of(f32, (T,))], device="d", callee=SymbolRefAttr("f")
            ),
        ),
        ("C2", cpu.IntegerConvOp.call([codes, filters, ids, None], kind, pads=[0, 0], **window)),
    ]


@pytest.mark.parametrize(("number", "op"), broken(), ids=lambda v: getattr(v, "name", v))
def test_a_broken_contract_names_its_constraint(number: str, op: cpu.CpuOp) -> None:
    with pytest.raises(VerifyException, match=rf"{op.name}' {number}:"):
        op.verify()


def enum(prefix: str) -> dict[str, int]:
    """The members of the header's enumerations that begin with a prefix."""
    found = re.findall(rf"\b{prefix}_(\w+) = (\d+)", HEADER.read_text())
    return {name.lower(): int(number) for name, number in found}


def test_elementwise_numbers_are_the_headers() -> None:
    ours = {
        "load": elementwise.LOAD,
        "const": elementwise.CONST,
        "iconst": elementwise.ICONST,
        "select": elementwise.SELECT,
        **elementwise.UNARY,
        **elementwise.BINARY,
    }
    assert ours == enum("MLLM_EW")


def test_enumerations_are_the_headers() -> None:
    assert {n: i for i, n in enumerate(ACTIVATIONS)} == enum("MLLM_ACTIVATION")
    assert {n: i for i, n in enumerate(REDUCTIONS)} == enum("MLLM_REDUCE")
    assert {n: i for i, n in enumerate(POOLS)} == enum("MLLM_POOL")
    assert {n.replace("ui", "u"): i for i, n in enumerate(FORMATS)} == enum("MLLM_CODES")


def test_formats_of_a_cache_are_the_headers() -> None:
    names = {bits: str(bits) if bits < 16 else f"f{bits}" for bits in KV_FORMATS}
    assert {names[bits]: number for bits, number in KV_FORMATS.items()} == enum("MLLM_KV")


def test_kernels_are_the_runtimes() -> None:
    declared = re.findall(r"mllm_k_(\w+)\(", HEADER.with_name("mllm_kernels.h").read_text())
    assert {op.kernel() for op in cpu.KERNEL_OPS} == set(declared)


@pytest.mark.parametrize(
    "text", ["in0 in1 add", "in0 0.1 mul", "in0 -3 add", "in0 inf min", "1e-30"]
)
def test_programs_spell_back(text: str) -> None:
    program = elementwise.words(text)
    assert elementwise.words(elementwise.spell(program)) == program


@pytest.mark.parametrize("element", [f16, i64])
def test_only_codes_stand_in_quads(element: Attribute) -> None:
    digest = "sha256:" + "0" * 64
    made = cpu.WeightOp(BlobAttr.of(digest, element, (4, 4)), "quads16", "w")
    with pytest.raises(VerifyException, match=r"C1: layout is plain.*quads16"):
        made.verify_()
    cpu.WeightOp(BlobAttr.of(digest, i8, (4, 4)), "quads16", "w").verify_()
