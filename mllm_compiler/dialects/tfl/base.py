"""What every op of the tfl dialect shares: it is one operator of TFLite, on static shapes."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Final

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import opt_prop_def

from mllm_compiler.dialects.mllm.constants import ConstantOp, array_of
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.static import StaticOp
from mllm_compiler.dialects.tfl.encoded import check_encoding
from mllm_compiler.dialects.types import element_of

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
"""What an operator may end with, in the order of TFLite's numbers."""

PADDINGS = ("SAME", "VALID")
"""How a window meets a border, in the order of TFLite's numbers."""

FUSED: Final[dict[str, tuple[str, ...]]] = {"fused_activation_function": ACTIVATIONS}


class TflOp(StaticOp, ABC):
    """Base of the ops; operands are by position and properties are the fields of its options.

    Where its results have codes, `scale` and `zero_point` say what these mean: they are no options.
    """

    scale = opt_prop_def(FloatAttr)
    zero_point = opt_prop_def(IntegerAttr)

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Properties that are one of a few words; their number is the word's position."""

    @classmethod
    def operator(cls) -> str:
        """The operator's name in TFLite's schema."""
        return cls.name.removeprefix("tfl.").upper()

    def check_vendor(self) -> None:
        """Words are those that the schema lists; codes are those that TFLite computes on."""
        for name, allowed in self.ENUMS.items():
            value = self.properties[name]
            known = isinstance(value, StringAttr) and value.data in allowed
            check(self, 0, known, f"{name} is one of {', '.join(allowed)}")
        check_encoding(self)


def listed(value: SSAValue) -> list[int] | None:
    """The whole numbers of a constant operand; None where it is computed."""
    owner = value.owner
    if not isinstance(owner, ConstantOp):
        return None
    return [int(n) for n in array_of(owner.value).reshape(-1)]


def same_elements(values: Sequence[SSAValue]) -> bool:
    """Whether tensors have one element type."""
    return len({element_of(v) for v in values}) == 1
