"""What every op of the neuron dialect shares: it is one operation of a Neuron network.

Neuron has the operations of Android's NNAPI under their numbers, and some of its own. An operation
takes operands in one order: first the tensors, here operands of the op, then scalars, here its
properties in the order of `SCALARS`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from enum import IntEnum
from typing import ClassVar, Final

from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f16,
    f32,
    i1,
    i32,
)
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check, check_broadcast
from mllm_compiler.dialects.static import StaticOp
from mllm_compiler.dialects.types import element_of, extents, i4, i8, i16, rank_of, ranked


class Scalar(IntEnum):
    """The types of scalars, under their numbers."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    BOOL = 6


TENSORS: Final[Mapping[int, Attribute]] = {3: f32, 4: i32, 8: f16, 9: i1}
"""The element of each type of tensors without scales, by its number."""

CHANNELS: Final[Mapping[int, Attribute]] = {11: i8, 9011: i4, 9014: i32}
"""The same of symmetric codes with a scale for each channel."""

CODED: Final[Mapping[int, Attribute]] = {7: i16, 13: i8, 14: i8}
"""The same of codes that have one scale; of the two of 8 bits the first has no zero point."""

FUSE: Final[Mapping[str, int]] = {"NONE": 0, "RELU": 1, "RELU1": 2, "RELU6": 3}
"""What an operation may end with."""

PADDING: Final[Mapping[str, int]] = {"SAME": 1, "VALID": 2}
"""How a window meets a border."""

WORDS: Final[Mapping[str, Mapping[str, int]]] = {"fuse": FUSE, "padding": PADDING}
"""Properties that are one of a few words, and the number of each."""


class NeuronOp(StaticOp, ABC):
    """Base of the ops.

    A tensor has at least one axis, and an element type that Neuron has. An operation has a number
    of NNAPI, `CODE`, or is one of MediaTek's own, whose name `EXTENSION` is its last operand.
    `scale` and `zero_point` say what codes of the results mean: scale (code - zero_point).
    """

    CODE: ClassVar[int] = -1
    EXTENSION: ClassVar[str] = ""
    SCALARS: ClassVar[Mapping[str, Scalar]] = {}

    scale = opt_prop_def(FloatAttr)
    zero_point = opt_prop_def(IntegerAttr)

    def check_vendor(self) -> None:
        """The types of operands and results, what codes mean, and the words."""
        known = {*TENSORS.values(), *CHANNELS.values(), *CODED.values()}
        for value in (*self.operands, *self.results):
            fits = ranked(value) is not None and element_of(value) in known
            check(self, 0, fits, "tensors are of f32, f16, i32 or i1, or codes")
            check(self, 0, 1 <= rank_of(value) <= 8, "a tensor has 1 to 8 axes")
        coded = any(element_of(v) in CODED.values() for v in self.results)
        says = self.scale is not None and self.zero_point is not None
        operation = self.CODE >= 0 or bool(self.EXTENSION)
        check(self, 0, not coded or says or not operation, "codes have a scale and a zero point")
        for name in self.SCALARS.keys() & WORDS.keys():
            value = self.properties[name]
            fits = isinstance(value, StringAttr) and value.data in WORDS[name]
            check(self, 0, fits, f"{name} is one of {', '.join(WORDS[name])}")


class UnaryOp(NeuronOp, ABC):
    """Base of functions of each element: x -> y."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, self.x.type == self.y.type, "x and y have one shape and type")


class ConversionOp(NeuronOp, ABC):
    """Base of what gives elements another type: x -> y."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, extents(self.x) == extents(self.y), "x and y have one shape")


class BinaryOp(NeuronOp, ABC):
    """Base of functions of pairs of elements: a, b -> their broadcast."""

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check_broadcast(self, 1)
        fits = len({element_of(v) for v in (self.a, self.b)}) == 1
        check(self, 2, fits and element_of(self.y) == self.result_element(), "element types")

    def result_element(self) -> Attribute:
        """The element type of y."""
        return element_of(self.a)
