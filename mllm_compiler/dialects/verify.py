"""Verification of a module that answers with one located line."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.errors import CompileError


def verify(module: ModuleOp) -> None:
    """Checks every op of a module.

    Raises:
        CompileError: The first op that violates its contract, by location, with the constraint.
    """
    try:
        module.verify()
    except VerifyException as fault:
        raise _located(module, fault) from None


def _located(module: ModuleOp, fault: VerifyException) -> CompileError:
    message = str(fault).strip().splitlines()[-1]
    return CompileError(
        "MLC-D005",
        message,
        location=_first_at_fault(module),
        remedy="docs/dialects.md says what each constraint asks for",
    )


def _first_at_fault(module: ModuleOp) -> str:
    for op in module.walk():
        if op is not module and _breaks(op):
            return location_name(op) or f"'{op.name}'"
    return ""


def _breaks(op: Operation) -> bool:
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException:
        return True
    return False
