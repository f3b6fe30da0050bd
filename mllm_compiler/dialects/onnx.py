"""The `onnx` dialect: one class per operator of the ONNX standard, made from its schemas.

    %y = onnx.Gemm %x, %w, _ {transB = 1 : i64} :
         (tensor<2x8xf32>, tensor<4x8xf32>) -> (tensor<2x4xf32>)

One class serves every version of an operator; the verifier takes the schema of the opset that the
enclosing function records (`onnx.opset`). Nothing is made before the dialect is first used, since
`onnx` itself takes a while to import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedRegionSegments,
    AttrSizedResultSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure

from mllm_compiler.dialects.onnx_attributes import ATTRIBUTES
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_schemas import PREFIXES, Formal, Schema, histories
from mllm_compiler.dialects.onnx_types import TYPES

RANDOM: Final = frozenset(
    f"onnx.{name}"
    for name in (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
"""Operators whose result is not decided by their operands."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends the graph of an `If` branch, a loop body or another graph attribute.

    The operands are the graph's outputs.
    """

    name = "onnx.yield"

    values = var_operand_def(Attribute)

    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


@irdl_op_definition
class CustomOp(IRDLOperation):
    """An operator of a domain that the dialect has no schemas of.

    Nothing is refused at import: whoever needs the operator's meaning refuses it by name.
    """

    name = "onnx.Custom"

    op_domain = prop_def(StringAttr)
    op_type = prop_def(StringAttr)
    arguments = prop_def(DictionaryAttr)
    graphs = prop_def(ArrayAttr[StringAttr])
    values = var_operand_def(Attribute)
    bodies = var_region_def()
    produced = var_result_def(Attribute)

    assembly_format = (
        "$op_domain $op_type $arguments `(` $values `)` `graphs` $graphs $bodies attr-dict"
        " `:` functional-type($values, $produced)"
    )


def _field(taken: dict[str, Any], name: str) -> str:
    """The Python name of a field: the standard's, with `_` appended while that is in use."""
    while name in taken or hasattr(OnnxOp, name) or not name.isidentifier():
        name += "_"
    return name


_OPERAND_DEFS = {"single": operand_def, "optional": opt_operand_def, "variadic": var_operand_def}
_RESULT_DEFS = {"single": result_def, "optional": opt_result_def, "variadic": var_result_def}


def _merged(formals: Sequence[Sequence[Formal]], least: int) -> list[Formal]:
    """The positions over all versions; one that some version lacks is optional."""
    longest = max(formals, key=len)
    merged: list[Formal] = []
    for at, formal in enumerate(longest):
        newest = next(f[at] for f in reversed(formals) if at < len(f))
        option = newest.option
        if option == "single" and (
            at >= least or any(f[at : at + 1] != (formal,) for f in formals)
        ):
            single = at < least and all(at < len(f) and f[at].option == "single" for f in formals)
            option = "single" if single else "optional"
        merged.append(Formal(newest.name, option, newest.type))
    return merged


def _is_segmented(formals: Sequence[Formal]) -> bool:
    """Whether the counts alone do not tell which positions are there."""
    return any(f.option != "single" for f in formals[:-1])


def class_of(name: str, history: tuple[Schema, ...], base: type[OnnxOp] = OnnxOp) -> type[OnnxOp]:
    """The class of an operator: of its schemas, under a name of the IR."""
    newest = history[-1]
    inputs = _merged([s.inputs for s in history], min(s.min_inputs for s in history))
    outputs = _merged([s.outputs for s in history], min(s.min_outputs for s in history))
    attributes = {a.name: a for s in history for a in s.attributes.values()}
    optional_graphs = [n for n, a in attributes.items() if a.kind == "graph" and not a.required]
    segmented = (_is_segmented(inputs), _is_segmented(outputs), len(optional_graphs) > 1)
    graphs = tuple(
        sorted(
            (n for n, a in attributes.items() if a.kind == "graph"),
            key=lambda n: (n != "then_branch", n),
        )
    )
    members: dict[str, Any] = {}
    for formal in inputs:
        members[_field(members, formal.name)] = _OPERAND_DEFS[formal.option](Attribute)
    for formal in outputs:
        members[_field(members, formal.name)] = _RESULT_DEFS[formal.option](Attribute)
    for key in attributes:
        if key not in graphs:
            members[_field(members, key)] = opt_prop_def(Attribute, prop_name=key)
    for key in graphs:
        define = opt_region_def if key in optional_graphs else region_def
        members[_field(members, key)] = define("single_block")
    options = [
        option
        for flag, option in zip(
            segmented,
            (
                AttrSizedOperandSegments(as_property=True),
                AttrSizedResultSegments(as_property=True),
                AttrSizedRegionSegments(as_property=True),
            ),
            strict=True,
        )
        if flag
    ]
    pure = name not in RANDOM and not graphs
    members |= {
        "__doc__": newest.doc.strip() or f"{newest.name} of {newest.domain or 'ai.onnx'}.",
        "__module__": __name__,
        "name": name,
        "irdl_options": tuple(options),
        "traits": traits_def(Pure()) if pure else traits_def(),
    }
    made = irdl_op_definition(type(f"{newest.name}Op", (base,), members))
    made.DOMAIN, made.OPERATOR = newest.domain, newest.name
    made.STANDARD = f"{PREFIXES[newest.domain]}{newest.name}"
    made.GRAPHS = graphs
    made.SEGMENTED, made.SLOTS = segmented, (len(inputs), len(outputs), len(graphs))
    made.ATTRIBUTES = frozenset(attributes) - frozenset(graphs)
    return made


@cache
def operators() -> dict[str, type[OnnxOp]]:
    """Every operator class by IR name."""
    return {name: class_of(name, history) for name, history in histories().items()}


class OnnxDialect(Dialect):
    """The dialect; its operator classes are made when they are first asked for."""

    EXTRA: ClassVar[list[type[Operation]]] = [YieldOp, CustomOp]

    def __init__(self) -> None:
        super().__init__("onnx", [], [*TYPES, *ATTRIBUTES])

    @property
    def operations(self) -> Iterator[type[Operation]]:
        """Every operator class, the terminator and the operator of unknown domains."""
        yield from self.EXTRA
        yield from operators().values()


Onnx = OnnxDialect()
