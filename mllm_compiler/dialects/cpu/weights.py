"""Weights as the target reads them: a blob of the store and the layout that it is packed in."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Final

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.cpu.base import LANES
from mllm_compiler.dialects.mllm.constants import BlobAttr
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.types import bits_of, tensor_type, ui8

PLAIN: Final = "plain"
PANEL16: Final = "panel16"
QUADS16: Final = "quads16"

QUAD: Final = 4
"""Codes of a row that stand side by side in `quads16`."""


LAYOUT_RULE: Final = "layout is plain, panel16 or, of elements of a byte at most, quads16"


def packed_shape(shape: tuple[int, ...], layout: str, bits: int = 8) -> tuple[int, ...]:
    """The shape that a weight has in a layout; panels read all axes but the first as one.

    Codes of less than a byte, of so many bits, count the bytes that they share.
    """
    if layout == PLAIN:
        return shape if bits >= 8 else (-(-prod(shape) * bits // 8),)
    panels, columns = -(-shape[0] // LANES), prod(shape[1:])
    if layout == QUADS16:
        return (panels, -(-columns // (QUAD * 8 // min(bits, 8))), LANES, QUAD)
    return (panels, columns if bits >= 8 else -(-columns * bits // 8), LANES)


@irdl_op_definition
class WeightOp(IRDLOperation):
    """A weight in the target's layout; its bytes are made when the bundle is written.

    `plain` is row-major. `panel16` reads the blob as [N, K] and interleaves 16 rows: panel p, row
    k, lane j holds W[16p + j, k], zero where 16p + j >= N. Codes of less than a byte are ui8: the
    bytes that they share, in panels along k, low bits first. `quads16` is for codes that are
    multiplied as integers: four of a row stand side by side. Of 8 bits, byte (p, g, j, i) is code
    4g + i of row 16p + j; of 4 bits, its low half is code 8g + i and its high half 8g + 4 + i; and
    so on, codes behind the last are 0.

    C1  layout is plain, panel16 or, of elements of a byte at most, quads16.
    C2  the result has the blob's element type and the shape of the blob in the layout.
    """

    name = "cpu.weight"
    LAYOUTS: ClassVar[tuple[str, ...]] = (PLAIN, PANEL16, QUADS16)
    value = prop_def(BlobAttr)
    layout = prop_def(StringAttr)
    weight_name = prop_def(StringAttr, prop_name="name")
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($result)"

    def __init__(self, value: BlobAttr, layout: str, weight_name: str) -> None:
        super().__init__(
            properties={
                "value": value,
                "layout": StringAttr(layout),
                "name": StringAttr(weight_name),
            },
            result_types=[weight_type(value, layout)],
        )

    def in_layout(self, layout: str) -> WeightOp:
        """The same weight in another layout."""
        return WeightOp(self.value, layout, self.weight_name.data)

    def verify_(self) -> None:
        """C1 and C2."""
        check(self, 1, _is_layout(self.layout.data, self.value.element), LAYOUT_RULE)
        expected = weight_type(self.value, self.layout.data)
        check(self, 2, tensor_type(self.result) == expected, f"the result is {expected}")


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A constant of at most 64 elements in the target's layout; see `cpu.weight`.

    C1  layout is plain, panel16 or, of elements of a byte at most, quads16.
    C2  the result has the value's element type and its shape in the layout.
    """

    name = "cpu.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    layout = prop_def(StringAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($result)"

    def __init__(self, value: DenseIntOrFPElementsAttr, layout: str) -> None:
        super().__init__(
            properties={"value": value, "layout": StringAttr(layout)},
            result_types=[_constant_type(value, layout)],
        )

    def in_layout(self, layout: str) -> ConstantOp:
        """The same constant in another layout."""
        return ConstantOp(self.value, layout)

    def verify_(self) -> None:
        """C1 and C2."""
        check(self, 1, _is_layout(self.layout.data, self.value.get_element_type()), LAYOUT_RULE)
        expected = _constant_type(self.value, self.layout.data)
        check(self, 2, tensor_type(self.result) == expected, f"the result is {expected}")


def weight_type(value: BlobAttr, layout: str) -> TensorType[Attribute]:
    """The type of a blob in a layout."""
    bits = bits_of(value.element)
    element = value.element if bits >= 8 else ui8
    return TensorType(element, packed_shape(value.dims, layout, bits))


def _is_layout(layout: str, element: Attribute) -> bool:
    return layout in WeightOp.LAYOUTS and (layout != QUADS16 or bits_of(element) <= 8)


def _constant_type(value: DenseIntOrFPElementsAttr, layout: str) -> TensorType[Attribute]:
    return TensorType(value.get_element_type(), packed_shape(value.get_shape(), layout))
