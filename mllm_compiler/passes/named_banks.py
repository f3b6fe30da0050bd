"""The banks that a pipeline names: before a plan, in it, and where none keeps within them."""

from __future__ import annotations

from typing import Final

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from mllm_compiler.dialects import cpu
from mllm_compiler.errors import CompileError
from mllm_compiler.passes import arena
from mllm_compiler.passes.banks import OverfullError
from mllm_compiler.passes.graphs import pipeline_of

PLAN: Final = "cpu.plan"
"""The attribute of a module that says how its memory is planned."""

BANKS: Final = "banks"
"""Its key for the parts of banks."""

MOST_NAMED: Final = 2
"""Holders of the peak that a refusal names beside the largest."""


def banks_of(module: ModuleOp) -> list[arena.Bank]:
    """The banks that the pipeline names, or the one of a process."""
    return [
        arena.Bank(
            capacity=bank.end,
            alignment=bank.alignment.data,
            large=bank.large.data,
            name=bank.bank.data,
            least=bank.least.data,
            contiguous=bool(bank.contiguous.data),
        )
        for bank in pipeline_of(module).banks or ()
    ] or [arena.PLAIN]


def parts_attribute(plan: arena.Arena) -> DictionaryAttr:
    """Where the banks start in the arena and how much of each is used, by name."""
    return DictionaryAttr({p.bank.name: cpu.SlotAttr.of(p.start, p.size) for p in plan.parts})


def parts_of(module: ModuleOp) -> dict[str, tuple[int, int]]:
    """Where the banks of a planned module start in its arena and how much of each is used."""
    plan = module.attributes.get(PLAN)
    banks = plan.data.get(BANKS) if isinstance(plan, DictionaryAttr) else None
    if not isinstance(banks, DictionaryAttr):
        return {}
    slots = {name: slot for name, slot in banks.data.items() if isinstance(slot, cpu.SlotAttr)}
    return {name: (slot.offset.data, slot.size.data) for name, slot in slots.items()}


def refusal(overfull: OverfullError) -> CompileError:
    """No plan keeps within the banks: located at the largest of what lives at the peak."""
    largest, *others = overfull.holders
    bank = overfull.bank
    if bank is None or bank.capacity is None:
        message = f"no bank takes this tensor of {overfull.needed} bytes"
        remedy = "lower 'least' of a bank in model.toml, or add one that is contiguous"
        return CompileError("MLC-R009", message, location=largest.name, remedy=remedy)
    over = overfull.needed - bank.capacity
    message = f"the plan takes {overfull.needed} bytes of '{bank.name}', {over} more than there are"
    message += f"; the peak is held by this with {largest.size}"
    message += "".join(f", {b.name} with {b.size}" for b in others[:MOST_NAMED])
    rest = others[MOST_NAMED:]
    message += f", {len(rest)} more with {sum(b.size for b in rest)}" if rest else ""
    remedy = "lower the bounds in [dims] of model.toml, or give more"
    return CompileError("MLC-R009", message, location=largest.name, remedy=remedy)
