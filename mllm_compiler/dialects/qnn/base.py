"""What every op of the qnn dialect shares: it is one operator of QNN, in types that HTP takes."""

from __future__ import annotations

import tomllib
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Final, cast

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType, f16
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import opt_prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.qnn.soc import SOC, SocAttr
from mllm_compiler.dialects.static import StaticOp
from mllm_compiler.dialects.types import element_of

CODES: Final = ("ui8", "i8", "ui16", "i16")
"""Elements that are codes: what they mean stands on the op that makes them."""


@dataclass(frozen=True)
class Form:
    """Element types in which HTP has an operator.

    Attributes:
        elements: The allowed ones of each operand and result, by its name.
        arch: The first HTP that has the form.
        symmetric: The operand whose codes must lie around 0.
    """

    elements: Mapping[str, Sequence[str]]
    arch: int = 0
    symmetric: str = ""


class QnnOp(StaticOp, ABC):
    """Base of the ops; operands are by position, properties are the operator's parameters.

    `scale` and `zero_point` say what codes of the result mean: scale (code - zero_point).
    """

    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {}
    """Parameters that are tensors: their element, and columns (1: a list)."""

    SCALARS: ClassVar[dict[str, str]] = {}
    """Whole numbers that are not `ui32`: their element."""

    ACTIVATION: ClassVar[bool] = True
    """Whether a result of codes has its own encoding."""

    scale = opt_prop_def(FloatAttr)
    zero_point = opt_prop_def(IntegerAttr)
    y = result_def(TensorType)

    @classmethod
    def operator(cls) -> str:
        """The operator's name, as Qualcomm's definitions have it."""
        words = cls.name.removeprefix("qnn.").split("_")
        return "".join(word[:1].upper() + word[1:] for word in words)

    @property
    def zero(self) -> int:
        """The zero point."""
        return 0 if self.zero_point is None else self.zero_point.value.data

    def check_vendor(self) -> None:
        """The element types are a form that HTP has, and codes of the result have a meaning."""
        coded = str(element_of(self.results[0])) in CODES
        says = self.scale is not None and self.scale.value.data > 0
        check(self, 0, says or not coded or not self.ACTIVATION, "codes have a scale above 0")
        forms, arch = forms_of(self.operator()), arch_of(self)
        halves = any(element_of(v) == f16 for v in (*self.operands, *self.results))
        floats = forms_table()["floats"]
        text = f"HTP has halves from v{floats} on, this is v{arch}"
        check(self, 0, not halves or arch >= floats, text)
        if forms:
            self._check_form(forms, arch)

    def _check_form(self, forms: Sequence[Form], arch: int) -> None:
        named = self._named()
        fitting = [form for form in forms if _fits(form, named)]
        spelled = ", ".join(f"{name} {element}" for name, element in named.items())
        check(self, 0, bool(fitting), f"HTP has no {self.operator()} of {spelled}")
        able = [form for form in fitting if form.arch <= arch]
        first = min(form.arch for form in fitting)
        text = f"HTP has {self.operator()} of {spelled} from v{first} on, this is v{arch}"
        check(self, 0, bool(able), text)
        even = [f for f in able if not f.symmetric or self._is_symmetric(f.symmetric)]
        text = f"codes of {able[0].symmetric} lie around 0"
        check(self, 0, bool(even), text)

    def _named(self) -> dict[str, str]:
        """The element types by the names of operands and results; those of one name are one."""
        named: dict[str, str] = {}
        definition = self.get_irdl_definition()
        for name, _ in (*definition.operands, *definition.results):
            value = cast("SSAValue | Sequence[SSAValue] | None", getattr(self, name))
            among = () if value is None else (value,) if isinstance(value, SSAValue) else value
            elements = {_taken(one) for one in among}
            if elements:
                named[name] = " and ".join(sorted(elements))
        return named

    def _is_symmetric(self, name: str) -> bool:
        value: SSAValue = getattr(self, name)
        return is_symmetric(value)


def is_symmetric(value: SSAValue) -> bool:
    """Whether codes lie around 0: their zero point is the middle of what their type holds."""
    owner, element = value.owner, str(element_of(value))
    middle = {"ui8": 1 << 7, "ui16": 1 << 15}.get(element, 0)
    return isinstance(owner, QnnOp) and owner.zero == middle


def arch_of(op: Operation) -> int:
    """The HTP that an op is for; the newest where its function does not say."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    soc = None if parent is None else parent.attributes.get(SOC)
    return soc.arch.data if isinstance(soc, SocAttr) else NEWEST


NEWEST: Final = 1 << 16
REST: Final = "*"
"""Stands for the operands and results that a form does not name."""


def _taken(value: SSAValue) -> str:
    """An element type as HTP takes it: it computes f32 in halves."""
    element = str(element_of(value))
    return "f16" if element == "f32" else element


def _fits(form: Form, named: Mapping[str, str]) -> bool:
    rest = form.elements.get(REST, ())
    return all(element in form.elements.get(name, rest) for name, element in named.items())


@cache
def forms_of(operator: str) -> tuple[Form, ...]:
    """The forms of an operator that HTP has; empty where it has no rule."""
    rows = forms_table().get(operator, {}).get("forms", ())
    return tuple(form for row in rows for form in _forms(row))


@cache
def forms_table() -> Mapping[str, Any]:
    """`htp.toml`."""
    return tomllib.loads((files("mllm_compiler.dialects.qnn") / "htp.toml").read_text("utf-8"))


def _forms(row: Mapping[str, Any]) -> Iterator[Form]:
    """The forms of a row; `same` stands for one for each of its elements."""
    named = {k: tuple(v.split()) for k, v in row.items() if k not in ("arch", "symmetric", "same")}
    for rest in row.get("same", "").split() or [""]:
        elements = {**named, REST: (rest,)} if rest else named
        yield Form(elements, row.get("arch", 0), row.get("symmetric", ""))
