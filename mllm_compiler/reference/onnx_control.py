"""Control flow and optionals of `onnx`: the executor runs regions in their operator's scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_types import ELEMENTS, NUMPY, element_type
from mllm_compiler.errors import CompileError
from mllm_compiler.reference.executor import Array, Frame, Meaning


def if_(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """The first region where the condition holds, else the second."""
    taken = bool(np.asarray(operands[0]).reshape(-1)[0])
    return frame.run_block(op.regions[0 if taken else 1].block, [])


def loop(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """At most M iterations while the condition holds; scan outputs are stacked."""
    assert isinstance(op, OnnxOp)
    given = iter(operands)
    values = [None if v is None else next(given) for v in op.inputs]
    limit = None if not values or values[0] is None else int(values[0].reshape(-1)[0])
    going = len(values) < 2 or values[1] is None or bool(values[1].reshape(-1)[0])
    carried = [cast(Array, v) for v in values[2:]]
    block = op.regions[0].block
    yields = block.last_op
    scans = len(yields.operands) - 1 - len(carried) if yields is not None else 0
    stacks: list[list[Array]] = [[] for _ in range(scans)]
    at = 0
    while going and (limit is None or at < limit):
        head = [np.array(at, np.int64), np.array(True)]
        condition, *rest = frame.run_block(block, [*head, *carried])
        going = bool(np.asarray(condition).reshape(-1)[0])
        carried = rest[: len(carried)]
        for stack, made in zip(stacks, rest[len(carried) :], strict=True):
            stack.append(made)
        at += 1
    results = op.results[len(carried) :]
    return [*carried, *(_stacked(s, r.type, 0) for s, r in zip(stacks, results, strict=True))]


def _stacked(parts: list[Array], type: Any, axis: int) -> Array:
    if parts:
        return np.stack(parts, axis)
    # No iteration ran: the extent is 0, the others are what the type says, or 0.
    element = element_type(type)
    shape = [max(0, n) for n in type.get_shape()] if hasattr(type, "get_shape") else [0]
    shape[axis if shape else 0 :][:1] = [0]
    return np.zeros([0, *shape[1:]], NUMPY[element] if element is not None else np.float32)


def scan(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """States run through the slices of the scanned operands; what is made is stacked."""
    assert isinstance(op, OnnxOp)
    if op.schema.since < 9:
        return _scan_of_batches(op, operands, frame)
    return _scan(op, list(operands), frame)


def _axes(op: OnnxOp, name: str, count: int) -> tuple[int, ...]:
    given = op.attribute(name) if name in op.schema.attributes else None
    return cast("tuple[int, ...]", given) if given is not None else (0,) * count


def _scan(op: OnnxOp, operands: Sequence[Array], frame: Frame) -> list[Array]:
    count = cast(int, op.attribute("num_scan_inputs"))
    states, scanned = list(operands[: len(operands) - count]), operands[len(operands) - count :]
    in_axes = _axes(op, "scan_input_axes", count)
    backward = _axes(op, "scan_input_directions", count)
    lanes = [np.moveaxis(v, a, 0) for v, a in zip(scanned, in_axes, strict=True)]
    lanes = [v[::-1] if b else v for v, b in zip(lanes, backward, strict=True)]
    made: list[list[Array]] = [[] for _ in range(len(op.results) - len(states))]
    for at in range(len(lanes[0])):
        yielded = frame.run_block(op.regions[0].block, [*states, *(v[at] for v in lanes)])
        states = yielded[: len(states)]
        for stack, value in zip(made, yielded[len(states) :], strict=True):
            stack.append(value)
    out_axes = _axes(op, "scan_output_axes", len(made))
    flipped = _axes(op, "scan_output_directions", len(made))
    stacked: list[Array] = []
    for stack, axis, flip, result in zip(
        made, out_axes, flipped, op.results[len(states) :], strict=True
    ):
        stacked.append(_stacked(stack[::-1] if flip else stack, result.type, axis))
    return [*states, *stacked]


def _scan_of_batches(op: OnnxOp, operands: Sequence[Array], frame: Frame) -> list[Array]:
    """Opset 8: every operand has a batch axis first, and each row may have its own length."""
    if op.inputs[0] is not None:
        raise CompileError("MLC-D002", "'onnx.Scan' of opset 8 with sequence lengths")
    rows = [_scan(op, [v[i] for v in operands], frame) for i in range(len(operands[0]))]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def sequence_map(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """The body runs over each element of the first sequence."""
    length = len(operands[0])
    made: list[list[Array]] = [[] for _ in op.results]
    for at in range(length):
        arguments = [v[at] if isinstance(v, list) else v for v in operands]
        for sequence, value in zip(
            made, frame.run_block(op.regions[0].block, arguments), strict=True
        ):
            sequence.append(value)
    return cast("Sequence[Array]", made)


def flex_attention(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """Attention whose scores and probabilities pass through the operator's graphs."""
    assert isinstance(op, OnnxOp)
    q, k, v = operands
    repeats = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, repeats, axis=1) for x in (k, v))
    given = op.attribute("scale")
    scale = 1.0 / np.sqrt(q.shape[3]) if given is None else cast(float, given)
    root = np.sqrt(np.float32(scale)).astype(q.dtype)
    number = op.attribute("softmax_precision")
    wide = np.dtype(np.float32) if q.dtype.itemsize < 4 else q.dtype
    if number is not None:
        wide = NUMPY[list(ELEMENTS.values())[cast(int, number) - 1]]
    scores = np.matmul(q * root, np.swapaxes(k * root, -1, -2)).astype(wide)
    graphs = op.graphs
    if "score_mod" in graphs:
        (scores,) = frame.run_block(graphs["score_mod"].block, [scores])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    if "prob_mod" in graphs:
        (weights,) = frame.run_block(graphs["prob_mod"].block, [weights])
    return (np.matmul(weights.astype(wide), v.astype(wide)).astype(v.dtype),)


def optional(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """An optional is what it holds, or None."""
    return (operands[0] if operands else cast(Array, None),)


def has_element(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """Whether an optional holds something; what is no optional does."""
    given = cast("Sequence[Array | None]", operands)
    return (np.array(bool(given) and given[0] is not None),)


def get_element(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """What an optional holds."""
    if cast("Array | None", operands[0]) is None:
        raise CompileError("MLC-D002", "the optional is empty", location=location_name(op))
    return operands


MEANINGS: dict[str, Meaning] = {
    "onnx.Optional": optional,
    "onnx.OptionalHasElement": has_element,
    "onnx.OptionalGetElement": get_element,
    "onnx.preview.FlexAttention": flex_attention,
    "onnx.If": if_,
    "onnx.Loop": loop,
    "onnx.Scan": scan,
    "onnx.SequenceMap": sequence_map,
}
"""Op name to meaning."""
