"""Elementwise ops become one-line programs, and chains of them one program.

    %a = cpu.f32_elementwise %x, %y {program = "in0 in1 add"}
    %b = cpu.f32_elementwise %a {program = "in0 silu 0.5 mul"}
->
    %b = cpu.f32_elementwise %x, %y {program = "in0 in1 add silu 0.5 mul"}
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import StringAttr, i1, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.cpu.elementwise import (
    MAX_DEPTH,
    MAX_INPUTS,
    ElementwiseOp,
    Word,
    depth,
    spell,
    words,
)
from mllm_compiler.dialects.cpu.linalg import ACTIVATIONS
from mllm_compiler.dialects.mllm.constants import array_of
from mllm_compiler.dialects.mllm.contract import broadcast_dims
from mllm_compiler.dialects.types import element_of, is_float, shape_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lower_to_cpu.builder import Builder


def unary(op: mllm.UnaryOp, b: Builder) -> SSAValue:
    """A function of one value; an activation right behind a product becomes its epilogue."""
    kind = str(op.kind.data)
    product = op.x.owner
    if (
        kind in ACTIVATIONS
        and isinstance(product, cpu.F32LinearOp | cpu.F32DequantizedLinearOp)
        and product.activation.data == "none"
        and len(product.results) == 1
        and op.x.has_one_use()
    ):
        product.properties["activation"] = StringAttr(kind)
        return product.y
    if kind == "not" and element_of(op.x) != i1:
        kind = "bitnot"
    return _apply(b, op, [op.x], kind)


def binary(op: mllm.BinaryOp, b: Builder) -> SSAValue:
    """A function of two values; the floating-point remainder has the sign of the dividend."""
    kind = str(op.kind.data)
    if kind == "mod" and is_float(element_of(op.a)):
        kind = "fmod"
    if kind in ("and", "or", "xor") and element_of(op.a) != i1:
        kind = f"bit{kind}"
    return _apply(b, op, [op.a, op.b], kind)


def compare(op: mllm.CompareOp, b: Builder) -> SSAValue:
    """A relation of two values."""
    return _apply(b, op, [op.a, op.b], str(op.kind.data))


def select(op: mllm.SelectOp, b: Builder) -> SSAValue:
    """A choice between two values."""
    return _apply(b, op, [op.c, op.a, op.b], "select")


def cast(op: mllm.CastOp, b: Builder) -> SSAValue:
    """A conversion; nothing where the type stays."""
    if element_of(op.x) == element_of(op.result):
        return op.x
    return b.call(cpu.CastOp, [op.x], op.result.type)


def _apply(b: Builder, op: Operation, operands: list[SSAValue], function: str) -> SSAValue:
    floating = any(is_float(element_of(v)) for v in operands)
    kind = cpu.F32ElementwiseOp if floating else cpu.I64ElementwiseOp
    inputs: list[SSAValue] = []
    program: list[Word] = []
    numbers = _numbers(operands, op.results[0])
    for value, number in zip(operands, numbers, strict=True):
        if number is not None:
            program.append(number)
            continue
        if value not in inputs:
            inputs.append(value)
        program.append(("in", inputs.index(value)))
    program.append(("op", function))
    return b.call(kind, [*inputs], op.results[0].type, program=spell(program))


def _numbers(operands: list[SSAValue], result: SSAValue) -> list[Word | None]:
    """The operands that are one number, as words, unless the result's shape comes from them."""
    numbers = [_number(v) for v in operands]
    kept = [shape_of(v) for v, n in zip(operands, numbers, strict=True) if n is None]
    if not kept or broadcast_dims(*kept) != shape_of(result):
        return [None] * len(operands)
    return numbers


def _number(value: SSAValue) -> Word | None:
    if not isinstance(value.owner, cpu.ConstantOp):
        return None
    array = array_of(value.owner.value)
    if array.size == 0 or not bool((array == array.reshape(-1)[0]).all()):
        return None
    first = array.reshape(-1)[0]
    if np.issubdtype(array.dtype, np.floating):
        return ("const", float(first))
    return ("iconst", int(first))


def fuse(graph: FuncOp) -> None:
    """Merges each elementwise op into its only user where both run over one shape."""
    for op in list(block_of(graph).ops):
        if isinstance(op, ElementwiseOp):
            _absorb(op)


def _absorb(op: ElementwiseOp) -> None:
    while True:
        merged = next((m for v in op.operands if (m := _merge(op, v)) is not None), None)
        if merged is None:
            return
        inner, inputs, program = merged
        op.operands = inputs
        op.properties["program"] = StringAttr(spell(program))
        inner.detach()
        inner.erase()


def _merge(
    op: ElementwiseOp, value: SSAValue
) -> tuple[Operation, list[SSAValue], list[Word]] | None:
    inner = value.owner
    if not isinstance(inner, ElementwiseOp) or type(inner) is not type(op):
        return None
    if not value.has_one_use():
        return None
    if shape_of(value) != shape_of(op.results[0]) or not _exact(op, value):
        return None
    outer_program, inner_program = _program(op), _program(inner)
    at = list(op.operands).index(value)
    if sum(word == ("in", at) for word in outer_program) != 1:
        return None
    inputs = list(dict.fromkeys([*(v for v in op.operands if v is not value), *inner.operands]))
    program: list[Word] = []
    for word in outer_program:
        if word == ("in", at):
            program += [_renumber(w, list(inner.operands), inputs) for w in inner_program]
        else:
            program.append(_renumber(word, list(op.operands), inputs))
    deepest = depth(program)
    if len(inputs) > MAX_INPUTS or deepest is None or deepest > MAX_DEPTH:
        return None
    return inner, inputs, program


def _exact(op: ElementwiseOp, value: SSAValue) -> bool:
    """Whether a value held in a register equals what would have been stored."""
    narrow = isinstance(op, cpu.I64ElementwiseOp) and element_of(value) not in (i64, i1)
    return not narrow


def _program(op: ElementwiseOp) -> list[Word]:
    text = op.properties["program"]
    assert isinstance(text, StringAttr)
    return words(text.data)


def _renumber(word: Word, before: list[SSAValue], after: list[SSAValue]) -> Word:
    return ("in", after.index(before[int(word[1])])) if word[0] == "in" else word
