"""Padded forms of ops that work element by element or row by row: padding stays in its rows."""

from __future__ import annotations

from typing import Final

from xdsl.ir import Operation

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import BinaryKind, UnaryKind, constant_scalar
from mllm_compiler.passes.bucket_shapes.padded import Padded

HARMLESS: Final = {
    UnaryKind.LOG: 1.0,
    UnaryKind.SQRT: 1.0,
    UnaryKind.RSQRT: 1.0,
    UnaryKind.RECIPROCAL: 1.0,
    UnaryKind.ACOS: 0.0,
    UnaryKind.ASIN: 0.0,
    UnaryKind.ACOSH: 1.0,
    UnaryKind.ATANH: 0.0,
}
"""Functions that are not finite everywhere, each with an element where it is.

A number that is not finite would leave its padding: no product with 0 takes it away.
"""

QUOTIENTS: Final = {BinaryKind.DIV: 1, BinaryKind.MOD: 1, BinaryKind.POW: 0}
"""Functions of two elements that are not finite everywhere, and the operand that must be 1."""


def unary(op: mllm.UnaryOp, p: Padded) -> None:
    """A function that is not finite everywhere gets an element where it is."""
    number = HARMLESS.get(op.kind.data)
    if number is not None:
        op.operands[0] = p.filled(op.x, number, op)


def binary(op: mllm.BinaryOp, p: Padded) -> None:
    """Padding is never divided by."""
    aligned(op, p)
    at = QUOTIENTS.get(op.kind.data)
    exponent = constant_scalar(op.b)
    whole = exponent is not None and exponent >= 0 and exponent == int(exponent)
    if at is not None and not (op.kind.data is BinaryKind.POW and whole):
        op.operands[at] = p.filled(op.operands[at], 1, op)


def aligned(op: Operation, p: Padded) -> None:
    """Operands that broadcast to the result: each axis has its extent, or 1."""
    result = p.dims(op.results[0])
    for operand in op.operands:
        dims = p.dims(operand)
        for dim, met in zip(reversed(dims), reversed(result), strict=False):
            if dim != met and dim.as_int() != 1:
                raise p.refusal(op, f"extents {dim} and {met} may pad differently")


def rows(op: Operation, p: Padded) -> None:
    """Only the first operand has symbols, and none along its last axis, which the op mixes."""
    first, *others = op.operands
    static(op, p, p.dims(first)[-1:])
    for other in others:
        static(op, p, p.dims(other))


def residual_norm(op: mllm.ResidualNormOp, p: Padded) -> None:
    """Both streams pad alike, and no symbol is among the elements of a row."""
    aligned(op, p)
    static(op, p, p.dims(op.x)[-1:])


def linear(op: mllm.LinearOp | mllm.ActivatedLinearOp, p: Padded) -> None:
    """No symbol is summed over; a computed weight may have padded rows, which pad the result."""
    static(op, p, (p.dims(op.x)[-1], *p.dims(op.weight)[1:]))


def scaled(op: Operation, p: Padded) -> None:
    """A scale or zero point has the symbols of what it scales where it has any."""
    whole = p.dims(op.operands[0])
    for other in op.operands[1:]:
        for dim, met in zip(reversed(p.dims(other)), reversed(whole), strict=False):
            if dim.symbols() and dim != met:
                raise p.refusal(op, f"extents {dim} and {met} may pad differently")


def dynamic_quantize(op: mllm.DynamicQuantizeOp, p: Padded) -> None:
    """Zeros do not move the range that a scale is made from."""
    op.operands[0] = p.filled(op.x, 0, op)


def quantized_linear(op: mllm.QuantizedLinearOp, p: Padded) -> None:
    """No symbol is summed over, and each row keeps its scale."""
    static(op, p, (p.dims(op.x)[-1], *p.dims(op.weight), *p.dims(op.weight_scale)))


def integer_matmul(op: mllm.IntegerMatmulOp, p: Padded) -> None:
    """No symbol is summed over: padding is not the zero point."""
    static(op, p, (p.dims(op.a)[-1], *p.dims(op.b)))


def integer_conv(op: mllm.IntegerConvOp, p: Padded) -> None:
    """Only the batch has symbols: padding is not the zero point."""
    static(op, p, (*p.dims(op.x)[1:], *p.dims(op.weight)))


def plain(op: Operation, p: Padded) -> None:
    """An op that moves padding with the elements beside it."""


def static(op: Operation, p: Padded, dims: tuple[Dim, ...]) -> None:
    """Refuses symbols among dims.

    Raises:
        CompileError: MLC-P002.
    """
    symbolic = next((d for d in dims if d.symbols()), None)
    if symbolic is not None:
        raise p.refusal(op, f"it mixes the elements along {symbolic}")
