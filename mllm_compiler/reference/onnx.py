"""The meaning of `onnx` operators: the standard's own reference implementation of each.

One evaluator is made for an operator with its attributes and operand types, and kept. Control flow
runs its regions in the executor; the `com.microsoft` operators have meanings of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import onnx
from onnx import TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import BlobAttr
from mllm_compiler.dialects.onnx import operators
from mllm_compiler.dialects.onnx_attributes import tensor_attribute, value_of
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_schemas import schema_of
from mllm_compiler.dialects.onnx_types import (
    ELEMENTS,
    NUMPY,
    OptionalType,
    SequenceType,
    element_of_numpy,
    element_type,
)
from mllm_compiler.errors import CompileError
from mllm_compiler.reference import onnx_control, onnx_microsoft
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.weights import WeightStore

_NUMBERS: Final = {e: n for n, e in enumerate(ELEMENTS.values(), start=1)}
"""ONNX's numbers of element types: `ELEMENTS` lists them in order."""

FIRST_KNOWN: Final = {"onnx.DequantizeLinear": 19}
"""Operators whose older versions the library lacks, though a newer one computes the same."""

Signature = tuple[str | None, ...]
"""The type of each operand that is there; None for an absent one."""


def evaluate(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """Runs an operator on the standard's reference implementation."""
    assert isinstance(op, OnnxOp)
    given = iter(operands)
    values = [None if v is None else next(given) for v in op.inputs]
    properties = _without_handles(op.properties, frame.store)
    try:
        evaluator = _evaluator(
            type(op),
            _known_opset(op),
            tuple(sorted(properties.items(), key=lambda p: p[0])),
            tuple(None if v is None else _type_of(v) for v in values),
            tuple(v is not None for v in op.outputs),
        )
        feeds = {f"i{i}": v for i, v in enumerate(values) if v is not None}
        with np.errstate(all="ignore"):
            results = cast("list[Any]", evaluator.run(None, feeds))
    except Exception as error:
        raise CompileError(
            "MLC-D002",
            f"'{op.name}' cannot be computed by the reference: {error}",
            location=location_name(op),
        ) from error
    return [_conformed(r, v.type) for r, v in zip(results, op.results, strict=True)]


def _known_opset(op: OnnxOp) -> int | None:
    """The operator's opset, or the first one that the library knows, where that means the same."""
    least = FIRST_KNOWN.get(op.STANDARD, 0)
    return op.opset and max(op.opset, least)


def _without_handles(properties: dict[str, Attribute], store: WeightStore) -> dict[str, Attribute]:
    """The attributes, without segment sizes; large tensors are read from the store."""
    read: dict[str, Attribute] = {}
    for name, attribute in properties.items():
        if name.endswith("SegmentSizes"):
            continue
        if isinstance(attribute, BlobAttr):
            kind = str(attribute.element)
            array = store.array(attribute.digest.data, kind, attribute.dims)
            attribute = tensor_attribute(array)
        read[name] = attribute
    return read


@lru_cache(maxsize=4096)
def _evaluator(
    cls: type[OnnxOp],
    opset: int | None,
    properties: tuple[tuple[str, Attribute], ...],
    operands: Signature,
    results: tuple[bool, ...],
) -> ReferenceEvaluator:
    """A model of one node; the answer is kept for operators that are the same."""
    version = opset
    if version is None:
        newest = schema_of(cls.STANDARD, None)
        version = (
            onnx.defs.onnx_opset_version() if not cls.DOMAIN or newest is None else newest.since
        )
    inputs = ["" if kind is None else f"i{i}" for i, kind in enumerate(operands)]
    outputs = [f"o{i}" if there else "" for i, there in enumerate(results)]
    node = helper.make_node(cls.OPERATOR, inputs, outputs, domain=cls.DOMAIN)
    node.attribute.extend(_attribute(cls, version, name, value) for name, value in properties)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_value_info(f"i{i}", TypeProto.FromString(kind.encode("latin-1")))
            for i, kind in enumerate(operands)
            if kind is not None
        ],
        [helper.make_value_info(o, TypeProto()) for o in outputs if o],
    )
    imports = [helper.make_opsetid(cls.DOMAIN, version)]
    if cls.DOMAIN:
        imports.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))


def _attribute(
    cls: type[OnnxOp], version: int, name: str, attribute: Attribute
) -> onnx.AttributeProto:
    value: object = value_of(attribute)
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(np.ascontiguousarray(value))
    elif isinstance(value, Attribute):
        value = _proto(value)
    schema = schema_of(cls.STANDARD, version)
    kind = schema.attributes[name].kind.upper() if schema and name in schema.attributes else None
    number = None if kind is None else onnx.AttributeProto.AttributeType.Value(kind)
    return helper.make_attribute(name, cast(Any, value), attr_type=number)


def _type_of(value: object) -> str:
    """The serialised type of a value: what functions that the schema expands to may ask for."""
    return _value_type(value).SerializeToString().decode("latin-1")


def _value_type(value: object) -> TypeProto:
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return helper.make_sequence_type_proto(_value_type(parts[0]) if parts else TypeProto())
    if not isinstance(value, np.ndarray):
        return TypeProto()
    array = cast(Array, value)
    number = _NUMBERS[element_of_numpy(array.dtype)]
    return helper.make_tensor_type_proto(number, [None] * array.ndim)


def _proto(type: Attribute) -> TypeProto:
    element = element_type(type)
    if element is not None:
        return helper.make_tensor_type_proto(_NUMBERS[element], None)
    match type:
        case SequenceType():
            return helper.make_sequence_type_proto(_proto(type.element))
        case OptionalType():
            return helper.make_optional_type_proto(_proto(type.element))
        case _:
            return TypeProto()


def _conformed(value: Any, type: Attribute) -> Any:
    """A result in the dtype that its type promises: the library is lax with scalars."""
    element = element_type(type)
    if element is None or not isinstance(value, np.ndarray):
        return value
    array, dtype = cast(Array, value), NUMPY[element]
    return array if array.dtype == dtype else array.astype(dtype)


def _custom(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    domain, name = (op.properties.get(k) for k in ("op_domain", "op_type"))
    spelled = ".".join(s.data for s in (domain, name) if isinstance(s, StringAttr))
    raise CompileError(
        "MLC-D002",
        f"operator '{spelled}' has no meaning here: its domain is not known",
        location=location_name(op),
        remedy="write it with operators of the ONNX standard",
    )


def _scatter(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """`Scatter` until opset 10: the library only knows it by its later name."""
    assert isinstance(op, OnnxOp)
    named = operators()["onnx.ScatterElements"].make(
        op.inputs, [r.type for r in op.results], dict(op.properties)
    )
    results = evaluate(named, operands, frame)
    named.erase()
    return results


MEANINGS: dict[str, Meaning] = {
    **{n: evaluate for n, c in operators().items() if c.DOMAIN != "com.microsoft"},
    **onnx_control.MEANINGS,
    **onnx_microsoft.MEANINGS,
    "onnx.Scatter": _scatter,
    "onnx.Custom": _custom,
}
"""Op name to meaning."""
