"""Graphs of one qnn op, to hold the dialect to HTP's library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    f16,
    f32,
    f64,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, PipelineOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.qnn import QnnOp, SocAttr
from mllm_compiler.dialects.qnn.soc import SOC
from mllm_compiler.dialects.types import ELEMENTS, element_of, extents, i8, i16, ui8, ui16
from mllm_compiler.passes.graphs import named
from mllm_compiler.weights import WeightStore

Array = np.ndarray
SM8650 = SocAttr.of("sm8650", 57, 75)
TYPES: dict[str, Attribute] = {
    "f32": f32,
    "f16": f16,
    "ui8": ui8,
    "i8": i8,
    "ui16": ui16,
    "i16": i16,
    "i32": i32,
}
DTYPES = {
    "i4": np.dtype(ml_dtypes.int4),
    "i8": np.dtype(np.int8),
    "ui8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "ui16": np.dtype(np.uint16),
    "i32": np.dtype(np.int32),
}
RANGE = 4.0
"""Codes of inputs reach from -4 to 4."""


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(len(shape)).uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An op: what it is given, its result's extents, its parameters.

    Operands in `constants` are known from the start; the others are arguments of the graph.
    """

    op: type[QnnOp]
    operands: tuple[Array | None, ...]
    dims: tuple[int, ...]
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value])
    constants: frozenset[int] = frozenset()
    elements: tuple[str, ...] = ()
    result: str = ""

    def __str__(self) -> str:
        words = [str(v) for v in self.properties.values() if isinstance(v, bool)]
        return "-".join([self.op.operator(), *words])


def encoding(element: str, low: float = -RANGE, high: float = RANGE) -> dict[str, Value]:
    """Properties of an op whose result has codes over a range; none for reals."""
    if element not in ("ui8", "i8", "ui16", "i16"):
        return {}
    bits, unsigned = int(element.strip("ui")), element.startswith("u")
    scale = (high - low) / ((1 << bits) - 1)
    zero = round(-low / scale) - (0 if unsigned else 1 << (bits - 1))
    return {"scale": FloatAttr(scale, f64), "zero_point": IntegerAttr(zero, i64)}


def function_of(
    name: str,
    case: Case,
    elements: Sequence[str],
    result: str,
    store: WeightStore,
    soc: SocAttr = SM8650,
) -> tuple[FuncOp, dict[str, Array]]:
    """A graph of the op alone, and its inputs; arguments and results are reals or whole numbers.

    `elements` are those of the operands, `result` that of the result.
    """
    block = Block()
    inputs: dict[str, Array] = {}
    operands: list[SSAValue | None] = []
    for at, (array, element) in enumerate(zip(case.operands, elements, strict=True)):
        if array is None:
            operands.append(None)
        elif at in case.constants:
            operands.append(_constant(block, array, element, store))
        else:
            argument = block.insert_arg(tensor_of(ELEMENTS[array.dtype], array.shape), len(inputs))
            inputs[f"x{len(inputs)}"] = array
            operands.append(_as(block, argument, element))
    kind = tensor_of(i1_or(result), case.dims)
    op = case.op.call(operands, kind, **case.properties, **encoding(result, *_reach(case)))
    block.add_op(op)
    y = op.y
    if element_of(y) != f32 and element_of(y) != i32:
        out = qnn.DequantizeOp if result in ("ui8", "i8", "ui16", "i16") else qnn.CastOp
        last = out.call([y], tensor_of(f32, extents(y)))
        block.add_op(last)
        y = last.y
    block.add_op(ReturnOp(y))
    function = FuncOp(name, FunctionType.from_lists(list(block.arg_types), [y.type]), Region(block))
    function.properties["arg_attrs"] = named(inputs)
    function.properties["res_attrs"] = named(["y"])
    function.attributes[SOC] = soc
    return function, inputs


def module_of(functions: Sequence[FuncOp]) -> ModuleOp:
    return ModuleOp([*functions, PipelineOp("pipeline", edges=[], caches=[], bounds=[])])


def i1_or(element: str) -> Attribute:
    return ELEMENTS[np.dtype(np.bool_)] if element == "i1" else TYPES[element]


def _reach(case: Case) -> tuple[float, float]:
    return (0.0, 1.0) if case.op is qnn.SoftmaxOp else (-8.0, 8.0)


def _as(block: Block, argument: SSAValue, element: str) -> SSAValue:
    """An argument as codes or halves."""
    if str(element_of(argument)) == element:
        return argument
    coded = encoding(element)
    kind = qnn.QuantizeOp if coded else qnn.CastOp
    op = kind.call([argument], tensor_of(i1_or(element), extents(argument)), **coded)
    block.add_op(op)
    return op.y


def _constant(block: Block, array: Array, element: str, store: WeightStore) -> SSAValue:
    """A static tensor; codes of a matrix have a scale for each row, others one."""
    if element in ("f16", "f32") or array.dtype.kind != "f":
        dtype = {"f16": np.float16, "f32": np.float32}.get(element, array.dtype)
        return _stored(block, array.astype(dtype), store)
    rows = array.ndim == 2 and element in ("i8", "i4")
    most = {"i4": 7, "i8": 127, "ui8": 127, "i16": 32767, "ui16": 32767, "i32": 1 << 24}[element]
    zero = {"ui8": 128, "ui16": 32768}.get(element, 0)
    scale = np.abs(array).max(axis=1 if rows else None).reshape(-1).astype(np.float32) / most
    codes = np.rint(array / (scale[:, None] if rows else scale)) + zero
    dtype = DTYPES[element]
    op = qnn.StaticTensorOp.call(
        [_stored(block, codes.astype(dtype), store), _stored(block, scale, store)],
        tensor_of(ELEMENTS[dtype], array.shape),
        axis=0 if rows else -1,
        zero_point=zero,
    )
    block.add_op(op)
    return op.y


def _stored(block: Block, array: Array, store: WeightStore) -> SSAValue:
    if array.size <= LARGEST_CONSTANT:
        op = ConstantOp.of(array)
    else:
        op = WeightOp(BlobAttr.of(store.add(array), ELEMENTS[array.dtype], array.shape))
    block.add_op(op)
    return op.results[0]
