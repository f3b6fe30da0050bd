"""Target `c`: an mllm module becomes a stage table and packed weights."""

from __future__ import annotations

from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.artifact import CArtifact
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.plan_memory import PlanMemory

TARGET: Final = "c"
"""The target's name on the command line and in a bundle."""


def compile_module(module: ModuleOp) -> CArtifact:
    """Lowers an mllm module in place, plans its memory and writes its stage table.

    Raises:
        CompileError: An op has no kernel, or a size depends on data.
    """
    context = Context()
    LowerToCpu().apply(context, module)
    PlanMemory().apply(context, module)
    return emit(module)
