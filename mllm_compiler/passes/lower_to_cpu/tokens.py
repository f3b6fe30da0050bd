"""How choosing among tokens becomes cpu ops."""

from __future__ import annotations

from xdsl.dialects.builtin import f32, i64
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.cpu.elementwise import spell
from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lower_to_cpu.builder import Builder

ONE, ZERO = Dim.const(1), Dim()


def token_importance(op: mllm.TokenImportanceOp, b: Builder) -> SSAValue:
    """The first query's products with all keys, their softmax, and its mean over the heads."""
    heads, (batch, keys, width) = Dim.const(op.heads.value.data), shape_of(op.k)
    size = width // heads
    q = b.alias(_first(op.q, b), (batch, heads, ONE, size))
    apart = b.alias(op.k, (batch, keys, heads, size))
    turned = tensor_of(f32, (batch, heads, keys, size))
    k = b.call(cpu.TransposeOp, [apart], turned, perm=[0, 2, 1, 3])
    kind = tensor_of(f32, (batch, heads, ONE, keys))
    scores = b.call(cpu.F32MatmulOp, [q, k], kind, transpose_b=True)
    program = spell([("in", 0), ("const", _head_size(op, size) ** -0.5), ("op", "mul")])
    scaled = b.call(cpu.F32ElementwiseOp, [scores], kind, program=program)
    shares = b.call(cpu.F32SoftmaxOp, [scaled], kind, axis=3)
    return b.call(cpu.F32ReduceOp, [shares], op.result.type, kind="mean", axes=[1, 2])


def _first(q: SSAValue, b: Builder) -> SSAValue:
    """The row of the first query."""
    batch, queries, width = shape_of(q)
    if queries == ONE:
        return q
    starts = DimsAttr((ZERO, ZERO, ZERO))
    return b.call(
        cpu.SliceOp, [q], tensor_of(f32, (batch, ONE, width)), starts=starts, steps=[1, 1, 1]
    )


def _head_size(op: mllm.TokenImportanceOp, size: Dim) -> int:
    extent = size.as_int()
    if extent is None:
        raise CompileError(
            "MLC-R003",
            f"the width of a head, {size}, is no fixed one",
            location=location_of(op),
            remedy="fix the width of q and k, or use the target numpy",
        )
    return extent


def token_gather(op: mllm.TokenGatherOp, b: Builder) -> SSAValue:
    """Rows of the tokens of all images: those of image i stand i T rows behind the first."""
    (batch, tokens, width), rows = shape_of(op.x), b.as_i64(op.indices)
    every = b.alias(op.x, (batch * tokens, width))
    if batch != ONE:
        counted = b.call(
            cpu.IotaOp, [], tensor_of(i64, (batch * tokens,)), start=DimsAttr((ZERO,)), step=1
        )
        table, first = b.alias(counted, (batch, tokens)), tensor_of(i64, (batch, ONE))
        starts = DimsAttr((ZERO, ZERO))
        start = b.call(cpu.SliceOp, [table], first, starts=starts, steps=[1, 1])
        rows = b.call(cpu.I64ElementwiseOp, [rows, start], rows.type, program="in0 in1 add")
    return b.call(cpu.GatherOp, [every, rows], op.result.type, axis=0)
