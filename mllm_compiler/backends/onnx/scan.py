"""What is carried along an axis, as nodes of the standard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one, several
from mllm_compiler.backends.onnx.types import type_of
from mllm_compiler.dialects.mllm import CumsumOp, SelectiveScanOp


def _cumsum(op: CumsumOp, b: Builder, inputs: Inputs) -> Value:
    axis = b.constant(np.array(op.axis.value.data, np.int64))
    flags = {"exclusive": int(bool(op.exclusive)), "reverse": int(bool(op.reverse))}
    return b.node("CumSum", inputs[0], axis, **flags)


def _selective_scan(op: SelectiveScanOp, b: Builder, inputs: Inputs) -> Sequence[Value]:
    """Decay and input of all tokens as tensors [B, T, D, N], which a `Scan` runs through."""
    x, step, a, into, out, state = inputs
    width = b.node("Unsqueeze", step, b.integers(3))
    kept = b.node("Exp", b.node("Mul", width, b.node("Unsqueeze", a, b.integers(0, 1))))
    added = b.node("Mul", width, b.node("Unsqueeze", into, b.integers(2)))
    added = b.node("Mul", added, b.node("Unsqueeze", x, b.integers(3)))
    attributes = [
        ir.AttrGraph("body", _body(op, b)),
        ir.AttrInt64("num_scan_inputs", 3),
        ir.AttrInt64s("scan_input_axes", [1, 1, 1]),
        ir.AttrInt64s("scan_output_axes", [1]),
    ]
    last, y = b.whole("Scan", [state, kept, added, out], attributes, 2, f"{b.scope}/Scan")
    return y, last


def _body(op: SelectiveScanOp, b: Builder) -> ir.Graph:
    """One token: the states decay, take the input in, and are read."""
    inner = b.inside()
    kind = type_of(op.x.type)
    state, kept, added, out = (
        Value(name=b.unique(f"{b.scope}/{name}"), type=kind)
        for name in ("state", "kept", "added", "out")
    )
    states = inner.node("Add", inner.node("Mul", kept, state), added)
    column = inner.node("Unsqueeze", out, inner.integers(2))
    read = inner.node("Squeeze", inner.node("MatMul", states, column), inner.integers(2))
    for value in (states, read):
        value.type = kind
    return ir.Graph([state, kept, added, out], [states, read], nodes=inner.nodes, name="scan")


EXPORTERS = dict([one(CumsumOp, _cumsum), several(SelectiveScanOp, _selective_scan)])
"""Op class to exporter."""
