"""One ONNX graph as a function of `onnx` operators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

import onnx_ir as ir
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from mllm_compiler.dialects.locations import named
from mllm_compiler.dialects.onnx import CustomOp, YieldOp, operators
from mllm_compiler.dialects.onnx_attributes import attribute_of
from mllm_compiler.dialects.onnx_op import OPSETS, OnnxOp
from mllm_compiler.dialects.onnx_schemas import PREFIXES
from mllm_compiler.dialects.onnx_verify import broken_node, check_operator
from mllm_compiler.errors import CompileError
from mllm_compiler.importer.gradient import expand_gradients
from mllm_compiler.importer.tensors import Tensors
from mllm_compiler.importer.types import type_attribute, type_of

Scope = dict[ir.Value, SSAValue]

_T = TypeVar("_T")

_KINDS = {
    ir.AttributeType.INT: "int",
    ir.AttributeType.FLOAT: "float",
    ir.AttributeType.STRING: "string",
    ir.AttributeType.INTS: "ints",
    ir.AttributeType.FLOATS: "floats",
    ir.AttributeType.STRINGS: "strings",
}


def import_graph(model: ir.Model, tensors: Tensors, *, name: str, role: str) -> FuncOp:
    """The function of a model's graph; its arguments and results carry the model's names.

    Raises:
        CompileError: A node breaks its operator's schema, or a tensor cannot be read.
    """
    graph = model.graph
    expand_gradients(graph)
    initialisers = set(graph.initializers)
    inputs = [v for v in graph.inputs if v.name not in initialisers]
    block = Block(arg_types=[type_of(v, invent=True) for v in inputs])
    scope: Scope = {}
    for value, argument in zip(inputs, block.args, strict=True):
        _bind(scope, value, argument)
    _Importer(tensors).body(graph, block, scope)
    results = [_defined(scope, v, tensors) for v in graph.outputs]
    block.add_op(ReturnOp(*results))
    function = FuncOp(
        name,
        ([a.type for a in block.args], [r.type for r in results]),
        Region(block),
        arg_attrs=_named(inputs),
        res_attrs=_named(graph.outputs),
    )
    function.attributes["mllm.role"] = StringAttr(role)
    function.attributes[OPSETS] = _opsets(graph.opset_imports)
    _check(function, tensors.file.name)
    return function


def _defined(scope: Scope, value: ir.Value, tensors: Tensors) -> SSAValue:
    if value not in scope:
        raise CompileError(
            "MLC-I010",
            f"nothing defines the output '{value.name}'",
            location=str(tensors.file),
            remedy="export the model again",
        )
    return scope[value]


def _named(values: Sequence[ir.Value]) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr(DictionaryAttr({"mllm.name": StringAttr(v.name or "")}) for v in values)


def _opsets(imports: Mapping[str, int]) -> DictionaryAttr:
    # Text that is no UTF-8 comes as bytes.
    imports = {d: v for d, v in imports.items() if isinstance(cast(object, d), str)}
    versions = {("" if d == "ai.onnx" else d): v for d, v in imports.items()}
    return DictionaryAttr({d: IntegerAttr(v, i64) for d, v in sorted(versions.items())})


def _check(function: FuncOp, file: str) -> None:
    for op in function.walk():
        if isinstance(op, OnnxOp):
            check_operator(op, file)


def _bind(scope: Scope, value: ir.Value, made: SSAValue) -> None:
    scope[value] = made
    if value.name:
        made.name_hint = name_hint(value.name)


def name_hint(name: str) -> str | None:
    """An ONNX value name as an SSA name: `/a/b/Add_output_0` becomes `a.b.Add_output`."""
    clean = re.sub(r"[^\w.]+", ".", name).strip(".")
    clean = re.sub(r"(_\d+)+$", "", clean)
    if not clean:
        return None
    return clean if clean[0].isalpha() or clean[0] == "_" else f"v{clean}"


def _check_text(attribute: ir.Attr) -> None:
    """Text that is no UTF-8 stays bytes in onnx-ir: the standard has no such text."""
    value: object = attribute.value
    parts = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(part, bytes) for part in parts):
        raise ValueError("it is no UTF-8")


def _is_kept(value: ir.Value) -> bool:
    """Whether an output is there: an absent one has no name and no use."""
    return bool(value.name or value.uses())


def _without_trailing(values: Sequence[_T | None], *, gaps: bool) -> list[_T | None]:
    """The values without the absent ones at the end.

    Raises:
        ValueError: One before the end is absent where the operator has no optional ones.
    """
    kept = list(values)
    while kept and kept[-1] is None:
        kept.pop()
    if None in kept and not gaps:
        raise ValueError(f"input or output {kept.index(None)} must be there")
    return kept


class _Importer:
    """Builds the operators of a graph and of the graphs inside its nodes."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.classes = operators()

    def body(self, graph: ir.Graph, block: Block, scope: Scope) -> None:
        """Adds the graph's initialisers and nodes to the block."""
        for name, value in graph.initializers.items():
            if value.const_value is None:
                raise self._lost(name)
            op = self.tensors.constant(value.const_value, name, named(name))
            block.add_op(op)
            _bind(scope, value, op.results[0])
        for index, node in enumerate(graph):
            name = node.name or f"{node.op_type}_{index}"
            try:
                op = self.node(node, name, scope)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                message = f"'{node.op_type}' is malformed: {error}"[:300]
                raise broken_node(message, name, self.tensors.file.name) from error
            block.add_op(op)
            kept = [v for v in node.outputs if _is_kept(v)]
            for value, result in zip(kept, op.results, strict=False):
                _bind(scope, value, result)

    def node(self, node: ir.Node, name: str, scope: Scope) -> Operation:
        """The operator of a node."""
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            made = self.constant(node, name)
            if made is not None:
                return made
        inputs = [None if v is None else scope[v] for v in node.inputs]
        attributes: dict[str, Attribute] = {}
        regions: dict[str, Region] = {}
        for key, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH:
                regions[key] = self.region(attribute.as_graph(), scope)
            else:
                attributes[key] = self.attribute(attribute, name)
        cls = self.classes.get(PREFIXES.get(node.domain, "?") + node.op_type)
        if cls is None and node.domain in ("", "ai.onnx"):
            # ONNX Runtime writes some of its own operators without their domain.
            for prefix in (PREFIXES[""], PREFIXES["com.microsoft"]):
                cls = cls or self.classes.get(prefix + node.op_type)
        if cls is None:
            return self.custom(node, name, inputs, attributes, regions)
        return cls.make(
            _without_trailing(inputs, gaps=cls.SEGMENTED[0]),
            _without_trailing(
                [type_of(v) if _is_kept(v) else None for v in node.outputs], gaps=cls.SEGMENTED[1]
            ),
            attributes,
            regions=regions,
            location=named(name),
        )

    def constant(self, node: ir.Node, name: str) -> Operation | None:
        """The op of a `Constant` node; None for the spellings that stay operators."""
        (attribute,) = node.attributes.values()
        output = node.outputs[0].name or name
        match attribute.name:
            case "value":
                tensor = attribute.as_tensor()
            case "value_int":
                tensor = ir.tensor(attribute.as_int(), ir.DataType.INT64)
            case "value_float":
                tensor = ir.tensor(attribute.as_float(), ir.DataType.FLOAT)
            case "value_ints":
                tensor = ir.tensor(list(attribute.as_ints()), ir.DataType.INT64)
            case "value_floats":
                tensor = ir.tensor(list(attribute.as_floats()), ir.DataType.FLOAT)
            case _:
                return None
        return self.tensors.constant(tensor, output, named(name))

    def custom(
        self,
        node: ir.Node,
        name: str,
        inputs: Sequence[SSAValue | None],
        attributes: dict[str, Attribute],
        regions: dict[str, Region],
    ) -> Operation:
        """The operator of a domain without schemas; absent inputs cannot be kept there."""
        properties: dict[str, Attribute] = {
            "op_domain": StringAttr(node.domain),
            "op_type": StringAttr(node.op_type),
            "arguments": DictionaryAttr(attributes),
            "graphs": ArrayAttr(StringAttr(g) for g in regions),
        }
        return CustomOp.create(
            operands=[v for v in inputs if v is not None],
            result_types=[type_of(v) for v in node.outputs if _is_kept(v)],
            properties=properties,
            regions=list(regions.values()),
            location=named(name),
        )

    def region(self, graph: ir.Graph, scope: Scope) -> Region:
        """The region of a graph attribute; it may use every value of the graphs around it."""
        block = Block(arg_types=[type_of(v) for v in graph.inputs])
        for value, argument in zip(graph.inputs, block.args, strict=True):
            _bind(scope, value, argument)
        self.body(graph, block, scope)
        block.add_op(YieldOp([scope[v] for v in graph.outputs]))
        return Region(block)

    def attribute(self, attribute: ir.Attr, node: str) -> Attribute:
        """The attribute of a node."""
        kind = _KINDS.get(attribute.type)
        if attribute.is_ref():
            message = f"it refers to '{attribute.ref_attr_name}' of a function"
            raise self._unusable(node, attribute, message)
        try:
            if kind is not None:
                _check_text(attribute)
                return attribute_of(cast(int, attribute.value), kind)
            if attribute.type == ir.AttributeType.TENSOR:
                return self.tensors.attribute(attribute.as_tensor(), f"{node}.{attribute.name}")
            if attribute.type == ir.AttributeType.TYPE_PROTO:
                return type_attribute(cast(ir.TypeAndShape, attribute.value))
        except (ValueError, TypeError, OverflowError) as error:
            raise self._unusable(node, attribute, str(error)) from error
        raise self._unusable(node, attribute, f"kind {attribute.type.name} is not supported")

    def _unusable(self, node: str, attribute: ir.Attr, message: str) -> CompileError:
        return CompileError(
            "MLC-I014",
            f"attribute '{attribute.name}' cannot be read: {message}",
            location=f"{self.tensors.file.name}: {node}",
            remedy="export the model again",
        )

    def _lost(self, name: str) -> CompileError:
        return CompileError(
            "MLC-I010",
            f"initialiser '{name}' has no data",
            location=str(self.tensors.file),
            remedy="export the model again",
        )
