"""Calls of a function whose lowering took other element types: casts before and behind them.

    %n = func.call @f(%i) : (tensor<4xi64>) -> tensor<4xi64>
-> where @f takes and gives numbers of 32 bits
    %a = mllm.cast %i : (tensor<4xi64>) -> tensor<4xi32>
    %b = func.call @f(%a) : (tensor<4xi32>) -> tensor<4xi32>
    %n = mllm.cast %b : (tensor<4xi32>) -> tensor<4xi64>
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.mllm import CastOp
from mllm_compiler.dialects.types import element_of
from mllm_compiler.passes.graphs import block_of, graphs, return_of


def call_as_typed(module: ModuleOp, function: FuncOp) -> None:
    """Gives each call of a function the types that the function has now."""
    for graph in graphs(module):
        for op in list(block_of(graph).ops):
            if isinstance(op, CallOp) and op.callee.string_value() == function.sym_name.data:
                _retype(op, function)


def _retype(call: CallOp, function: FuncOp) -> None:
    block = call.parent_block()
    assert block is not None
    for at, argument in enumerate(block_of(function).args):
        if call.operands[at].type != argument.type:
            made = _located(CastOp(call.operands[at], element_of(argument)), call)
            block.insert_op_before(made, call)
            call.operands[at] = made.result
    for result, given in zip(call.results, return_of(function).operands, strict=True):
        if result.type != given.type:
            element = element_of(result)
            result._type = given.type  # pyright: ignore[reportPrivateUsage]
            made = _located(CastOp(result, element), call)
            block.insert_op_after(made, call)
            result.replace_uses_with_if(made.result, lambda use, cast=made: use.operation != cast)


def _located(made: CastOp, call: Operation) -> CastOp:
    made.location = call.location
    return made
