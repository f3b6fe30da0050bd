"""The tfl dialect's verifiers name the constraint that an op breaks."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import FloatAttr, f32, i8, i16, i32
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.mllm.contract import integer
from mllm_compiler.dialects.tfl import TflOp


def value(*dims: int | Dim, element: Attribute = f32) -> SSAValue:
    return TestOp(result_types=[tensor_of(element, dims)]).results[0]


def listed(*numbers: int) -> SSAValue:
    return ConstantOp.of(np.array(numbers, np.int32)).result


WINDOW = {
    "padding": "VALID",
    "stride_w": 1,
    "stride_h": 1,
    "fused_activation_function": "NONE",
    "dilation_w_factor": 1,
    "dilation_h_factor": 1,
}
ROWS = {"fused_activation_function": "NONE", "keep_num_dims": True}
IMAGE, FILTER = value(1, 4, 5, 2), value(3, 2, 2, 2)
BROKEN = [
    ("C0", tfl.AbsOp, [value(Dim.symbol("n"))], (Dim.symbol("n"),), {}),
    ("C0", tfl.AddOp, [value(2), value(2)], (2,), {"fused_activation_function": "GELU"}),
    ("C1", tfl.AbsOp, [value(2)], (3,), {}),
    ("C2", tfl.AbsOp, [value(2, element=i32)], (2,), {}),
    ("C1", tfl.MaximumOp, [value(2), value(3)], (3,), {}),
    ("C1", tfl.FullyConnectedOp, [value(2, 4), value(3, 5), None], (2, 3), ROWS),
    ("C2", tfl.FullyConnectedOp, [value(2, 4), value(3, 4), value(4)], (2, 3), ROWS),
    ("C3", tfl.FullyConnectedOp, [value(1, 2, 4), value(3, 4), None], (2, 3), ROWS),
    ("C1", tfl.ReshapeOp, [value(4), listed(2, 3)], (2, 2), {}),
    ("C1", tfl.TransposeOp, [value(2, 3), listed(0, 0)], (2, 2), {}),
    ("C1", tfl.ConcatenationOp, [value(2), value(3)], (4,), {"axis": 0}),
    ("C2", tfl.MeanOp, [value(2, 3), listed(1)], (2,), {"keep_dims": True}),
    ("C1", tfl.CumsumOp, [value(2, 3), listed(2)], (2, 3), {}),
    ("C2", tfl.CumsumOp, [value(2, 3), listed(1)], (2, 2), {}),
    ("C1", tfl.GatherOp, [value(4), value(2)], (2,), {"axis": 0, "batch_dims": 0}),
    ("C1", tfl.Conv2dOp, [IMAGE, value(3, 2, 2, 3), None], (1, 3, 4, 3), WINDOW),
    ("C2", tfl.Conv2dOp, [IMAGE, FILTER, value(2)], (1, 3, 4, 3), WINDOW),
    ("C3", tfl.Conv2dOp, [IMAGE, FILTER, None], (1, 4, 4, 3), WINDOW),
    ("C2", tfl.PseudoQconstOp, [value(2, 64, element=i8), value(2, 3)], (2, 64), {"block_size": 0}),
]


@pytest.mark.parametrize(("constraint", "op", "operands", "dims", "properties"), BROKEN)
def test_a_broken_constraint_is_named(
    constraint: str,
    op: type[TflOp],
    operands: list[SSAValue | None],
    dims: tuple[int | Dim, ...],
    properties: dict,
) -> None:
    made = op.call(operands, tensor_of(f32, dims), **properties)
    with pytest.raises(VerifyException, match=f"'{op.name}' {constraint}:"):
        made.verify_()


def coded(scale: float, zero: int, *dims: int, element: Attribute = i8) -> SSAValue:
    """Codes that a `tfl.quantize` makes."""
    return tfl.QuantizeOp.call([value(*dims)], tensor_of(element, dims), **code(scale, zero)).y


def code(scale: float, zero: int) -> dict[str, Attribute]:
    return {"scale": FloatAttr(scale, f32), "zero_point": integer(zero)}


NONE = {"fused_activation_function": "NONE"}
CODES, WORDS = coded(0.1, 3, 4, 4), coded(0.1, 0, 4, 4, element=i16)
BROKEN_CODES = [
    ("codes are i8 or i16", tfl.AddOp, [CODES, CODES], i32, {**NONE, **code(0.1, 0)}),
    ("codes are i8 or i16", tfl.AddOp, [CODES, CODES], i8, {**NONE, **code(0.0, 0)}),
    ("on codes of 8 bits", tfl.DivOp, [CODES, CODES], i8, {**NONE, **code(0.1, 0)}),
    ("on codes of 16 bits", tfl.RsqrtOp, [WORDS], i16, code(0.1, 0)),
    ("have the zero point 0", tfl.TanhOp, [WORDS], i16, code(1 / 32768, 3)),
    ("a zero point is a code", tfl.AddOp, [CODES, CODES], i8, {**NONE, **code(0.1, 128)}),
    ("as TFLite fixes", tfl.LogisticOp, [CODES], i8, code(1 / 128, 0)),
    ("as TFLite fixes", tfl.SoftmaxOp, [CODES], i8, {"beta": 1.0, **code(1 / 256, 0)}),
    ("one encoding", tfl.MaximumOp, [CODES, CODES], i8, code(0.2, 3)),
    ("one encoding", tfl.ReshapeOp, [CODES, listed(4, 4)], i8, code(0.1, 2)),
    (
        "no activation",
        tfl.MulOp,
        [CODES, CODES],
        i8,
        {"fused_activation_function": "RELU", **code(0.1, 0)},
    ),
    ("it reads codes", tfl.MulOp, [CODES, value(4, 4)], i8, {**NONE, **code(0.1, 0)}),
    ("b has the zero point 0", tfl.BatchMatmulOp, [CODES, CODES], i8, code(0.1, 0)),
    ("makes codes of reals", tfl.QuantizeOp, [CODES], i8, code(0.1, 0)),
]


@pytest.mark.parametrize(("words", "op", "operands", "element", "properties"), BROKEN_CODES)
def test_what_tflite_does_not_compute_on_codes_is_named(
    words: str,
    op: type[TflOp],
    operands: list[SSAValue | None],
    element: Attribute,
    properties: dict[str, Attribute],
) -> None:
    made = op.call(operands, tensor_of(element, (4, 4)), **properties)
    with pytest.raises(VerifyException, match=f"'{op.name}' C0: .*{words}"):
        made.verify_()


def test_codes_that_it_computes_are_taken() -> None:
    second = coded(0.2, 0, 4, 4)
    for op in (
        tfl.BatchMatmulOp.call([CODES, second], tensor_of(i8, (4, 4)), **code(0.5, -9)),
        tfl.AddOp.call([WORDS, WORDS], tensor_of(i16, (4, 4)), **NONE, **code(0.5, 0)),
        tfl.SoftmaxOp.call([CODES], tensor_of(i8, (4, 4)), beta=1.0, **code(1 / 256, -128)),
    ):
        op.verify_()
