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


def packed_shape(shape: tuple[int, ...], layout: str, bits: int = 8) -> tuple[int, ...]:
    """The shape that a weight has in a layout; panel16 reads all axes but the first as one.

    Codes of less than a byte, of so many bits, count the bytes that they share.
    """
    if layout == PLAIN:
        return shape if bits >= 8 else (-(-prod(shape) * bits // 8),)
    columns = prod(shape[1:])
    return (-(-shape[0] // LANES), columns if bits >= 8 else -(-columns * bits // 8), LANES)


@irdl_op_definition
class WeightOp(IRDLOperation):
    """A weight in the target's layout; its bytes are made when the bundle is written.

    `plain` is row-major. `panel16` reads the blob as [N, K] and interleaves 16 rows: panel p, row
    k, lane j holds W[16p + j, k], zero where 16p + j >= N. Codes of less than a byte are ui8: the
    bytes that they share, in panels along k, low bits first.

    C1  layout is plain or panel16.
    C2  the result has the blob's element type and the shape of the blob in the layout.
    """

    name = "cpu.weight"
    LAYOUTS: ClassVar[tuple[str, ...]] = (PLAIN, PANEL16)
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
        check(self, 1, self.layout.data in self.LAYOUTS, "layout is plain or panel16")
        expected = weight_type(self.value, self.layout.data)
        check(self, 2, tensor_type(self.result) == expected, f"the result is {expected}")


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A constant of at most 64 elements in the target's layout; see `cpu.weight`.

    C1  layout is plain or panel16.
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
        check(self, 1, self.layout.data in WeightOp.LAYOUTS, "layout is plain or panel16")
        expected = _constant_type(self.value, self.layout.data)
        check(self, 2, tensor_type(self.result) == expected, f"the result is {expected}")


def weight_type(value: BlobAttr, layout: str) -> TensorType[Attribute]:
    """The type of a blob in a layout."""
    bits = bits_of(value.element)
    element = value.element if bits >= 8 else ui8
    return TensorType(element, packed_shape(value.dims, layout, bits))


def _constant_type(value: DenseIntOrFPElementsAttr, layout: str) -> TensorType[Attribute]:
    return TensorType(value.get_element_type(), packed_shape(value.get_shape(), layout))
