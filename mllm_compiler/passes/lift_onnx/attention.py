"""The operators that attend, of the standard and of ONNX Runtime, as `mllm.attention`.

Keys and values that have a past are appended to it. What the attention op cannot say (a limit on
scores) becomes its arithmetic; an operator whose scores are a result stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i1, i64
from xdsl.ir import BlockArgument, SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CastOp,
    CompareKind,
    CompareOp,
    ConcatOp,
    IotaOp,
    MatmulOp,
    SliceOp,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, contents
from mllm_compiler.passes.lift_onnx.heads import (
    Heads,
    as_condition,
    as_key_mask,
    cached,
    causal,
    excluding,
    in_cache_layout,
    join_heads,
    up_to,
    up_to_sum,
)
from mllm_compiler.passes.lift_onnx.linear import (
    integer_attribute,
    integers_attribute,
    number_attribute,
)
from mllm_compiler.passes.lift_onnx.rotary import rotated_heads, rows

Values = Sequence[SSAValue]


def present(op: OnnxOp, made: Sequence[SSAValue | None]) -> list[SSAValue] | None:
    """Those of an operator's results that the model names; None where one is missing and used."""
    chosen: list[SSAValue] = []
    for at, result in enumerate(op.outputs):
        value = made[at] if at < len(made) else None
        if result is None:
            continue
        if value is None:
            unused = all(r is None or r.first_use is None for r in op.outputs[at:])
            return chosen if unused else None
        chosen.append(value)
    return chosen


def _static_widths(*values: SSAValue) -> bool:
    return all(shape_of(v)[-1].as_int() is not None for v in values)


def _standard(op: OnnxOp, emit: Emit) -> Values | None:
    q, k, v = op.operands[:3]
    if {rank_of(x) for x in (q, k, v)} not in ({3}, {4}) or not _static_widths(q, k, v):
        return None
    whole = rank_of(q) == 4
    counts = [shape_of(x)[1].as_int() for x in (q, k)] if whole else None
    names = ("q_num_heads", "kv_num_heads")
    heads, kv_heads = counts or [integer_attribute(op, n) for n in names]
    if not heads or not kv_heads:
        return None
    flat = [join_heads(emit, x) for x in (q, k, v)] if whole else [q, k, v]
    keys, values = _with_past(emit, op.input(4), op.input(5), flat[1], flat[2], kv_heads)
    made = Heads(emit, flat[0], heads, kv_heads)
    made.scale = number_attribute(op, "scale", 0.0) or None
    made.softcap = number_attribute(op, "softcap", 0.0)
    if not _standard_masks(op, made, shape_of(keys)[2]):
        return None
    past = op.input(4) is not None
    y = made.attend(keys if past else flat[1], values if past else flat[2])
    if whole:
        y = in_cache_layout(emit, y, heads)
    if _may_see_nothing(op):
        y = made.zero_where_nothing_is_seen(y, shape_of(keys)[2])
    return present(op, [y, keys, values])


def _may_see_nothing(op: OnnxOp) -> bool:
    """Whether a query may have no key: the caller chooses the mask, or a length is 0.

    A mask that the graph computes lets every query see itself, as exporters write it.
    """
    mask = op.input(3)
    given = isinstance(mask, BlockArgument) and element_of(mask) == i1
    return given or (op.input(6) is not None and bool(integer_attribute(op, "is_causal")))


def _with_past(
    emit: Emit,
    past_k: SSAValue | None,
    past_v: SSAValue | None,
    k: SSAValue,
    v: SSAValue,
    kv_heads: int,
) -> tuple[SSAValue, SSAValue]:
    """All keys and values in cache layout."""
    return cached(emit, past_k, k, kv_heads), cached(emit, past_v, v, kv_heads)


def _standard_masks(op: OnnxOp, made: Heads, keys: Dim) -> bool:
    """Adds what excludes keys; answers whether all of it can be said."""
    mask, past, lengths = op.input(3), op.input(4), op.input(6)
    emit, queries, element = made.emit, shape_of(made.q)[1], element_of(made.q)
    offset = Dim() if past is None else shape_of(past)[2]
    left = integer_attribute(op, "left_window_size", -1)
    right = integer_attribute(op, "right_window_size", -1)
    ordered = bool(integer_attribute(op, "is_causal"))
    aligned = keys == queries + offset and lengths is None
    if (left >= 0 or right > 0) and not (ordered and aligned):
        return False
    if right == 0 and not aligned:
        return False
    if ordered or right == 0:
        made.causal = aligned
        made.window = left + 1 if left >= 0 else None
        if not aligned and lengths is None:
            made.biases.append(causal(emit, element, queries, keys, offset))
        if lengths is not None:
            made.biases.append(_ragged(emit, lengths, made, keys))
    if lengths is not None:
        made.key_mask = up_to(emit, lengths, keys)
    return mask is None or _add_mask(made, mask, keys)


def _ragged(emit: Emit, lengths: SSAValue, made: Heads, keys: Dim) -> SSAValue:
    """The bias of causal attention whose last query stands at the end of each sequence's keys."""
    queries, batch = shape_of(made.q)[1], shape_of(lengths)[0]
    column = lengths if element_of(lengths) == i64 else emit(CastOp(lengths, i64))
    end = emit.reshape(column, (batch, 1, 1, 1))
    steps = emit.reshape(emit(IotaOp(queries, queries * -1)), (1, 1, queries, 1))
    row = emit.reshape(emit(IotaOp(keys)), (1, 1, 1, keys))
    at = emit.binary(BinaryKind.ADD, end, steps)
    return excluding(emit, emit(CompareOp(CompareKind.LE, row, at)), element_of(made.q))


def _add_mask(made: Heads, mask: SSAValue, keys: Dim) -> bool:
    """Adds a mask [.., T, S] of booleans or of what is added to scores."""
    last = shape_of(mask)[-1] if rank_of(mask) in (2, 3, 4) else None
    if last is None or last.unknown:
        return False
    if last != keys and None not in (last.as_int(), keys.as_int()) and last.as_int() != 1:
        return False
    element = element_of(made.q)
    if element_of(mask) == i1:
        made.biases.append(excluding(made.emit, mask, element))
        return True
    if not is_float(element_of(mask)):
        return False
    same = element_of(mask) == element
    made.biases.append(mask if same else made.emit(CastOp(mask, element)))
    return True


def _padding(made: Heads, mask: SSAValue | None, keys: Dim) -> bool:
    """Adds ONNX Runtime's mask of keys, of lengths or of scores."""
    if mask is None:
        return True
    if rank_of(mask) == 1 and shape_of(mask)[0] == shape_of(made.q)[0]:
        made.key_mask = up_to(made.emit, mask, keys)
    elif rank_of(mask) == 2:
        made.key_mask = as_key_mask(made.emit, mask)
    elif rank_of(mask) == 3:
        batch, queries, count = shape_of(mask)
        seen = made.emit.reshape(as_condition(made.emit, mask), (batch, 1, queries, count))
        made.biases.append(excluding(made.emit, seen, element_of(made.q)))
    else:
        return False
    return True


def _multi_head(op: OnnxOp, emit: Emit) -> Values | None:
    heads = integer_attribute(op, "num_heads")
    found = _projected(op, emit)
    if found is None or not _static_widths(*found):
        return None
    q, k, v = found
    past_k, past_v = op.input(6), op.input(7)
    if rank_of(k) == 4 and past_k is not None:
        return None
    keys, values = (k, v) if rank_of(k) == 4 else _with_past(emit, past_k, past_v, k, v, heads)
    made = Heads(emit, q, heads, heads)
    made.scale = number_attribute(op, "scale", 0.0) or None
    made.causal = bool(integer_attribute(op, "unidirectional"))
    if not _padding(made, op.input(4), shape_of(keys)[2]):
        return None
    extra = op.input(5)
    if extra is not None:
        made.biases.append(extra)
    whole = past_k is not None or rank_of(k) == 4
    y = made.attend(keys if whole else k, values if whole else v)
    return present(op, [y, keys, values])


def _projected(op: OnnxOp, emit: Emit) -> tuple[SSAValue, SSAValue, SSAValue] | None:
    """Queries, keys and values of `MultiHeadAttention`, with their biases."""
    q, k, v, bias = (op.input(i) for i in range(4))
    if q is None:
        return None
    if rank_of(q) == 5:
        q, k, v = (_unpacked(emit, q, i) for i in range(3))
    elif k is not None and rank_of(k) == 5:
        k, v = (_unpacked(emit, k, i) for i in range(2))
    if k is None or v is None or rank_of(q) != 3 or rank_of(k) != rank_of(v):
        return None
    if bias is None:
        return q, k, v
    parts: list[SSAValue] = []
    start = Dim()
    for x in (q, k, v):
        width = shape_of(q)[2] if rank_of(x) == 4 else shape_of(x)[2]
        row = emit(SliceOp(bias, [start], [width]))
        parts.append(x if rank_of(x) == 4 else emit.binary(BinaryKind.ADD, x, row))
        start = start + width
    return parts[0], parts[1], parts[2]


def _unpacked(emit: Emit, x: SSAValue, which: int) -> SSAValue:
    """One part of [B, T, H, parts, D] as [B, T, H*D]."""
    batch, tokens, heads, _, size = shape_of(x)
    part = emit(SliceOp(x, [0, 0, 0, which, 0], (batch, tokens, heads, 1, size)))
    return emit.reshape(part, (batch, tokens, heads * size))


def _columns(emit: Emit, x: SSAValue, widths: Sequence[int]) -> list[SSAValue]:
    """X cut along its last axis."""
    starts = [sum(widths[:i]) for i in range(len(widths))]
    lead = shape_of(x)[:-1]
    zeros = [0] * len(lead)
    pairs = zip(starts, widths, strict=True)
    return [emit(SliceOp(x, [*zeros, s], [*lead, w])) for s, w in pairs]


def _group_query(op: OnnxOp, emit: Emit) -> Values | None:
    heads, kv_heads = (integer_attribute(op, n) for n in ("num_heads", "kv_num_heads"))
    q, k, v, past_k, past_v = (op.input(i) for i in range(5))
    sinks = op.input(11) is not None or integer_attribute(op, "smooth_softmax")
    width = shape_of(q)[2].as_int() if q is not None and rank_of(q) == 3 else None
    if q is None or width is None or sinks:
        return None
    if k is None or v is None:
        each = width // (heads + 2 * kv_heads)
        q, k, v = _columns(emit, q, [heads * each, kv_heads * each, kv_heads * each])
    if integer_attribute(op, "do_rotary"):
        tables = _rows_of_tokens(op, emit, q, past_k)
        if tables is None:
            return None
        inter = bool(integer_attribute(op, "rotary_interleaved"))
        q = rotated_heads(emit, q, tables, heads, interleaved=inter)
        k = rotated_heads(emit, k, tables, kv_heads, interleaved=inter)
    keys, values = _with_past(emit, past_k, past_v, k, v, kv_heads)
    window = integer_attribute(op, "local_window_size", -1)
    made = Heads(emit, q, heads, kv_heads, causal=True, window=window if window > 0 else None)
    made.scale = number_attribute(op, "scale", 0.0) or None
    made.softcap = number_attribute(op, "softcap", 0.0)
    lengths, count = op.input(5), shape_of(keys)[2]
    assert lengths is not None
    if any(d != count - 1 for d in contents(lengths) or [Dim()]):
        seen = up_to_sum(emit, lengths, count)
        if seen is None:
            each = emit.reshape(lengths, (shape_of(q)[0],))
            seen = up_to(emit, each, count, included=True)
        made.key_mask = seen
    extra = op.input(10)
    if extra is not None:
        made.biases.append(extra)
    past = past_k is not None
    y = made.attend(keys if past else k, values if past else v)
    return present(op, [y, keys, values])


def _rows_of_tokens(
    op: OnnxOp, emit: Emit, q: SSAValue, past: SSAValue | None
) -> tuple[SSAValue, SSAValue] | None:
    """Rows of the caches for the tokens that follow a past."""
    cos, sin, positions = op.input(7), op.input(8), op.input(9)
    if cos is None or sin is None:
        return None
    if positions is None:
        start = Dim() if past is None else shape_of(past)[2]
        tokens = shape_of(q)[1]
        positions = emit.reshape(emit(IotaOp(tokens, start)), (1, tokens))
    return rows(emit, cos, positions), rows(emit, sin, positions)


def _packed(op: OnnxOp, emit: Emit) -> Values | None:
    x, weight, bias, mask, past, extra = (op.input(i) for i in range(6))
    heads = integer_attribute(op, "num_heads")
    width = shape_of(weight)[1].as_int() if weight is not None else None
    if x is None or weight is None or width is None or integer_attribute(op, "do_rotary"):
        return None
    if op.input(6) is not None:
        return None
    projected = emit(MatmulOp(x, weight))
    if bias is not None:
        projected = emit.binary(BinaryKind.ADD, projected, bias)
    widths = integers_attribute(op, "qkv_hidden_sizes") or [width // 3] * 3
    q, k, v = _columns(emit, projected, widths)
    old = [None if past is None else _half_of(emit, past, i) for i in range(2)]
    keys, values = _with_past(emit, old[0], old[1], k, v, heads)
    made = Heads(emit, q, heads, heads, causal=bool(integer_attribute(op, "unidirectional")))
    made.scale = number_attribute(op, "scale", 0.0) or None
    if not _padding(made, mask, shape_of(keys)[2]):
        return None
    if extra is not None:
        made.biases.append(extra)
    y = made.attend(k if past is None else keys, v if past is None else values)
    if shape_of(keys) != shape_of(values):
        return present(op, [y])
    both = [emit.reshape(s, (1, *shape_of(s))) for s in (keys, values)]
    return present(op, [y, emit(ConcatOp(both, 0))])


def _half_of(emit: Emit, past: SSAValue, which: int) -> SSAValue:
    """Keys or values of a past [2, B, H, P, D]."""
    dims = shape_of(past)[1:]
    return emit.reshape(emit(SliceOp(past, [which, 0, 0, 0, 0], (1, *dims))), dims)


CONVERTERS: dict[str, Converter] = {
    "Attention": _standard,
    "microsoft.Attention": _packed,
    "microsoft.MultiHeadAttention": _multi_head,
    "microsoft.GroupQueryAttention": _group_query,
}
"""Operator name to converter."""
