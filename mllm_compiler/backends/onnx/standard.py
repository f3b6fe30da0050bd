"""Operators of the `onnx` dialect, which go back as themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import Attribute, Block, Region

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.types import shape_as_onnx, type_of
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import BlobAttr
from mllm_compiler.dialects.onnx import CustomOp
from mllm_compiler.dialects.onnx_attributes import kind_of, value_of
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_schemas import schema_of
from mllm_compiler.errors import CompileError

Write = Callable[[Block, Builder], None]
"""Writes the ops of a block: the graphs inside operators are written as the graph around them."""


def write_operator(op: OnnxOp, b: Builder, write: Write) -> Sequence[Value]:
    """Writes an operator of the standard, or of `com.microsoft`.

    Raises:
        CompileError: MLC-U014, it means something else in the opset that is written.
    """
    _check_version(op, b.opset)
    inputs = [None if v is None else b[v] for v in op.inputs]
    given = {k: v for k, v in op.properties.items() if not k.endswith("SegmentSizes")}
    attributes = [_attribute(name, value, b) for name, value in given.items()]
    attributes += [ir.AttrGraph(n, _graph(r, b, n, write)) for n, r in op.graphs.items()]
    b.domains.setdefault(op.DOMAIN, b.opset if not op.DOMAIN else op.opset or 1)
    name = b.scope or op.OPERATOR
    made = b.whole(op.OPERATOR, inputs, attributes, len(op.outputs), name, op.DOMAIN)
    there = [v for v, result in zip(made, op.outputs, strict=True) if result is not None]
    for value, result in zip(made, op.outputs, strict=True):
        if result is None:
            value.name = ""
    return there


def write_custom(op: CustomOp, b: Builder, write: Write) -> Sequence[Value]:
    """Writes an operator of a domain without schemas."""
    attributes = [_attribute(n, v, b) for n, v in op.arguments.data.items()]
    for name, region in zip(op.graphs, op.bodies, strict=True):
        attributes.append(ir.AttrGraph(name.data, _graph(region, b, name.data, write)))
    domain = op.op_domain.data
    b.domains.setdefault(domain, 1)
    inputs = [b[v] for v in op.operands]
    operator = op.op_type.data
    return b.whole(operator, inputs, attributes, len(op.results), b.scope or operator, domain)


def is_same_in(op: OnnxOp, opset: int) -> bool:
    """Whether an operator of the standard has the form in an opset that it has in its own."""
    if op.DOMAIN:
        return True
    own, wanted = schema_of(op.STANDARD, op.opset), schema_of(op.STANDARD, opset)
    return own is not None and wanted is not None and own.since == wanted.since


def _check_version(op: OnnxOp, opset: int) -> None:
    if is_same_in(op, opset):
        return
    raise CompileError(
        "MLC-U014",
        f"'{op.name}' of opset {op.opset} has another form in opset {opset}",
        location=location_name(op) or op.name,
        remedy=f"export with --opset {op.opset}",
    )


def _graph(region: Region, b: Builder, name: str, write: Write) -> ir.Graph:
    """The graph of a region; what it makes is not seen outside."""
    inner, block = b.inside(), region.block
    inputs: list[Value] = []
    for at, argument in enumerate(block.args):
        value = Value(name=b.unique(argument.name_hint or f"{name}_input_{at}"))
        inner.typed(argument, value)
        inputs.append(value)
    write(block, inner)
    assert block.last_op is not None
    outputs: list[Value] = []
    for value in block.last_op.operands:
        outputs.append(inner.own(inner[value], outputs))
    return ir.Graph(inputs, outputs, nodes=inner.nodes, name=name)


def _attribute(name: str, attribute: Attribute, b: Builder) -> ir.Attr:
    if isinstance(attribute, BlobAttr):
        return ir.AttrTensor(name, ir.tensor(b.bytes_of(attribute)))
    kind = kind_of(attribute)
    if kind == "type_proto":
        described = type_of(attribute)
        assert described is not None
        return ir.AttrTypeProto(name, ir.TypeAndShape(described, shape_as_onnx(attribute)))
    value = value_of(attribute)
    if isinstance(value, np.ndarray):
        value = as_tensor(value)
    return ir.Attr(name, ir.AttributeType[kind.upper()], value)


def as_tensor(array: NDArray[np.generic]) -> ir.TensorProtocol:
    """The tensor of an array; objects are texts."""
    if array.dtype != np.object_:
        return ir.tensor(array)
    texts = [str(s).encode() for s in array.reshape(-1)]
    return ir.StringTensor(texts, shape=ir.Shape(array.shape))
