"""Checks of an `onnx` operator against the schema of the model's opset.

C1  the operator exists in the opset, and is not deprecated there.
C2  the numbers of operands and results are those of the schema, none is absent that must be there.
C3  required attributes are there, no other than the schema's are, each of the schema's kind.
C4  operand and result types are among those that the schema allows.
C5  values of one type parameter have one type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx_attributes import kind_of
from mllm_compiler.dialects.onnx_schemas import Formal, Schema, schema_of
from mllm_compiler.dialects.onnx_types import type_string
from mllm_compiler.errors import CompileError

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def verify_against(op: OnnxOp, schema: Schema | None) -> None:
    """Checks the module's constraints.

    Raises:
        VerifyException: One does not hold; the message names it.
    """
    opset = "" if op.opset is None else f" in opset {op.opset}"
    if schema is None:
        _fail(op, "C1", f"there is no such operator{opset}")
    if schema.deprecated:
        _fail(op, "C1", f"the operator is deprecated{opset}")
    _count(op, "operand", op.inputs, schema.inputs, schema.min_inputs, schema.max_inputs)
    _count(op, "result", op.outputs, schema.outputs, schema.min_outputs, schema.max_outputs)
    _attributes(op, schema)
    _types(op, schema)


def check_operator(op: OnnxOp, file: str = "") -> None:
    """Checks an operator against the schema of its opset, as a fault of the model.

    Raises:
        CompileError: One of the module's constraints does not hold.
    """
    try:
        verify_against(op, schema_of(op.STANDARD, op.opset))
    except VerifyException as error:
        raise broken_node(str(error), location_name(op), file) from None


def broken_node(message: str, node: str, file: str = "") -> CompileError:
    """The error of a node that breaks the standard."""
    return CompileError(
        "MLC-I014",
        message,
        location=f"{file}: {node}" if file else node,
        remedy="the node breaks the ONNX standard: correct it, or the call that made it",
    )


def _fail(op: OnnxOp, constraint: str, message: str) -> NoReturn:
    raise VerifyException(f"'{op.name}': {message} ({constraint})")


def _count(
    op: OnnxOp,
    kind: str,
    values: Sequence[SSAValue | None],
    formals: Sequence[Formal],
    least: int,
    most: int | None,
) -> None:
    if len(values) < least:
        _fail(op, "C2", f"at least {least} {kind}s are needed, {len(values)} given")
    if most is not None and len(values) > most:
        _fail(op, "C2", f"at most {most} {kind}s are possible, {len(values)} given")
    for value, formal in zip(values, formals, strict=False):
        if value is None and formal.option == "single":
            _fail(op, "C2", f"{kind} '{formal.name}' must be there")


def _attributes(op: OnnxOp, schema: Schema) -> None:
    given = op.properties.keys() | op.graphs.keys()
    for name, formal in schema.attributes.items():
        if formal.required and name not in given:
            _fail(op, "C3", f"attribute '{name}' must be there")
    for name, attribute in op.properties.items():
        formal = schema.attributes.get(name)
        if formal is None:
            if not name.endswith("SegmentSizes"):
                _fail(op, "C3", f"attribute '{name}' is not of version {schema.since}")
            continue
        kind = kind_of(attribute)
        if kind != formal.kind and not _is_empty_list(attribute, formal.kind):
            _fail(op, "C3", f"attribute '{name}' must be of kind {formal.kind}, not {kind}")


def _is_empty_list(attribute: Attribute, kind: str) -> bool:
    return kind.endswith("s") and not getattr(attribute, "data", True)


def _types(op: OnnxOp, schema: Schema) -> None:
    bound: dict[str, str] = {}
    for value, formal in (*_paired(op.inputs, schema.inputs), *_paired(op.outputs, schema.outputs)):
        spelling = None if value is None else type_string(value.type)
        if spelling is None:
            continue
        allowed = schema.constraints.get(formal.type)
        if spelling not in (allowed or {formal.type}):
            _fail(op, "C4", f"'{formal.name}' cannot be {spelling}")
        if allowed is None or not formal.homogeneous:
            continue
        if bound.setdefault(formal.type, spelling) != spelling:
            message = f"'{formal.name}' is {spelling}, but {formal.type} is {bound[formal.type]}"
            _fail(op, "C5", message)


def _paired(
    values: Sequence[SSAValue | None], formals: Sequence[Formal]
) -> Iterator[tuple[SSAValue | None, Formal]]:
    for at, value in enumerate(values):
        yield value, formals[min(at, len(formals) - 1)]
