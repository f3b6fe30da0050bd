"""Chips of a target: the forms of quantisation that each has, and what it leaves to a CPU."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mllm_compiler.errors import CompileError


@dataclass(frozen=True, kw_only=True)
class Soc:
    """A chip as a target's table describes it.

    Attributes:
        name: Its name on the command line.
        forms: How weights and values may be quantised: `f16`, `w8a8` ...
        host: Operators of the vendor's dialect that its compiler gives to the CPU.
        either: Those that it gives to one or the other, by their shape.
        measured: Whether the vendor's compiler was seen to do so.
        sdk: The vendor's kit that knows it.
        model: The vendor's number of it.
        arch: The version of its processor.
    """

    name: str
    forms: tuple[str, ...]
    host: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    measured: bool = False
    sdk: str = ""
    model: int = 0
    arch: int = 0

    def check_form(self, form: str, where: str) -> None:
        """Refuses a form that the chip lacks.

        Raises:
            CompileError: `MLC-R007`.
        """
        if form in self.forms:
            return
        raise CompileError(
            "MLC-R007",
            f"the chip {self.name} has no {form}, only {', '.join(self.forms)}",
            location=where,
            remedy="give another recipe, or another --soc",
        )


def soc_of(name: str, table: Mapping[str, Any]) -> Soc:
    """The chip that an entry of a table describes."""
    return Soc(
        name=name,
        forms=tuple(table["forms"]),
        host=tuple(table.get("host", ())),
        either=tuple(table.get("either", ())),
        measured=bool(table.get("measured", False)),
        sdk=table.get("sdk", ""),
        model=int(table.get("model", 0)),
        arch=int(table.get("arch", 0)),
    )


def find_soc(socs: Mapping[str, Soc], name: str, target: str) -> Soc:
    """The chip of a name.

    Raises:
        CompileError: `MLC-R007`, the target has no such chip.
    """
    if name in socs:
        return socs[name]
    near = difflib.get_close_matches(name, socs, n=1)
    known = f"did you mean {near[0]}?" if near else f"chips: {', '.join(socs) or 'none'}"
    text = f"the target '{target}' has no chip '{name}'"
    raise CompileError("MLC-R007", text, location="--soc", remedy=known)
