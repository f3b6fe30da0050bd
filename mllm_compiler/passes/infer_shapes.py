"""`infer-shapes`: gives every value its type, with symbolic dims, and follows shape arithmetic.

    %s = onnx.Shape %x : (tensor<?x8xf32, #mllm.dims<"batch", "8">>) -> (!onnx.unknown)
    %y = onnx.Reshape %x, %t : (...) -> (!onnx.unknown)
becomes
    %s = onnx.Shape %x {onnx.contents = #mllm.dims<"batch", "8">} : (...) -> (tensor<2xi64>)
    %y = onnx.Reshape %x, %t : (...) -> (tensor<?x4x2xf32, #mllm.dims<"batch", "4", "2">>)

`onnx.contents` holds what a small integer tensor is, row by row, where shapes decide it. Dims that
must be equal become one: a declared `total_sequence_length` that is the extent of a concatenation
is replaced by `past_sequence_length + sequence_length` in the whole function. So is a symbol that
the pipeline's bounds fix by that size. Exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects.dims import UNKNOWN, Dim, DimsAttr
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_types import UnknownType
from mllm_compiler.dialects.onnx_verify import check_operator
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.shape_functions import FUNCTIONS
from mllm_compiler.passes.shape_functions.control import FUNCTIONS as REGION_FUNCTIONS
from mllm_compiler.passes.shape_functions.knowledge import Known, Shapes, is_nonnegative, of_type

CONTENTS: Final = "onnx.contents"
"""The attribute that holds the contents of an operator's first result."""


@dataclass(frozen=True)
class InferShapes(ModulePass):
    """Gives every value of every function its type.

    Attributes:
        static: Whether a dimension of at most 1, a batch, is 1: shapes are to be static.
        graphs: The graphs that `static` is said of; none: all.
    """

    name = "infer-shapes"
    static: bool = False
    graphs: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Runs the pass."""
        functions = {f.sym_name.data: f for f in op.ops if isinstance(f, FuncOp)}
        pipelines = [p for p in op.ops if isinstance(p, PipelineOp)]
        bounds = [b for pipeline in pipelines for b in pipeline.bounds]
        known = {b.symbol.data: Dim.const(b.max.data) for b in bounds if b.min == b.max}
        batch = {b.symbol.data: Dim.const(1) for b in bounds if self.static and b.max.data == 1}
        replaced: set[str] = set()
        for function in functions.values():
            _take_static_dims(function, functions, pipelines)
            replaced |= infer_function(function)
            named = not self.graphs or function.sym_name.data in self.graphs
            fixed = known | batch if named else known
            if fixed.keys() & set(_input_symbols(function)):
                # Only now: with sizes in their place, a total could not be told from its parts.
                replaced |= infer_function(function, fixed)
        for pipeline in pipelines:
            _drop_bounds(pipeline, replaced, functions.values())


def infer_function(function: FuncOp, fixed: Mapping[str, Dim] | None = None) -> set[str]:
    """Gives every value of a function its type; the symbols that were replaced.

    Args:
        function: The function.
        fixed: Symbols that have one value.

    Raises:
        CompileError: The model's shapes contradict each other.
    """
    shapes = Shapes(_input_symbols(function), equal=dict(fixed or {}))
    _infer_block(function.body.block, shapes)
    _check_outputs(function, shapes)
    bound = set(shapes.inputs) - shapes.equal.keys()
    for argument in function.body.block.args:
        _retype(argument, shapes.of(argument), bound)
    for op in function.walk():
        if op is function or not op.results:
            continue
        for result in op.results:
            _retype(result, shapes.of(result), bound)
        for region in op.regions:
            for argument in region.block.args:
                _retype(argument, shapes.of(argument), bound)
        _record_contents(op, shapes, bound)
    for op in function.walk():
        if isinstance(op, OnnxOp):
            check_operator(op)
    function.update_function_type()
    return set(shapes.equal)


def _input_symbols(function: FuncOp) -> list[str]:
    symbols: dict[str, None] = {}
    for argument in function.body.block.args:
        for dim in of_type(argument.type).dims or ():
            symbols.update(dict.fromkeys(sorted(dim.symbols())))
    return list(symbols)


def _infer_block(block: Block, shapes: Shapes) -> None:
    for op in block.ops:
        if not isinstance(op, OnnxOp):
            continue
        inferred = _infer(op, shapes)
        for at, result in enumerate(op.outputs):
            if result is None:
                continue
            known = inferred[at] if at < len(inferred) else Known()
            shapes.known[result] = _merged(of_type(result.type), known, shapes, op)


def _infer(op: OnnxOp, shapes: Shapes) -> Sequence[Known]:
    try:
        return _inferred(op, shapes)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise CompileError(
            "MLC-I015",
            f"'{op.name}' cannot have operands and attributes like these: {error}"[:300],
            location=location_name(op),
            remedy="the model contradicts itself: check its input shapes, export it again",
        ) from error


def _inferred(op: OnnxOp, shapes: Shapes) -> Sequence[Known]:
    region_function = REGION_FUNCTIONS.get(op.name)
    if region_function is not None:
        return region_function(op, shapes, _infer_block)
    function = FUNCTIONS.get(op.name)
    if function is not None:
        return function(op, shapes)
    # Imported late: it needs the onnx package's C++ part, and most models never get here.
    from mllm_compiler.passes.shape_functions.standard import standard

    return standard(op, shapes)


def _merged(declared: Known, inferred: Known, shapes: Shapes, op: Operation) -> Known:
    """What was inferred, completed by what the model declares."""
    if inferred.type is not None or declared.type is not None:
        return inferred if inferred.type is not None else declared
    element = inferred.element or declared.element
    if inferred.dims is None or declared.dims is None:
        dims = declared.dims if inferred.dims is None else inferred.dims
        return replace(inferred, element=element, dims=dims)
    if len(inferred.dims) != len(declared.dims):
        return replace(inferred, element=element)
    pairs = zip(inferred.dims, declared.dims, strict=True)
    dims = tuple(_agreed(found, stated, shapes, op) for found, stated in pairs)
    return replace(inferred, element=element, dims=dims)


def _agreed(found: Dim, stated: Dim, shapes: Shapes, op: Operation) -> Dim:
    """The inferred dim; a symbol that the model states for it becomes an alias.

    A symbol of an argument is given up only for a sum such as past and new tokens: exporters
    sometimes reuse an argument's symbol for what is no longer its extent.
    """
    if found.unknown:
        return stated
    symbol = stated.as_symbol()
    if symbol is None or found == stated or symbol in shapes.equal or symbol in found.symbols():
        return found
    is_sum = len(found.symbols()) > 1 and is_nonnegative(found)
    if symbol in shapes.inputs and not is_sum:
        return found
    return shapes.equate(found, stated, op)


def _check_outputs(function: FuncOp, shapes: Shapes) -> None:
    """Checks that the nodes make outputs of the shapes that the model declares.

    Raises:
        CompileError: Another rank or another static extent is declared.
    """
    last = function.body.block.last_op
    values = () if last is None else last.operands
    for attribute, value in zip(function.res_attrs or (), values, strict=False):
        stated, found = of_type(value.type).dims, shapes.of(value).dims
        if stated is None or found is None or _may_be(stated, found):
            continue
        name = attribute.data.get("mllm.name")
        declared, made = (f"[{', '.join(map(str, dims))}]" for dims in (stated, found))
        raise CompileError(
            "MLC-I015",
            f"the model declares {declared}, but its nodes make {made}",
            location=f"output {name}",
            remedy="the model contradicts itself: correct the output's shape, export it again",
        )


def _may_be(stated: Sequence[Dim], found: Sequence[Dim]) -> bool:
    """Whether one shape can be the other; extents that are not both numbers can be equal."""
    if len(stated) != len(found):
        return False
    pairs = [(a.as_int(), b.as_int()) for a, b in zip(stated, found, strict=True)]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _retype(value: SSAValue, known: Known, bound: set[str]) -> None:
    dims = known.dims and tuple(_computable(d, bound) for d in known.dims)
    type = replace(known, dims=dims).as_type()
    if type != value.type and not isinstance(type, UnknownType):
        # In place: xDSL's own helper makes a new value and rebuilds every use.
        value._type = type  # pyright: ignore[reportPrivateUsage]


def _computable(dim: Dim, bound: set[str]) -> Dim:
    """A dim that the arguments decide, else unknown."""
    return dim if dim.symbols() <= bound else UNKNOWN


def _record_contents(op: Operation, shapes: Shapes, bound: set[str]) -> None:
    if not isinstance(op, OnnxOp):
        return
    contents = shapes.of(op.results[0]).contents
    if contents is None:
        op.attributes.pop(CONTENTS, None)
        return
    op.attributes[CONTENTS] = DimsAttr(tuple(_computable(d, bound) for d in contents))


def _take_static_dims(
    function: FuncOp, functions: dict[str, FuncOp], pipelines: list[PipelineOp]
) -> None:
    """Gives an argument the static dims of the result that it is in the pipeline."""
    for pipeline in pipelines:
        for edge in pipeline.edges:
            if edge.consumer.data != function.sym_name.data:
                continue
            producer = functions[edge.producer.data]
            argument = _named(function.arg_attrs, edge.input.data, function.body.block.args)
            results = producer.function_type.outputs.data
            source = _named(producer.res_attrs, edge.output.data, results)
            if argument is not None and source is not None:
                _narrow(argument, source)


def _named(
    attributes: ArrayAttr[DictionaryAttr] | None, name: str, values: Sequence[SSAValue | Attribute]
) -> SSAValue | Attribute | None:
    for attribute, value in zip(attributes or (), values, strict=False):
        if attribute.data.get("mllm.name") == StringAttr(name):
            return value
    return None


def _narrow(argument: SSAValue | Attribute, source: SSAValue | Attribute) -> None:
    if not isinstance(argument, SSAValue) or not isinstance(source, Attribute):
        return
    mine, theirs = of_type(argument.type), of_type(source)
    if mine.dims is None or theirs.dims is None or len(mine.dims) != len(theirs.dims):
        return
    pairs = zip(mine.dims, theirs.dims, strict=True)
    known = {s: t for m, t in pairs if (s := m.as_symbol()) and t.as_int() is not None}
    for other in argument.owner.args if isinstance(argument.owner, Block) else ():
        dims = of_type(other.type).dims
        if dims is not None:
            narrowed = tuple(d.substitute(known) for d in dims)
            other._type = replace(of_type(other.type), dims=narrowed).as_type()  # pyright: ignore[reportPrivateUsage]


def _drop_bounds(pipeline: PipelineOp, replaced: set[str], functions: Iterable[FuncOp]) -> None:
    """Removes the bounds of symbols that no function has any more."""
    used = {symbol for function in functions for symbol in _input_symbols(function)}
    kept = [b for b in pipeline.bounds if b.symbol.data in used or b.symbol.data not in replaced]
    pipeline.properties["bounds"] = ArrayAttr(kept)
