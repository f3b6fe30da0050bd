"""Elementwise ops become one-line programs, and chains of them one program.

    %a = cpu.f32_elementwise %x, %y {program = "in0 in1 add"}
    %b = cpu.f32_elementwise %a {program = "in0 silu 0.5 mul"}
->
    %b = cpu.f32_elementwise %x, %y {program = "in0 in1 add silu 0.5 mul"}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import StringAttr, i1, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.cpu.elementwise import (
    ARITY,
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
    """A function of one value; an activation right behind a product or convolution ends it."""
    kind = str(op.kind.data)
    product = op.x.owner
    if (
        kind in ACTIVATIONS
        and isinstance(product, cpu.F32LinearOp | cpu.F32DequantizedLinearOp | cpu.F32ConvOp)
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


@dataclass
class _Program:
    """A program as it is put together: where `words` has a number, a value stands here.

    Attributes:
        words: Functions and constants, and the values that are loaded.
        depth: The most values that it holds at once.
    """

    words: list[Word | SSAValue]
    depth: int

    @staticmethod
    def of(op: ElementwiseOp) -> _Program:
        """What an op says."""
        text = op.properties["program"]
        assert isinstance(text, StringAttr)
        given = words(text.data)
        loaded = [op.operands[int(w[1])] if w[0] == "in" else w for w in given]
        return _Program(loaded, depth(given) or MAX_DEPTH + 1)

    def text(self, inputs: Sequence[SSAValue]) -> str:
        """The program over inputs by their numbers."""
        number: dict[SSAValue, Word] = {v: ("in", at) for at, v in enumerate(inputs)}
        return spell([number[w] if isinstance(w, SSAValue) else w for w in self.words])

    def with_inner(self, value: SSAValue, inner: _Program) -> _Program:
        """The program with what makes a value in its place."""
        at = self.words.index(value)
        before = sum(1 if isinstance(w, SSAValue) else _growth(w) for w in self.words[:at])
        spliced = [*self.words[:at], *inner.words, *self.words[at + 1 :]]
        return _Program(spliced, max(self.depth, before + inner.depth))


def _growth(word: Word) -> int:
    """How many more values there are after a word."""
    return 1 - (ARITY[str(word[1])] if word[0] == "op" else 0)


def fuse(graph: FuncOp) -> None:
    """Merges each elementwise op into its only user where both run over one shape."""
    programs: dict[Operation, _Program] = {}
    for op in list(block_of(graph).ops):
        if isinstance(op, ElementwiseOp):
            programs[op] = _Program.of(op)
            _absorb(op, programs)
    for op, program in programs.items():
        op.properties["program"] = StringAttr(program.text(op.operands))


def _absorb(op: ElementwiseOp, programs: dict[Operation, _Program]) -> None:
    """Takes what makes an op's operands into it, whose program grows at its short end."""
    while True:
        merged = next((m for v in op.operands if (m := _merge(op, v, programs)) is not None), None)
        if merged is None:
            return
        inner, inputs, programs[op] = merged
        op.operands = inputs
        del programs[inner]
        inner.detach()
        inner.erase()


def _merge(
    op: ElementwiseOp, value: SSAValue, programs: dict[Operation, _Program]
) -> tuple[Operation, list[SSAValue], _Program] | None:
    inner = value.owner
    if not isinstance(inner, ElementwiseOp) or type(inner) is not type(op):
        return None
    if not value.has_one_use():
        return None
    if shape_of(value) != shape_of(op.results[0]) or not _exact(op, value):
        return None
    outer = programs[op]
    if sum(word is value for word in outer.words) != 1:
        return None
    inputs = list(dict.fromkeys([*(v for v in op.operands if v is not value), *inner.operands]))
    whole = outer.with_inner(value, programs[inner])
    if len(inputs) > MAX_INPUTS or whole.depth > MAX_DEPTH:
        return None
    return inner, inputs, whole


def _exact(op: ElementwiseOp, value: SSAValue) -> bool:
    """Whether a value held in a register equals what would have been stored."""
    narrow = isinstance(op, cpu.I64ElementwiseOp) and element_of(value) not in (i64, i1)
    return not narrow
