"""How fused ops become calls of kernels."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.lower_to_cpu.builder import Builder
from mllm_compiler.passes.lower_to_cpu.products import linear, rope


def activated_linear(op: mllm.ActivatedLinearOp, b: Builder) -> SSAValue:
    """A product with its epilogue."""
    return linear(b, op.x, op.weight, op.bias, op.activation.data)


def qkv(op: mllm.QkvOp, b: Builder) -> list[SSAValue]:
    """One product, cut in three; then queries and keys turn."""
    parts = _cut(b, linear(b, op.x, op.weight, op.bias), op.widths)
    if op.positions is None or op.inv_freq is None:
        return parts
    turn = (op.positions, op.inv_freq)
    paired = bool(op.interleaved)
    q, k = (
        rope(b, x, *turn, heads=heads, interleaved=paired)
        for x, heads in zip(parts, (op.head_count, op.kv_head_count), strict=False)
    )
    return [q, k, parts[2]]


def _cut(b: Builder, y: SSAValue, widths: tuple[Dim, ...]) -> list[SSAValue]:
    """Columns one behind another."""
    parts: list[SSAValue] = []
    start = Dim.const(0)
    for width in widths:
        kind = tensor_of(f32, (*shape_of(y)[:-1], width))
        starts = DimsAttr((Dim.const(0), Dim.const(0), start))
        parts.append(b.call(cpu.SliceOp, [y], kind, starts=starts, steps=[1, 1, 1]))
        start = start + width
    return parts
