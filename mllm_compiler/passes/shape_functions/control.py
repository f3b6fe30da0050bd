"""Shapes of control flow: both branches of `If`, the bodies of `Loop`, `Scan` and `SequenceMap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from xdsl.dialects.builtin import i1, i64
from xdsl.ir import Block, SSAValue

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.dialects.onnx_types import SequenceType
from mllm_compiler.passes.shape_functions.knowledge import (
    Known,
    Shapes,
    normal_axis,
    of_type,
    tensor,
)

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp

InferBlock = Callable[[Block, Shapes], None]
RegionFunction = Callable[["OnnxOp", Shapes, InferBlock], Sequence[Known]]

_ROUNDS: Final = 3


def join(a: Known, b: Known) -> Known:
    """What holds of a value that is either of two."""
    if a == b:
        return a
    if a.type is not None or b.type is not None:
        return a if a.type == b.type else Known()
    element = a.element if a.element == b.element else None
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        return Known(element)
    pairs = zip(a.dims, b.dims, strict=True)
    return Known(element, tuple(x if x == y else UNKNOWN for x, y in pairs))


def _run(
    block: Block, arguments: Sequence[Known], shapes: Shapes, infer: InferBlock
) -> list[Known]:
    for argument, known in zip(block.args, arguments, strict=False):
        declared = of_type(argument.type)
        shapes.known[argument] = known if known != Known() else declared
    infer(block, shapes)
    last = block.last_op
    return [shapes.of(v) for v in last.operands] if last is not None else []


def if_(op: OnnxOp, shapes: Shapes, infer: InferBlock) -> list[Known]:
    """What holds in both branches; in the one that is taken where the condition is known."""
    yes, no = (_run(region.block, [], shapes, infer) for region in op.regions)
    condition = shapes.array(op.input(0))
    if condition is not None and condition.size == 1:
        return yes if bool(condition.reshape(-1)[0]) else no
    return [join(a, b) for a, b in zip(yes, no, strict=True)]


def _settled(
    carried: list[Known], run: Callable[[list[Known]], list[Known]]
) -> tuple[list[Known], list[Known]]:
    """Repeats a body until what it carries does not change; the carried, and all it yields."""
    yielded: list[Known] = []
    for _ in range(_ROUNDS):
        yielded = run(carried)
        after = [join(a, b) for a, b in zip(carried, yielded, strict=False)]
        if after == carried:
            return carried, yielded
        carried = after
    carried = [Known(k.element, type=k.type) for k in carried]
    return carried, run(carried)


def loop(op: OnnxOp, shapes: Shapes, infer: InferBlock) -> list[Known]:
    """What is carried, at a fixed point; then what each iteration yields, stacked."""
    block = op.regions[0].block
    condition_yielded: list[Known] = []

    def run(carried: list[Known]) -> list[Known]:
        head = [tensor(i64, []), tensor(i1, [])]
        condition, *rest = _run(block, [*head, *carried], shapes, infer)
        condition_yielded[:] = [condition]
        return rest

    start = [replace(shapes.of(v), contents=None) for v in op.inputs[2:]]
    carried, yielded = _settled(start, run)
    trips = _trips(op, shapes, condition_yielded)
    return [*carried, *(_stacked(k, trips, 0) for k in yielded[len(start) :])]


def _trips(op: OnnxOp, shapes: Shapes, condition: list[Known]) -> Dim:
    """How often the body runs, where no condition can end it early."""
    limit = shapes.of(op.input(0)).contents
    begins = op.input(1)
    always = begins is None or _is_true(shapes.of(begins))
    if limit is None or not always or not _is_true(condition[0]):
        return UNKNOWN
    return limit[0]


def _is_true(known: Known) -> bool:
    return known.contents is not None and all(d.as_int() == 1 for d in known.contents)


def _stacked(known: Known, extent: Dim, axis: int) -> Known:
    if known.dims is None:
        return Known(known.element)
    at = normal_axis(axis, len(known.dims) + 1)
    return Known(known.element, (*known.dims[:at], extent, *known.dims[at:]))


def scan(op: OnnxOp, shapes: Shapes, infer: InferBlock) -> list[Known]:
    """States, at a fixed point; then what each step yields, stacked along its axis."""
    if op.schema.since < 9:
        return [Known()] * len(op.outputs)
    count = cast(int, op.attribute("num_scan_inputs"))
    states = len(op.inputs) - count
    if not 0 <= states <= len(op.inputs):
        raise ValueError(f"{count} scan inputs of {len(op.inputs)}")
    scanned = op.inputs[states:]
    in_axes = cast("tuple[int, ...] | None", op.attribute("scan_input_axes")) or (0,) * count
    extent, slices = UNKNOWN, list[Known]()
    for value, axis in zip(scanned, in_axes, strict=True):
        found, part = _sliced(shapes, value, axis)
        extent = found if extent.unknown else extent
        slices.append(part)
    block = op.regions[0].block
    start = [replace(shapes.of(v), contents=None) for v in op.inputs[:states]]
    carried, yielded = _settled(start, lambda c: _run(block, [*c, *slices], shapes, infer))
    made = yielded[states:]
    out_axes = cast("tuple[int, ...] | None", op.attribute("scan_output_axes")) or (0,) * len(made)
    return [*carried, *(_stacked(k, extent, a) for k, a in zip(made, out_axes, strict=True))]


def _sliced(shapes: Shapes, value: SSAValue | None, axis: int) -> tuple[Dim, Known]:
    known = shapes.of(value)
    if known.dims is None:
        return UNKNOWN, Known(known.element)
    at = normal_axis(axis, len(known.dims))
    return known.dims[at], Known(known.element, known.dims[:at] + known.dims[at + 1 :])


def sequence_map(op: OnnxOp, shapes: Shapes, infer: InferBlock) -> list[Known]:
    """A sequence of each thing that the body yields."""
    arguments: list[Known] = []
    for value in op.inputs:
        type = shapes.of(value).type
        inside = of_type(type.element) if isinstance(type, SequenceType) else shapes.of(value)
        arguments.append(inside)
    yielded = _run(op.regions[0].block, arguments, shapes, infer)
    return [Known(type=SequenceType(k.as_type())) for k in yielded]


def flex_attention(op: OnnxOp, shapes: Shapes, infer: InferBlock) -> list[Known]:
    """[B, H, T, D] queries and [B, Hkv, S, Dv] values -> [B, H, T, Dv]."""
    q, k, v = (shapes.of(value) for value in op.inputs)
    if q.dims is None or k.dims is None or v.dims is None:
        return [Known(q.element)]
    # The graphs see scores in f32 at least; their element type is the one that they declare.
    for region in op.graphs.values():
        declared = of_type(region.block.args[0].type)
        scores = Known(declared.element, (*q.dims[:3], k.dims[2]))
        _run(region.block, [scores], shapes, infer)
    return [tensor(q.element, (*q.dims[:3], v.dims[3]))]


FUNCTIONS: Final[dict[str, RegionFunction]] = {
    "onnx.preview.FlexAttention": flex_attention,
    "onnx.If": if_,
    "onnx.Loop": loop,
    "onnx.Scan": scan,
    "onnx.SequenceMap": sequence_map,
}
"""Shape functions of operators with regions."""
