"""How each mllm op becomes cpu ops: one short function an op, and the table of them."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import f32
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import SymbolTable

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.mllm.contract import float_list
from mllm_compiler.dialects.types import dtype_of, element_of, is_float, shape_of
from mllm_compiler.passes.graphs import TARGET
from mllm_compiler.passes.lower_to_cpu import expressions, fused, quantised, tokens
from mllm_compiler.passes.lower_to_cpu.builder import Builder
from mllm_compiler.passes.lower_to_cpu.products import linear, rope
from mllm_compiler.passes.lower_to_cpu.quantised import rows_of_codes

Lowering = Callable[..., SSAValue | list[SSAValue]]
"""Makes the results of an op; one that has a single result may give it alone."""


def _linear(op: mllm.LinearOp, b: Builder) -> SSAValue:
    return linear(b, op.x, op.weight, op.bias)


def _mlp(op: mllm.MlpOp, b: Builder) -> SSAValue:
    hidden = linear(b, op.x, op.w1, op.b1, op.activation.data)
    return linear(b, hidden, op.w2, op.b2)


def _gated_mlp(op: mllm.GatedMlpOp, b: Builder) -> SSAValue:
    gate = linear(b, op.x, op.gate, None, op.activation.data)
    up = linear(b, op.x, op.up, None)
    product = b.call(cpu.F32ElementwiseOp, [gate, up], gate.type, program="in0 in1 mul")
    return linear(b, product, op.down, None)


def _matmul(op: mllm.MatmulOp, b: Builder) -> SSAValue:
    turned = op.b.owner
    if isinstance(turned, cpu.TransposeOp) and _swaps_last(ints(turned.perm)):
        return b.call(cpu.F32MatmulOp, [op.a, turned.x], op.result.type, transpose_b=True)
    return b.call(cpu.F32MatmulOp, [op.a, op.b], op.result.type, transpose_b=False)


def _swaps_last(perm: list[int]) -> bool:
    n = len(perm)
    return n >= 2 and perm == [*range(n - 2), n - 1, n - 2]


def _embedding(op: mllm.EmbeddingOp, b: Builder) -> SSAValue:
    ids = b.as_i64(op.ids)
    if (table := b.coded.get(op.table)) is not None:
        return rows_of_codes(b, ids, table, op.result)
    packed = b.packed(op.table) if element_of(op.table) == f32 else None
    if packed is None:
        return b.call(cpu.GatherOp, [op.table, ids], op.result.type, axis=0)
    return b.call(cpu.F32EmbeddingOp, [ids, packed], op.result.type)


def _gather(op: mllm.GatherOp, b: Builder) -> SSAValue:
    indices = b.as_i64(op.indices)
    table = b.coded.get(op.x)
    if table is not None and op.axis.value.data == 0:
        return rows_of_codes(b, indices, table, op.result)
    return b.call(cpu.GatherOp, [op.x, indices], op.result.type, axis=op.axis.value.data)


def _top_k(op: mllm.TopKOp, b: Builder) -> list[SSAValue]:
    """Values and indices by a call each; `lower-to-cpu` removes the one that nobody reads."""
    wide = op.x if is_float(element_of(op.x)) else b.as_i64(op.x)
    orders = {
        "axis": op.axis.value.data,
        "smallest": bool(op.smallest),
        "by_index": bool(op.by_index),
    }
    kind = tensor_of(element_of(wide), shape_of(op.values))
    values = b.call(cpu.TopKOp, [wide], kind, **orders, part="values")
    if kind != op.values.type:
        values = b.call(cpu.CastOp, [values], op.values.type)
    return [values, b.call(cpu.TopKOp, [wide], op.indices.type, **orders, part="indices")]


def _layer_norm(op: mllm.LayerNormOp, b: Builder) -> SSAValue:
    arguments = [op.x, op.weight, op.bias]
    return b.call(cpu.F32LayerNormOp, arguments, op.result.type, epsilon=op.epsilon.value.data)


def _rms_norm(op: mllm.RmsNormOp, b: Builder) -> SSAValue:
    arguments: list[SSAValue | None] = [op.x, op.weight]
    return b.call(cpu.F32RmsNormOp, arguments, op.result.type, epsilon=op.epsilon.value.data)


def _softmax(op: mllm.SoftmaxOp, b: Builder) -> SSAValue:
    return b.call(cpu.F32SoftmaxOp, [op.x], op.result.type, axis=op.axis.value.data)


def _reduce(op: mllm.ReduceOp, b: Builder) -> SSAValue:
    kind, axes = op.kind.data, op.axis_list
    return b.call(cpu.F32ReduceOp, [op.x], op.result.type, kind=str(kind), axes=axes)


def _cumsum(op: mllm.CumsumOp, b: Builder) -> SSAValue:
    return b.call(
        cpu.CumsumOp,
        [op.x],
        op.result.type,
        axis=op.axis.value.data,
        exclusive=bool(op.exclusive.value.data),
        reverse=bool(op.reverse.value.data),
    )


def _selective_scan(op: mllm.SelectiveScanOp, b: Builder) -> list[SSAValue]:
    made = cpu.F32SelectiveScanOp.call([*op.operands], [op.y.type, op.last.type])
    b.insert(made)
    return [*made.results]


def _rope(op: mllm.RopeOp, b: Builder) -> SSAValue:
    heads, paired = op.heads.value.data, bool(op.interleaved)
    return rope(b, op.x, op.positions, op.inv_freq, heads=heads, interleaved=paired)


def _attention(op: mllm.AttentionOp, b: Builder) -> SSAValue:
    mask = None if op.key_mask is None else b.as_i64(op.key_mask)
    return b.call(
        cpu.F32AttentionOp,
        [op.q, op.k, op.v, mask, op.bias],
        op.result.type,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        causal=bool(op.causal.value.data),
        window=op.window.value.data if op.window else 0,
    )


def _cross_attn(op: mllm.CrossAttnOp, b: Builder) -> SSAValue:
    mask = None if op.key_mask is None else b.as_i64(op.key_mask)
    return b.call(
        cpu.F32AttentionOp,
        [op.q, op.k, op.v, mask, None],
        op.result.type,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        causal=False,
        window=0,
    )


def _patch_embed(op: mllm.PatchEmbedOp, b: Builder) -> SSAValue:
    batch, tokens, n = shape_of(op.result)
    patches = tokens if op.cls is None else tokens - 1
    packed = b.panels(op.weight)
    y = b.call(
        cpu.F32PatchEmbedOp,
        [op.pixels, packed, op.bias],
        tensor_of(f32, (batch, patches, n)),
        patch=op.patch.value.data,
        n=n.as_int() or 0,
    )
    if op.cls is not None:
        cls = b.repeat(op.cls, (batch, Dim.const(1), n))
        y = b.call(cpu.ConcatOp, [cls, y], op.result.type, axis=1)
    if op.position is not None:
        arguments: list[SSAValue | None] = [y, op.position]
        y = b.call(cpu.F32ElementwiseOp, arguments, op.result.type, program="in0 in1 add")
    return y


def _conv(op: mllm.ConvOp, b: Builder) -> SSAValue:
    strides, pads, dilations = op.window
    dims, groups = b.fixed(op.weight), op.groups.value.data
    weight = b.panels(op.weight) if groups == 1 else op.weight
    return b.call(
        cpu.F32ConvOp,
        [op.x, weight, op.bias],
        op.result.type,
        kernel_shape=dims[2:],
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        out_channels=dims[0],
        activation="none",
    )


def _pool(op: mllm.PoolOp, b: Builder) -> SSAValue:
    kernel, strides, pads = op.window
    return b.call(
        cpu.F32PoolOp,
        [op.x],
        op.result.type,
        kind=str(op.kind.data),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        count_include_pad=bool(op.count_include_pad.value.data),
    )


def _resize(op: mllm.ResizeOp, b: Builder) -> SSAValue:
    """One axis after another; an axis that stays as it is, costs nothing."""
    y, scales = op.x, float_list(op.scales)
    for axis in range(2, len(shape_of(op.x))):
        scale, size = scales[axis - 2] if scales else 0.0, shape_of(op.result)[axis]
        if scale in (0.0, 1.0) and size == shape_of(y)[axis]:
            continue
        dims = (*shape_of(y)[:axis], size, *shape_of(y)[axis + 1 :])
        y = b.call(
            cpu.F32ResizeOp,
            [y],
            tensor_of(f32, dims),
            axis=axis,
            mode=str(op.mode.data),
            coordinates=str(op.coordinates.data),
            cubic_coeff=op.cubic_coeff.value.data,
            scale=scale,
        )
    return y


def _reshape(op: mllm.ReshapeOp, b: Builder) -> SSAValue:
    return b.alias(op.x, shape_of(op.result))


def _transpose(op: mllm.TransposeOp, b: Builder) -> SSAValue:
    dims, perm = shape_of(op.x), op.permutation
    moved = [p for p in perm if dims[p].as_int() != 1]
    if moved == sorted(moved):
        return b.alias(op.x, shape_of(op.result))
    return b.call(cpu.TransposeOp, [op.x], op.result.type, perm=perm)


def _concat(op: mllm.ConcatOp, b: Builder) -> SSAValue:
    if len(op.xs) == 1:
        return op.xs[0]
    return b.call(cpu.ConcatOp, [*op.xs], op.result.type, axis=op.axis.value.data)


def _kv_append(op: mllm.KvAppendOp, b: Builder) -> SSAValue:
    """The copy of a past that is no cache, with the new tokens behind it."""
    batch, heads, _, size = shape_of(op.past)
    tokens, element = shape_of(op.new)[1], element_of(op.past)
    apart = b.alias(op.new, (batch, tokens, heads, size))
    turned = tensor_of(element, (batch, heads, tokens, size))
    new = b.call(cpu.TransposeOp, [apart], turned, perm=[0, 2, 1, 3])
    return b.call(cpu.ConcatOp, [op.past, new], op.result.type, axis=2)


def _slice(op: mllm.SliceOp, b: Builder) -> SSAValue:
    if shape_of(op.x) == shape_of(op.result) and set(op.step_list) == {1}:
        return op.x
    starts = DimsAttr(op.starts.data)
    return b.call(cpu.SliceOp, [op.x], op.result.type, starts=starts, steps=op.step_list)


def _broadcast(op: mllm.BroadcastOp, b: Builder) -> SSAValue:
    return b.repeat(op.x, shape_of(op.result))


def _iota(op: mllm.IotaOp, b: Builder) -> SSAValue:
    start = DimsAttr(op.start.data)
    return b.call(cpu.IotaOp, [], op.result.type, start=start, step=op.step.value.data)


def _pad(op: mllm.PadOp, b: Builder) -> SSAValue:
    before, _ = op.amounts
    value = element_bits(op.value.value.data, element_of(op.x))
    return b.call(cpu.PadOp, [op.x], op.result.type, before=before, value=value)


def element_bits(value: float, element: Attribute) -> int:
    """The bits of one element, as a non-negative integer."""
    import numpy as np

    raw = np.asarray(value).astype(dtype_of(element)).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little", signed=True)


def _device_call(op: CallOp, b: Builder) -> list[SSAValue]:
    function = SymbolTable.lookup_symbol(op, op.callee)
    assert function is not None
    device = function.attributes[TARGET]
    types = [result.type for result in op.results]
    made = cpu.DeviceCallOp.call(op.operands, types, device=device, callee=op.callee)
    b.insert(made)
    return list(made.results)


LOWERINGS: dict[type[Operation], Lowering] = {
    mllm.WeightOp: quantised.weight,
    mllm.ConstantOp: quantised.constant,
    mllm.UnaryOp: expressions.unary,
    mllm.BinaryOp: expressions.binary,
    mllm.CompareOp: expressions.compare,
    mllm.SelectOp: expressions.select,
    mllm.CastOp: expressions.cast,
    mllm.LinearOp: _linear,
    mllm.MlpOp: _mlp,
    mllm.GatedMlpOp: _gated_mlp,
    mllm.MatmulOp: _matmul,
    mllm.EmbeddingOp: _embedding,
    mllm.GatherOp: _gather,
    mllm.TopKOp: _top_k,
    mllm.TokenImportanceOp: tokens.token_importance,
    mllm.TokenGatherOp: tokens.token_gather,
    mllm.LayerNormOp: _layer_norm,
    mllm.RmsNormOp: _rms_norm,
    mllm.SoftmaxOp: _softmax,
    mllm.ReduceOp: _reduce,
    mllm.CumsumOp: _cumsum,
    mllm.SelectiveScanOp: _selective_scan,
    mllm.RopeOp: _rope,
    mllm.QkvOp: fused.qkv,
    mllm.ActivatedLinearOp: fused.activated_linear,
    mllm.AttentionOp: _attention,
    mllm.CrossAttnOp: _cross_attn,
    mllm.PatchEmbedOp: _patch_embed,
    mllm.ConvOp: _conv,
    mllm.PoolOp: _pool,
    mllm.ResizeOp: _resize,
    mllm.ReshapeOp: _reshape,
    mllm.TransposeOp: _transpose,
    mllm.ConcatOp: _concat,
    mllm.KvAppendOp: _kv_append,
    mllm.SliceOp: _slice,
    mllm.BroadcastOp: _broadcast,
    mllm.IotaOp: _iota,
    mllm.PadOp: _pad,
    mllm.QuantizeOp: quantised.quantize,
    mllm.DequantizeOp: quantised.dequantize,
    mllm.DynamicQuantizeOp: quantised.dynamic_quantize,
    mllm.QuantizedLinearOp: quantised.quantized_linear,
    mllm.IntegerMatmulOp: quantised.integer_matmul,
    mllm.IntegerConvOp: quantised.integer_conv,
    CallOp: _device_call,
}
"""The function that lowers each op."""
