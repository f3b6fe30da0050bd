"""The qnn dialect's verifiers name the constraint that an op breaks."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import FunctionType, f16, f32, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.qnn import QnnOp, SocAttr
from mllm_compiler.dialects.qnn.soc import SOC
from mllm_compiler.dialects.types import i4, i8, ui8, ui16


def value(*dims: int | Dim, element: Attribute = f16) -> SSAValue:
    return TestOp(result_types=[tensor_of(element, dims)]).results[0]


def codes(*dims: int, element: Attribute = ui16, zero_point: int = 7) -> SSAValue:
    options = {"scale": 0.5, "zero_point": zero_point}
    return qnn.QuantizeOp.call([value(*dims)], tensor_of(element, dims), **options).y


WINDOW = {"stride": [1, 1], "pad_amount": [0] * 4, "dilation": [1, 1]}
NORM = {"axes": [1], "epsilon": 1e-5}
TURNS = {"transpose_in0": False, "transpose_in1": True}
IMAGE, FILTER = value(1, 4, 5, 2), value(2, 2, 2, 3)
BROKEN = [
    ("C0", qnn.ReluOp, [value(Dim.symbol("n"))], (Dim.symbol("n"),), {}),
    ("C0: HTP has no Relu of x i32", qnn.ReluOp, [value(2, element=i32)], (2,), {}),
    ("C1", qnn.ReluOp, [value(2)], (3,), {}),
    ("C1", qnn.ElementWiseAddOp, [value(2), value(3)], (3,), {}),
    ("C1", qnn.FullyConnectedOp, [value(1, 2, 4), value(3, 4), None], (2, 3), {}),
    ("C2", qnn.FullyConnectedOp, [value(2, 4), value(3, 4), value(4)], (2, 3), {}),
    ("C3", qnn.FullyConnectedOp, [value(2, 4), value(3, 4), None], (1, 2, 3), {}),
    ("C1", qnn.MatMulOp, [value(2, 4), value(4, 3)], (2, 3), TURNS),
    ("C2", qnn.SoftmaxOp, [value(2, 3)], (2, 3), {"axis": 0, "beta": 1.0}),
    ("C1", qnn.RmsNormOp, [value(1, 2, 4), value(4)], (1, 2, 4), NORM),
    ("C2", qnn.RmsNormOp, [value(2, 4), value(4)], (2, 4), {**NORM, "axes": [0]}),
    ("C3", qnn.LayerNormOp, [value(2, 4), value(4), None], (2, 4), {**NORM, "epsilon": 0.0}),
    ("C1", qnn.TransposeOp, [value(2, 3)], (2, 2), {"perm": [0, 0]}),
    ("C1", qnn.ConcatOp, [value(2), value(3)], (4,), {"axis": 0}),
    ("C2", qnn.StridedSliceOp, [value(4)], (3,), {"ranges": [0, 2, 1]}),
    ("C2", qnn.GatherOp, [value(2, 3), value(2, element=i32)], (2, 2), {"axis": 1}),
    ("C1", qnn.TileOp, [value(2)], (5,), {"multiples": [2]}),
    ("C3", qnn.Conv2dOp, [IMAGE, FILTER, None], (1, 4, 4, 3), {**WINDOW, "group": 1}),
    ("C1", qnn.DepthWiseConv2dOp, [IMAGE, value(2, 2, 1, 4), None], (1, 3, 4, 4), WINDOW),
]


@pytest.mark.parametrize(("constraint", "op", "operands", "dims", "properties"), BROKEN)
def test_a_broken_constraint_is_named(
    constraint: str,
    op: type[QnnOp],
    operands: list[SSAValue | None],
    dims: tuple[int | Dim, ...],
    properties: dict,
) -> None:
    made = op.call(operands, tensor_of(f16, dims), **properties)
    with pytest.raises(VerifyException, match=f"'{op.name}' {constraint}"):
        made.verify_()


def product(arch: int, zero_point: int) -> QnnOp:
    """A product of codes of 16 bits on some HTP."""
    operands = [codes(2, 4), codes(3, 4, zero_point=zero_point)]
    options = {**TURNS, "scale": 0.5, "zero_point": 0}
    op = qnn.MatMulOp.call(operands, tensor_of(ui16, (2, 3)), **options)
    block = Block([op, ReturnOp(op.y)])
    graph = FuncOp("f", FunctionType.from_lists([], [op.y.type]), Region(block))
    graph.attributes[SOC] = SocAttr.of("some", 1, arch)
    return op


def test_a_product_of_16_bits_needs_a_new_chip_and_codes_around_0() -> None:
    product(73, 1 << 15).verify_()
    with pytest.raises(VerifyException, match="from v73 on, this is v69"):
        product(69, 1 << 15).verify_()
    with pytest.raises(VerifyException, match="codes of b lie around 0"):
        product(73, 5).verify_()


def test_codes_say_what_they_mean() -> None:
    op = qnn.ReluOp.call([codes(2, element=ui8)], tensor_of(ui8, (2,)))
    with pytest.raises(VerifyException, match="C0: codes have a scale above 0"):
        op.verify_()


def test_codes_of_4_bits_have_no_zero_point() -> None:
    scales = ConstantOp.of(np.ones(2, np.float32)).result
    weights = value(2, 4, element=i4)
    made = qnn.StaticTensorOp.call([weights, scales], weights.type, axis=0, zero_point=1)
    with pytest.raises(VerifyException, match="C3: codes of 4 bits have no zero point"):
        made.verify_()
    qnn.StaticTensorOp.call([weights, scales], weights.type, axis=0).verify_()
    with pytest.raises(VerifyException, match="C2: scales"):
        qnn.StaticTensorOp.call([weights, scales], weights.type, axis=1).verify_()


@pytest.mark.parametrize(
    ("rows", "arch", "right"), [(31, 69, False), (32, 69, True), (1, 73, True)]
)
def test_old_chips_multiply_no_few_rows_of_16_bits_by_8(rows: int, arch: int, right: bool) -> None:
    a, b = codes(rows, 4), codes(4, 33, element=ui8)
    options = {"scale": 0.5, "zero_point": 7}
    op = qnn.MatMulOp.call([a, b], tensor_of(ui16, (rows, 33)), **options)
    graph = FuncOp("f", FunctionType.from_lists([], []), Region(Block([op, ReturnOp()])))
    graph.attributes[SOC] = SocAttr.of("some", 1, arch)
    if right:
        op.verify_()
        return
    with pytest.raises(VerifyException, match="C2: HTP before v73 multiplies few rows"):
        op.verify_()


def static(array: np.ndarray, axis: int) -> SSAValue:
    """Codes with a scale for each row, or with one."""
    held = ConstantOp.of(array).result
    scales = ConstantOp.of(np.ones(len(array) if axis == 0 else 1, np.float32)).result
    return qnn.StaticTensorOp.call([held, scales], held.type, axis=axis).y


def test_a_bias_has_scales_where_rows_have_them() -> None:
    x, weights = codes(2, 4, element=ui8), static(np.ones((3, 4), np.int8), 0)
    kind, options = tensor_of(ui8, (2, 3)), {"scale": 1.0, "zero_point": 0}
    bias = np.ones(3, np.int32)
    qnn.FullyConnectedOp.call([x, weights, static(bias, 0)], kind, **options).verify_()
    made = qnn.FullyConnectedOp.call([x, weights, static(bias, -1)], kind, **options)
    with pytest.raises(VerifyException, match="C4: bias has scales"):
        made.verify_()


def test_what_a_product_of_8_bits_gives_becomes_halves() -> None:
    a, b = codes(2, 4, element=ui8), codes(4, 3, element=ui8)
    options = {"scale": 1.0, "zero_point": 0}
    y = qnn.MatMulOp.call([a, b], tensor_of(ui8, (2, 3)), **options).y
    y = qnn.ReshapeOp.call([y], tensor_of(ui8, (6,)), **options).y
    qnn.DequantizeOp.call([y], tensor_of(f16, (6,))).verify_()
    with pytest.raises(VerifyException, match="C2: what a product of matrices of 8 bits gives"):
        qnn.DequantizeOp.call([y], tensor_of(f32, (6,))).verify_()


def test_gammas_of_8_signed_bits_are_refused() -> None:
    """HTP has them in no LayerNorm of unsigned codes."""
    gamma = qnn.StaticTensorOp.call(
        [value(4, element=i8), ConstantOp.of(np.ones(1, np.float32)).result],
        tensor_of(i8, (4,)),
    ).y
    options = {**NORM, "scale": 0.5, "zero_point": 0}
    op = qnn.LayerNormOp.call([codes(2, 4), gamma, None], tensor_of(ui16, (2, 4)), **options)
    with pytest.raises(VerifyException, match="HTP has no LayerNorm of x ui16, gamma i8"):
        op.verify_()


def test_every_form_names_operands_of_its_op() -> None:
    from mllm_compiler.dialects.qnn.base import REST, forms_of

    for op in qnn.OPS:
        assert issubclass(op, QnnOp)
        definition = op.get_irdl_definition()
        names = {name for name, _ in (*definition.operands, *definition.results)}
        forms = forms_of(op.operator())
        assert forms or op is qnn.StaticTensorOp, op.name
        for form in forms:
            assert set(form.elements) - {REST} <= names, op.name
            assert not form.symmetric or form.symmetric in names
