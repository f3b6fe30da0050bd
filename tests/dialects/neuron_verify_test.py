"""The neuron dialect's verifiers name the constraint that an op breaks."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import f32, f64, i8, i32
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import neuron
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.types import i4


def value(*dims: int | Dim, element: Attribute = f32) -> SSAValue:
    return TestOp(result_types=[tensor_of(element, dims)]).results[0]


def listed(*numbers: int) -> SSAValue:
    return ConstantOp.of(np.array(numbers, np.int32)).result


FUSE = {"fuse": "NONE"}
MASKS = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
WINDOW = {
    "padding": "VALID",
    "stride_width": 1,
    "stride_height": 1,
    "fuse": "NONE",
    "nchw": False,
    "dilation_width": 1,
    "dilation_height": 1,
}
POOL = {**WINDOW, "filter_width": 2, "filter_height": 2}
IMAGE, FILTER, BIAS = value(1, 4, 5, 2), value(3, 2, 2, 2), value(3)
EIGHT = {"channel_dim": 0, "adapter": [8, 2, 24]}
BROKEN = [
    ("C0", neuron.AbsOp, [value(Dim.symbol("n"))], (Dim.symbol("n"),), {}),
    ("C0", neuron.AbsOp, [value(2, element=f64)], (2,), {}),
    ("C0", neuron.AbsOp, [value()], (), {}),
    ("C0", neuron.AddOp, [value(2), value(2)], (2,), {"fuse": "TANH"}),
    ("C0", neuron.AveragePool2dOp, [IMAGE], (1, 3, 4, 2), {**POOL, "padding": "FULL"}),
    ("C1", neuron.AbsOp, [value(2)], (3,), {}),
    ("C1", neuron.GeluOp, [value(2)], (3,), {"approximate": 1}),
    ("C2", neuron.GeluOp, [value(2)], (2,), {"approximate": 0}),
    ("C1", neuron.CastOp, [value(2)], (3,), {}),
    ("C1", neuron.MaximumOp, [value(2), value(3)], (3,), {}),
    ("C2", neuron.MaximumOp, [value(2), value(2, element=i32)], (2,), {}),
    ("C2", neuron.LessOp, [value(2), value(2)], (2,), {}),
    ("C1", neuron.SymmPerChannelOp, [value(3, 4), value(3)], (3, 4), EIGHT),
    ("C1", neuron.FullyConnectedOp, [value(2, 4), value(3, 4), value(4)], (2, 3), FUSE),
    ("C2", neuron.FullyConnectedOp, [value(1, 2, 4), value(3, 4), BIAS], (1, 3, 3), FUSE),
    (
        "C1",
        neuron.BatchMatmulOp,
        [value(2, 3, 4), value(2, 3, 4)],
        (2, 3, 3),
        {"adj_x": False, "adj_y": False},
    ),
    ("C1", neuron.SoftmaxOp, [value(2)], (3,), {"beta": 1.0}),
    ("C1", neuron.DequantizeOp, [value(2)], (3,), {}),
    ("C1", neuron.MeanOp, [value(2, 3), value(1, element=i32)], (2,), {"keep_dims": 0}),
    ("C2", neuron.ReduceSumOp, [value(2, 3), listed(1)], (2,), {"keep_dims": True}),
    ("C1", neuron.ReshapeOp, [value(4), listed(2, 3)], (2, 2), {}),
    ("C2", neuron.ReshapeOp, [value(4), listed(2, 3)], (2, 3), {}),
    ("C1", neuron.TransposeOp, [value(2, 3), listed(0, 0)], (2, 2), {}),
    ("C2", neuron.TransposeOp, [value(2, 3), listed(1, 0)], (2, 3), {}),
    ("C1", neuron.ConcatenationOp, [value(2), value(3)], (4,), {"axis": 0}),
    ("C1", neuron.SplitOp, [value(4), value(1, element=i32)], (4,), {"num_splits": 1}),
    ("C2", neuron.SplitOp, [value(4), listed(0)], (4,), {"num_splits": 2}),
    ("C1", neuron.StridedSliceOp, [value(4), *[listed(0, 0)] * 3], (4,), MASKS),
    (
        "C2",
        neuron.StridedSliceOp,
        [value(4), listed(0), listed(4), listed(1)],
        (4,),
        {**MASKS, "end_mask": 1},
    ),
    ("C1", neuron.PadV2Op, [value(2), listed(1, 1, 1), value(1)], (4,), {}),
    ("C2", neuron.PadV2Op, [value(2), listed(1, 1), value(1)], (3,), {}),
    ("C1", neuron.Conv2dOp, [IMAGE, value(3, 2, 2, 3), BIAS], (1, 3, 4, 3), WINDOW),
    ("C2", neuron.Conv2dOp, [IMAGE, FILTER, value(2)], (1, 3, 4, 3), WINDOW),
    ("C3", neuron.Conv2dOp, [IMAGE, FILTER, BIAS], (1, 3, 4, 3), {**WINDOW, "nchw": True}),
    (
        "C1",
        neuron.DepthwiseConv2dOp,
        [IMAGE, value(1, 2, 2, 3), BIAS],
        (1, 3, 4, 3),
        {**WINDOW, "multiplier": 1},
    ),
    ("C1", neuron.MaxPool2dOp, [IMAGE], (1, 4, 5, 2), POOL),
]


@pytest.mark.parametrize(("constraint", "op", "operands", "dims", "properties"), BROKEN)
def test_a_broken_constraint_is_named(
    constraint: str,
    op: type[NeuronOp],
    operands: list[SSAValue | None],
    dims: tuple[int | Dim, ...],
    properties: dict,
) -> None:
    known = {n: p for n, p in properties.items() if n in op.get_irdl_definition().properties}
    made = op.call(operands, tensor_of(f32, dims), **known)
    with pytest.raises(VerifyException, match=f"'{op.name}' {constraint}:"):
        made.verify_()


@pytest.mark.parametrize(
    ("element", "scales", "constraint"), [(i8, 4, "C2"), (i4, 3, "C3: codes of 4 and 32 bits")]
)
def test_scales_of_channels_are_checked(element: Attribute, scales: int, constraint: str) -> None:
    """The plugin loses those of 4 bits for libraries before 8.2.28."""
    codes = value(3, 4, element=element)
    made = neuron.SymmPerChannelOp.call([codes, value(scales)], codes.type, **EIGHT)
    with pytest.raises(VerifyException, match=constraint):
        made.verify_()
    newer = {**EIGHT, "adapter": [8, 2, 28]}
    neuron.SymmPerChannelOp.call([codes, value(3)], codes.type, **newer).verify_()


def test_codes_say_what_they_mean() -> None:
    means = {"scale": 0.5, "zero_point": 3}
    x = neuron.QuantizeOp.call([value(4)], tensor_of(i8, (4,)), **means)
    x.verify_()
    neuron.ReluOp.call([x.y], x.y.type, **means).verify_()
    with pytest.raises(VerifyException, match="C0: codes have a scale and a zero point"):
        neuron.ReluOp.call([x.y], x.y.type).verify_()


def test_a_constant_of_codes_is_checked() -> None:
    means = {"scale": 0.5, "zero_point": 3}
    codes, whole = value(4, element=i8), value(4, element=i32)
    neuron.QuantConstantOp.call([codes], codes.type, **means).verify_()
    with pytest.raises(VerifyException, match="C1: codes are i8 or i16"):
        neuron.QuantConstantOp.call([whole], whole.type, **means).verify_()
    with pytest.raises(VerifyException, match="C2: codes have a scale"):
        neuron.QuantConstantOp.call([codes], codes.type, scale=0.5).verify_()


def test_codes_have_the_shape_of_reals() -> None:
    made = neuron.QuantizeOp.call([value(4)], tensor_of(i8, (2, 2)), scale=0.5, zero_point=3)
    with pytest.raises(VerifyException, match="C1: x and y have one shape"):
        made.verify_()
