"""Support tables: they name what exists, and answer with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import TensorType, f16, f32, i8, i32, i64
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.dims import UNKNOWN, Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind, UnaryKind
from mllm_compiler.dialects.rknn import OPERATORS
from mllm_compiler.dialects.types import i4
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import Cost, Limit, Rule, Target, cost_of, target, target_names, target_of
from mllm_compiler.passes.fused_parts import PARTS
from mllm_compiler.passes.lower_to_cpu.table import LOWERINGS
from mllm_compiler.passes.lower_to_qnn.table import LOWERINGS as QNN_LOWERINGS
from mllm_compiler.passes.lower_to_rknn.table import LOWERINGS as RKNN_LOWERINGS
from mllm_compiler.passes.lower_to_tfl.table import LOWERINGS as TFL_LOWERINGS
from mllm_compiler.passes.lowering import Lowering

C = target("c")


def value(*shape: int, element: Attribute = f32) -> SSAValue:
    return test.TestOp(result_types=[TensorType(element, shape)]).results[0]


DATA = {"mllm.weight", "mllm.constant"}


def test_the_targets_are_the_folders() -> None:
    assert target_names() == ("c", "gpu", "neuron", "numpy", "qnn", "rknn", "tflite")
    with pytest.raises(KeyError):
        target("npu")


@pytest.mark.parametrize(
    ("name", "lowerings"),
    [("tflite", TFL_LOWERINGS), ("rknn", RKNN_LOWERINGS), ("qnn", QNN_LOWERINGS)],
)
def test_the_table_of_a_vendor_lists_exactly_what_can_be_lowered(
    name: str, lowerings: Mapping[type[Operation], Lowering]
) -> None:
    lowered = {op.name for op in lowerings}
    whole = {op.name for op in PARTS} - lowered
    assert set(target(name).ops) - whole == lowered | DATA
    assert all(target(name).ops[op].kernel for op in whole & set(target(name).ops))


def test_a_chip_says_what_it_lacks() -> None:
    rknn = target("rknn")
    assert rknn.soc(None).name == "rk3588"
    with pytest.raises(CompileError) as unknown:
        rknn.soc("rk3578")
    assert (unknown.value.code, unknown.value.location) == ("MLC-R007", "--soc")
    assert unknown.value.exit_code == 3
    with pytest.raises(CompileError) as lacking:
        rknn.soc("rk3588").check_form("w4a16", "--soc rk3588")
    assert lacking.value.code == "MLC-R007"
    rknn.soc("rk3576").check_form("w4a16", "--soc rk3576")


def test_chips_name_operators_of_the_dialect() -> None:
    named = {op for soc in target("rknn").socs.values() for op in (*soc.host, *soc.either)}
    assert named <= set(OPERATORS)


def test_the_table_of_c_lists_exactly_what_can_be_lowered() -> None:
    """A call of a function that another device runs is no op of a model."""
    lowered = {op.name for op in LOWERINGS | PARTS} | {mllm.KvAppendOp.name}
    lowered -= {CallOp.name}
    assert set(C.ops) == lowered


def test_the_table_of_c_names_kernels_that_exist() -> None:
    kernels = {op.kernel() for op in cpu.KERNEL_OPS}
    for name, entry in C.ops.items():
        named = set(entry.kernel.replace(",", " ").split(" or "))
        assert named <= kernels | {"weights/c.bin", "none: an alias"}, name


def test_every_op_of_the_dialect_runs_on_numpy() -> None:
    bias = mllm.AlibiOp(f32, Dim.const(4), Dim.const(8), heads=2)
    assert target("numpy").supports(bias, {}).ok
    answer = C.supports(bias, {})
    assert not answer.ok
    assert answer.reason == "no kernel"
    assert "--target numpy" in answer.remedy


def test_some_types_are_for_weights_and_results_alone() -> None:
    scale, sums = value(4, 1), TensorType(i32, (2, 4))
    blob = mllm.BlobAttr.of("sha256:" + "0" * 64, i4, (4, 6))
    stored, computed = mllm.WeightOp(blob).result, value(4, 6, element=i4)
    assert C.supports(mllm.DequantizeOp(stored, scale), {}).ok
    answer = C.supports(mllm.DequantizeOp(computed, scale), {})
    assert answer.refusal is not None
    assert answer.refusal.rule is Rule.DTYPE
    assert answer.reason.startswith("no kernel for i4, only for f32")
    codes = value(2, 4, element=i8), value(4, 4, element=i8)
    product = mllm.IntegerMatmulOp(*codes)
    assert product.result.type == sums
    assert C.supports(product, {}).ok
    wide = mllm.IntegerMatmulOp(value(2, 4, element=i32), codes[1])
    assert C.supports(wide, {}).reason == "no kernel for i32, only for i8, ui8"


def refusals() -> list[tuple[str, Operation]]:
    half, number = value(2, 3, element=f16), value(2, 3, element=i32)
    odd = test.TestOp(result_types=[tensor_of(f32, (UNKNOWN, 3))]).results[0]
    wide = test.TestOp(result_types=[TensorType(f32, [1] * 6)]).results[0]
    pool = {"kernel": [1] * 4, "strides": [1] * 4, "pads": [0] * 8}
    return [
        ("no kernel for f16", mllm.UnaryOp(UnaryKind.NEG, half)),
        ("no kernel for i64", mllm.SoftmaxOp(value(2, 3, element=i64), 1)),
        ("'pow' has no i32 kernel", mllm.BinaryOp(BinaryKind.POW, number, number)),
        ("depends on data", mllm.UnaryOp(UnaryKind.NEG, odd)),
        ("no kernel for rank 6", mllm.PoolOp(mllm.PoolKind.MAX, wide, **pool)),
    ]


RULES = [Rule.DTYPE, Rule.DTYPE, Rule.KIND, Rule.SHAPE, Rule.RANK]
"""The rule of each refusal."""


@pytest.mark.parametrize(
    ("reason", "op", "rule"),
    [(*pair, rule) for pair, rule in zip(refusals(), RULES, strict=True)],
    ids=lambda v: str(v)[:24],
)
def test_a_refusal_says_what_is_missing(reason: str, op: Operation, rule: Rule) -> None:
    answer = C.supports(op, {})
    assert not answer.ok
    assert reason in answer.reason
    assert answer.refusal is not None
    assert answer.refusal.rule is rule
    assert answer.refusal.rewrite
    assert answer.remedy.endswith(answer.refusal.rewrite)


def test_a_refusal_is_data() -> None:
    dtype = C.supports(mllm.SoftmaxOp(value(2, 3, element=i64), 1), {}).refusal
    assert dtype is not None
    assert (dtype.got, dtype.allowed) == ("i64", "f32")
    wide = C.supports(refusals()[4][1], {}).refusal
    assert wide is not None
    assert (wide.got, wide.allowed) == ("6", "3 to 5")


def accelerator() -> Target:
    """A table as a vendor's compiler asks for: sizes of windows, multiples of channels."""
    limits = [
        {"of": "strides", "least": 1, "most": 7, "rewrite": "two convolutions"},
        {"of": "operand 1", "axis": 0, "multiple": 32},
        {"of": "result 0", "axis": -1, "most": 64},
    ]
    return target_of(
        {
            "name": "npu",
            "title": "NPU",
            "source": "its manual",
            "shapes": "symbolic",
            "dialects": [],
            "cost": {
                "startup_us": 1.0,
                "gflop_per_s": 1.0,
                "gb_per_s": 1.0,
                "copy_gb_per_s": 1.0,
                "source": "its manual",
            },
            "ops": {"mllm.conv": {"kernel": "Conv2D", "dtypes": ["f32"], "limits": limits}},
        }
    )


@pytest.mark.parametrize(
    ("stride", "channels", "width", "rule", "reason", "rewrite"),
    [
        (1, 32, 40, None, "Conv2D", ""),
        (14, 32, 40, Rule.SIZE, "strides is 14, only 1 to 7 runs", "two convolutions"),
        (1, 48, 40, Rule.ALIGNMENT, "operand 1 along axis 0 is 48", "pad the axis, and slice"),
        (1, 32, 90, Rule.SIZE, "result 0 along axis -1 is 88", "split it along the axis"),
    ],
)
def test_limits_are_data(
    stride: int, channels: int, width: int, rule: Rule | None, reason: str, rewrite: str
) -> None:
    window = {"strides": [stride] * 2, "pads": [0] * 4, "dilations": [1, 1]}
    op = mllm.ConvOp(value(1, 3, 40, width), value(channels, 3, 3, 3), **window)
    answer = accelerator().supports(op, {})
    assert answer.ok is (rule is None)
    assert answer.reason.startswith(reason)
    assert answer.refusal is None or answer.refusal.rule is rule
    assert rewrite in answer.remedy


def test_a_limit_counts_a_symbol_at_its_value() -> None:
    x = test.TestOp(result_types=[tensor_of(f32, (1, 3, Dim.symbol("h"), 9))]).results[0]
    window = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    op = mllm.ConvOp(x, value(32, 3, 3, 3), **window)
    table = accelerator()
    limits = (Limit(of="result 0", axis=2, most=30),)
    entry = replace(table.ops["mllm.conv"], limits=limits)
    table = replace(table, ops={"mllm.conv": entry})
    assert table.supports(op, {"h": 32}).ok
    assert not table.supports(op, {"h": 33}).ok


def test_a_home_names_its_kernel() -> None:
    linear = mllm.LinearOp(value(1, 5, 8), value(16, 8))
    answer = C.supports(linear, {})
    assert answer.ok
    assert answer.reason == "f32_linear"
    assert answer.cost == Cost(flops=2 * 5 * 8 * 16, read=4 * (40 + 128), written=4 * 80)


def test_costs_are_those_of_the_textbook() -> None:
    q, k = value(1, 4, 32), value(1, 9, 16)
    attention = mllm.AttentionOp(q, k, k, heads=4, kv_heads=2, scale=1.0)
    assert cost_of(attention, {}).flops == 2 * (4 * 9 * 32) * 2
    mlp = mllm.MlpOp(mllm.Activation.GELU, value(3, 8), value(32, 8), value(8, 32))
    assert cost_of(mlp, {}).flops == 3 * (2 * 2 * 32 * 8 + 2 * 32)
    conv = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1]}
    image = mllm.ConvOp(value(1, 3, 8, 8), value(16, 3, 3, 3), **conv)
    assert cost_of(image, {}).flops == 2 * 16 * 8 * 8 * 27
    assert cost_of(mllm.TransposeOp(q, [0, 2, 1]), {}) == Cost(0, 4 * 128, 4 * 128)
