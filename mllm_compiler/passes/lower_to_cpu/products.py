"""Calls of kernels that the lowerings of several ops share."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.lower_to_cpu.builder import Builder
from mllm_compiler.passes.lower_to_cpu.quantised import CodedCall


def linear(
    b: Builder, x: SSAValue, weight: SSAValue, bias: SSAValue | None, activation: str = "none"
) -> SSAValue:
    """A product with a packed weight; with a computed one a plain product, a sum, a function."""
    n = shape_of(weight)[0]
    result = tensor_of(f32, (*shape_of(x)[:-1], n))
    if (matrix := b.coded.get(weight)) is not None:
        call = CodedCall.of(b, matrix)
        arguments = [x, *call.operands, bias]
        properties = {**call.properties, "activation": activation}
        return b.call(cpu.F32DequantizedLinearOp, arguments, result, **properties)
    packed = b.packed(weight)
    if packed is not None:
        features = n.as_int()
        return b.call(
            cpu.F32LinearOp, [x, packed, bias], result, n=features or 0, activation=activation
        )
    y = b.call(cpu.F32MatmulOp, [x, weight], result, transpose_b=True)
    program = ["in0"] + (["in1", "add"] if bias else []) + [activation] * (activation != "none")
    if len(program) == 1:
        return y
    arguments = [y] if bias is None else [y, bias]
    return b.call(cpu.F32ElementwiseOp, arguments, result, program=" ".join(program))


def rope(
    b: Builder,
    x: SSAValue,
    positions: SSAValue,
    inv_freq: SSAValue,
    *,
    heads: int,
    interleaved: bool,
) -> SSAValue:
    """Rotary positions; every sequence has its own."""
    each = b.repeat(positions, shape_of(x)[:2])
    return b.call(cpu.F32RopeOp, [x, each, inv_freq], x.type, heads=heads, interleaved=interleaved)
