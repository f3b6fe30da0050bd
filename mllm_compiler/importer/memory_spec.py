"""What `[memory]` of a `model.toml` says: which graphs may run at once, and the banks of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from mllm_compiler.dialects.mllm import BankAttr
from mllm_compiler.errors import CompileError
from mllm_compiler.importer.typed_tables import wrong

STEP: Final = 64
"""Bytes that every alignment is a multiple of: that of the kernels."""


@dataclass(frozen=True, kw_only=True)
class BankSpec:
    """A memory that tensors may lie in.

    Attributes:
        name: Its name.
        bytes: Its size; None: as much as the plan needs.
        alignment: What tensors of `large` bytes and more start at a multiple of.
        large: Bytes from which a tensor has this alignment; a smaller one has 64.
        least: The bytes of the smallest tensor that it takes.
        contiguous: Devices read and write it in one piece. Where a bank is, what they read and
            write lies in such banks alone.
    """

    name: str
    bytes: int | None = None
    alignment: int = STEP
    large: int = 1 << 20
    least: int = 0
    contiguous: bool = False

    @property
    def attribute(self) -> BankAttr:
        """The bank as the pipeline has it."""
        return BankAttr.of(
            self.name,
            self.bytes,
            self.alignment,
            self.large,
            least=self.least,
            contiguous=self.contiguous,
        )

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """What is wrong with it: a key, what of it, and what to do."""
        if not re.fullmatch(r"[A-Za-z]\w*", self.name, re.ASCII):
            yield "name", f"'{self.name}' is no name", "use letters, digits and _"
        if self.bytes is not None and self.bytes <= 0:
            yield "bytes", f"a bank of {self.bytes} bytes", "write its size, or leave it out"
        if self.alignment <= 0 or self.alignment % STEP:
            message = f"an alignment of {self.alignment} is no multiple of {STEP}"
            yield "alignment", message, "write a multiple, such as 262144"
        for key in ("large", "least"):
            if getattr(self, key) < 0:
                yield key, f"{getattr(self, key)} bytes", "write a number of bytes"


@dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """How memory is planned.

    Attributes:
        overlap: Graphs of which each may run beside the others; all else runs in turn.
        banks: The memories, in the order in which they are filled; none: one without an end.
    """

    overlap: tuple[tuple[str, ...], ...] = ()
    banks: tuple[BankSpec, ...] = ()

    def check(self, source: str, graphs: list[str]) -> None:
        """Refuses what cannot be planned.

        Raises:
            CompileError: MLC-I022, a value cannot be used; MLC-I023, there is no such graph.
        """
        for i, names in enumerate(self.overlap):
            at = f"memory.overlap[{i}]"
            for name in names:
                if name not in graphs:
                    raise _no_graph(name, f"{source}: {at}", graphs)
            if len(set(names)) < 2 or len(set(names)) < len(names):
                message = "two graphs or more overlap, each named once"
                raise wrong(source, at, message, 'write such as ["vision", "decoder"]')
        for i, bank in enumerate(self.banks):
            for key, message, remedy in bank.faults():
                raise wrong(source, f"memory.banks[{i}].{key}", message, remedy)
            if bank.name.upper() in [other.name.upper() for other in self.banks[:i]]:
                message = f"two banks are named '{bank.name}'"
                raise wrong(source, f"memory.banks[{i}].name", message, "rename one")


def _no_graph(name: str, location: str, graphs: list[str]) -> CompileError:
    near = get_close_matches(name, graphs, n=1, cutoff=0.0)[0]
    remedy = f"did you mean '{near}'?"
    return CompileError("MLC-I023", f"there is no graph '{name}'", location=location, remedy=remedy)
