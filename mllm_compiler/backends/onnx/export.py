"""A module as ONNX models, one a graph: every op by its exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx_ir as ir
from onnx import helper
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator

from mllm_compiler.backends.onnx import (
    attention,
    elementwise,
    linear,
    movement,
    position,
    quant,
    scan,
    vision,
)
from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Exporter
from mllm_compiler.backends.onnx.standard import is_same_in, write_custom, write_operator
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx import CustomOp
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.fused_parts import Parts, parts_of
from mllm_compiler.passes.graphs import argument_names, block_of, result_names, return_of
from mllm_compiler.weights import WeightStore

EXPORTERS: Final[Mapping[type[Operation], Exporter]] = {
    **elementwise.EXPORTERS,
    **linear.EXPORTERS,
    **movement.EXPORTERS,
    **attention.EXPORTERS,
    **position.EXPORTERS,
    **vision.EXPORTERS,
    **quant.EXPORTERS,
    **scan.EXPORTERS,
}
"""The exporter of each op of the `mllm` dialect."""

OLDEST: Final = 17
"""The oldest opset that can be asked for: the first with `LayerNormalization`."""

NEWEST: Final = 23
"""The newest opset with an operator that is written here; ONNX Runtime 1.23 and later run it."""


def fitting_opset(function: FuncOp) -> int:
    """`NEWEST`, or the graph's own opset where an operator of it has another form in `NEWEST`."""
    left = [op for op in function.walk() if isinstance(op, OnnxOp) and not op.DOMAIN]
    if all(is_same_in(op, NEWEST) for op in left):
        return NEWEST
    return left[0].opset or NEWEST


def export_graph(
    function: FuncOp,
    store: WeightStore,
    opset: int | None = None,
    *,
    outside: Mapping[str, tuple[str, int]] | None = None,
) -> ir.Model:
    """The model of one graph; weights are not copied.

    Args:
        function: The graph, at any level up to `mllm`.
        store: Where the bytes of its weights lie.
        opset: The version of the standard; the one that fits where none is given.
        outside: The file beside the model, and the offset in it, where weights lie, by digest.

    Raises:
        CompileError: An op has no form in the opset, or the bytes of a weight are not known.
    """
    opset = fitting_opset(function) if opset is None else opset
    b = Builder(opset, store, outside=outside or {})
    b.domains[""] = opset
    block, outputs = block_of(function), result_names(function)
    inputs = [Value(name=name) for name in argument_names(function)]
    for name in (*argument_names(function), *outputs):
        b.unique(name)
    for argument, value in zip(block.args, inputs, strict=True):
        b.typed(argument, value)
        for axis, dim in enumerate(shape_of(argument) if ranked(argument) else ()):
            if (symbol := dim.as_symbol()) is not None:
                b.sizes.setdefault(symbol, (value, axis))
    write_ops(block, b)
    results = [b[v] for v in return_of(function).operands]
    made: list[Value] = []
    for name, value in zip(outputs, results, strict=True):
        own = b.own(value, [*inputs, *made])
        own.name = name
        made.append(own)
    graph = ir.Graph(
        inputs,
        made,
        nodes=b.nodes,
        initializers=list(b.weights.values()),
        opset_imports=b.domains,
        name=function.sym_name.data,
    )
    versions = [helper.make_opsetid(d, v) for d, v in b.domains.items()]
    return ir.Model(
        graph,
        ir_version=helper.find_min_ir_version_for(versions, ignore_unknown=True),
        producer_name="mllm-compiler",
    )


def write_ops(block: Block, b: Builder) -> None:
    """Writes the ops of a block."""
    for op in block.ops:
        if op.has_trait(IsTerminator):
            return
        b.scope = location_name(op)
        for result, value in zip(op.results, _written(op, b), strict=True):
            b.typed(result, value)


def _written(op: Operation, b: Builder) -> list[Value]:
    if isinstance(op, OnnxOp):
        return list(write_operator(op, b, write_ops))
    if isinstance(op, CustomOp):
        return list(write_custom(op, b, write_ops))
    parts = parts_of(op)
    if parts is not None:
        return _in_parts(parts, b)
    exporter = EXPORTERS.get(type(op))
    if exporter is None:
        raise CompileError(
            "MLC-U014",
            f"'{op.name}' has no form in ONNX",
            location=location_name(op) or op.name,
            remedy="export an earlier level: --stop-after lift-patch-embed",
        )
    return list(exporter(op, b))


def _in_parts(parts: Parts, b: Builder) -> list[Value]:
    """Writes a fused op part by part."""
    for part in parts.ops:
        for result, value in zip(part.results, _written(part, b), strict=True):
            b.typed(result, value)
    made = [b[value] for value in parts.results]
    for part in reversed(parts.ops):
        part.erase()
    return made
