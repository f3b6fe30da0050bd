"""Runs passes one by one; observers see the module before the first and after each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from mllm_compiler.dialects.verify import verify
from mllm_compiler.errors import CompileError

IMPORT = "import"
"""What is done before the first pass, as observers and reports call it."""

FRAME = frozenset({"builtin.module", "func.func", "func.return", "mllm.pipeline"})
"""Operations that hold others and compute nothing."""


@dataclass(frozen=True, kw_only=True)
class PassRecord:
    """What is known of a pass that has run.

    Attributes:
        number: Its place, 0 for the import.
        name: Its name.
        seconds: Wall time, verification of its result included.
        ops: How many operations of each kind the module has afterwards.
    """

    number: int
    name: str
    seconds: float
    ops: Mapping[str, int]

    @property
    def op_count(self) -> int:
        """How many operations there are."""
        return sum(self.ops.values())


class Observer(Protocol):
    """Sees the module after the import and after each pass."""

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """The module as it is now; it must not be changed."""


def run_passes(
    module: ModuleOp,
    passes: Sequence[ModulePass],
    context: Context,
    observers: Sequence[Observer] = (),
    *,
    first: int = 1,
) -> list[PassRecord]:
    """Runs passes in order and verifies the module after each.

    Raises:
        CompileError: A pass refuses the module, or leaves one that breaks a contract.
    """
    records: list[PassRecord] = []
    for number, this in enumerate(passes, first):
        start = time.perf_counter()
        try:
            this.apply(context, module)
        except DiagnosticException as fault:
            line = str(fault).strip().splitlines()[-1]
            raise CompileError("MLC-U009", line, location=this.name) from fault
        verify(module)
        seconds = time.perf_counter() - start
        records.append(observe(number, this.name, seconds, module, observers))
    return records


def observe(
    number: int, name: str, seconds: float, module: ModuleOp, observers: Sequence[Observer]
) -> PassRecord:
    """Shows a module to the observers; the answer is the record that they got."""
    record = PassRecord(number=number, name=name, seconds=seconds, ops=count_ops(module))
    for observer in observers:
        observer.after(record, module)
    return record


def count_ops(module: ModuleOp) -> dict[str, int]:
    """How many operations of each kind compute something, most frequent first."""
    counts = Counter(op.name for op in module.walk() if op.name not in FRAME)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
