"""The meaning of a call: what the function computes, run on its own; devices run it like that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Operation

from mllm_compiler.reference.executor import Array, Frame, Meaning, bind_symbols, find_function


def call(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """Runs the function that the property `callee` names; listeners hear its ops too.

    Raises:
        CompileError: MLC-D004, the module has no such function; MLC-D001, an operand does not fit.
    """
    callee, module = op.properties["callee"], op.get_toplevel_object()
    assert isinstance(callee, SymbolRefAttr)
    assert isinstance(module, ModuleOp)
    function = find_function(module, callee.string_value())
    inner = Frame(bind_symbols(function, operands), frame.store, frame.listener)
    return inner.run_block(function.body.block, operands)


MEANINGS: Mapping[str, Meaning] = {"func.call": call}
"""The meanings of the func dialect."""
