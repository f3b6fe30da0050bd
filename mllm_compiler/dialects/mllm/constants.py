"""Constants of the `mllm` dialect: weights by digest, and small values in place."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    IntAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    param_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from mllm_compiler.dialects.mllm.contract import check, given
from mllm_compiler.dialects.types import ELEMENTS, dtype_of, tensor_type
from mllm_compiler.weights import NARROW

LARGEST_CONSTANT: Final = 64
"""Elements that a constant may hold in place; a larger one is a weight."""

_HEX = frozenset("0123456789abcdef")


@irdl_attr_definition
class BlobAttr(ParametrizedAttribute):
    """Names the bytes of a tensor by their digest: `#mllm.blob<"sha256:..", f32, [576, 1536]>`."""

    name = "mllm.blob"

    digest: StringAttr = param_def()
    element: Attribute = param_def()
    shape: ArrayAttr[IntAttr] = param_def()

    @classmethod
    def of(cls, digest: str, element: Attribute, shape: tuple[int, ...]) -> BlobAttr:
        """The handle of a tensor of `shape` whose bytes have `digest`."""
        return cls(StringAttr(digest), element, ArrayAttr(IntAttr(n) for n in shape))

    @property
    def dims(self) -> tuple[int, ...]:
        """The static shape."""
        return tuple(n.data for n in self.shape)

    def verify(self) -> None:
        """The digest is `sha256:` and 64 lower-case hexadecimal digits."""
        kind, _, digits = self.digest.data.partition(":")
        if kind != "sha256" or len(digits) != 64 or not _HEX.issuperset(digits):
            raise VerifyException("'mllm.blob': the digest must be sha256: and 64 hex digits")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads digest, element type and shape between angle brackets."""
        with parser.in_angle_brackets():
            digest = parser.parse_str_literal()
            parser.parse_punctuation(",")
            element = parser.parse_type()
            parser.parse_punctuation(",")
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        return [StringAttr(digest), element, ArrayAttr(IntAttr(n) for n in shape)]

    def print_parameters(self, printer: Printer) -> None:
        """Writes digest, element type and shape between angle brackets."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.digest.data)
            printer.print_string(", ")
            printer.print_attribute(self.element)
            printer.print_string(f", {list(self.dims)}")


@irdl_op_definition
class WeightOp(IRDLOperation):
    """A constant tensor whose bytes the weight store finds by digest: -> [shape of the blob].

    C1  the result has the blob's element type and shape.
    """

    name = "mllm.weight"

    value = prop_def(BlobAttr)
    weight_name = opt_prop_def(StringAttr, prop_name="name")
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(self, value: BlobAttr, weight_name: str | None = None) -> None:
        named = StringAttr(weight_name) if weight_name is not None else None
        super().__init__(
            properties=given(value=value, name=named),
            result_types=[TensorType(value.element, value.dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        result = tensor_type(self.result)
        same = result.get_shape() == self.value.dims and result.element_type == self.value.element
        check(self, 1, same, f"the result must be {self.value.dims} of {self.value.element}")

    @classmethod
    def parse(cls, parser: Parser) -> WeightOp:
        """Reads `#mllm.blob<..> {name = "..", attributes} : type`."""
        value = parser.parse_attribute()
        if not isinstance(value, BlobAttr):
            parser.raise_error("'mllm.weight': a blob is expected")
        op = cls(value)
        op.attributes |= parser.parse_optional_attr_dict()
        if "name" in op.attributes:
            op.properties["name"] = op.attributes.pop("name")
        parser.parse_punctuation(":")
        if parser.parse_type() != op.result.type:
            parser.raise_error(f"'mllm.weight' C1: the result must be {op.result.type}")
        return op

    def print(self, printer: Printer) -> None:
        """Writes what `parse` reads."""
        printer.print_string(" ")
        printer.print_attribute(self.value)
        named = {} if self.weight_name is None else {"name": self.weight_name}
        printer.print_op_attributes(named | self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A constant tensor printed in place: -> [shape of the value].

    C1  it holds at most 64 elements.
    C2  the result has the value's type.
    """

    name = "mllm.constant"

    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure(), ConstantLike())

    def __init__(self, value: DenseIntOrFPElementsAttr) -> None:
        super().__init__(properties={"value": value}, result_types=[value.type])

    @classmethod
    def of(cls, array: NDArray[np.generic]) -> ConstantOp:
        """The constant of a NumPy array of at most 64 elements."""
        return cls(dense_of(array))

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        count = prod(self.value.get_shape())
        check(self, 1, count <= LARGEST_CONSTANT, f"at most 64 elements, not {count}")
        check(self, 2, self.result.type == self.value.type, "the result must be the value's type")

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        """Reads `dense<..> : type {attributes}`."""
        value = parser.parse_attribute()
        if not isa(value, DenseIntOrFPElementsAttr):
            parser.raise_error("'mllm.constant': a dense attribute is expected")
        op = cls(value)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        """Writes what `parse` reads."""
        printer.print_string(" ")
        printer.print_attribute(self.value)
        printer.print_op_attributes(self.attributes)


def dense_of(array: NDArray[np.generic]) -> DenseIntOrFPElementsAttr:
    """The dense attribute of an array, its bytes taken as they are."""
    kind = TensorType(ELEMENTS[array.dtype], array.shape)
    array = in_bytes(array)
    return DenseIntOrFPElementsAttr(kind, BytesAttr(np.ascontiguousarray(array).tobytes()))


def in_bytes(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Narrow integers as numbers of a byte, as a dense attribute holds them."""
    return array.astype(np.int8) if array.dtype in NARROW else array


def array_of(value: DenseIntOrFPElementsAttr) -> NDArray[np.generic]:
    """The array of a dense attribute, read-only."""
    dtype = dtype_of(value.get_element_type())
    return np.frombuffer(value.data.data, dtype).reshape(value.get_shape())


def constant_array(value: SSAValue) -> NDArray[np.generic] | None:
    """The array of a value that an `mllm.constant` makes.

    None for any other value, and for elements of less than a byte, which fill no array.
    """
    owner = value.owner
    if not isinstance(owner, ConstantOp):
        return None
    try:
        return array_of(owner.value)
    except TypeError:
        return None


def constant_scalar(value: SSAValue) -> float | None:
    """The number that every element of an `mllm.constant` equals, None for any other value."""
    array = constant_array(value)
    if array is None or array.size == 0 or array.dtype == np.bool_:
        return None
    first = array.reshape(-1)[0]
    return float(first) if bool((array == first).all()) else None
