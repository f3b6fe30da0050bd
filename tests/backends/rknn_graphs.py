"""Graphs of one rknn op each, as the toolkit gets them: what tests of the vendor build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, PipelineOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.onnx_attributes import attribute_of
from mllm_compiler.dialects.rknn import BuildAttr, operators
from mllm_compiler.dialects.types import ELEMENTS
from mllm_compiler.passes.graphs import named
from mllm_compiler.passes.lower_to_rknn import BUILD
from mllm_compiler.weights import WeightStore

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """An op: what it is given when it runs, what is constant by position, and its results."""

    op: str
    inputs: tuple[Array, ...]
    results: tuple[tuple[int, ...], ...]
    constants: Mapping[int, Array] = field(default_factory=dict[int, Array])
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    dtype: type[np.generic] = np.float32

    def __str__(self) -> str:
        return self.op


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(len(shape)).uniform(low, high, shape).astype(np.float32)


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


X, POSITIVE = real(1, 16, 8, 32), real(1, 16, 8, 32, low=0.1)
IDS = np.array([[3, 1, 0, 2]], np.int64)
B = np.random.default_rng(7).random((1, 16, 8, 32)) > 0.5
IMAGE = real(1, 8, 16, 16)
WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


def cases() -> list[Case]:
    """An op each; shapes are such that the chip has no reason of its own against them."""
    made = [
        Case(name, (X,), (X.shape,))
        for name in (
            *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Neg", "Relu", "Round"),
            *("Sigmoid", "Sign", "Sin", "Tanh"),
        )
    ]
    made += [Case(name, (POSITIVE,), (X.shape,)) for name in ("Log", "Sqrt")]
    made += [
        Case(name, (X, real(1, 1, 1, 32, low=0.5)), (X.shape,))
        for name in ("Add", "Div", "Max", "Min", "Mul", "Sub")
    ]
    made.append(Case("Pow", (POSITIVE,), (X.shape,), {1: np.array(3.0, np.float32)}))
    made += [
        Case(name, (X, real(1, 1, 1, 32)), (X.shape,), dtype=np.bool_)
        for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    ]
    made += [Case(name, (B, ~B), (B.shape,), dtype=np.bool_) for name in ("And", "Or")]
    made.append(Case("Not", (B,), (B.shape,), dtype=np.bool_))
    made.append(Case("Where", (B, X, real(1, 16, 8, 32)), (X.shape,)))
    made.append(Case("Cast", (B,), (X.shape,), attributes={"to": 1}))
    made += [
        Case("MatMul", (real(1, 8, 32),), ((1, 8, 64),), {1: real(32, 64)}),
        Case("Softmax", (X,), (X.shape,), attributes={"axis": -1}),
        Case("CumSum", (X,), (X.shape,), {1: np.array(3, np.int64)}),
        Case(
            "LayerNormalization",
            (real(1, 8, 32),),
            ((1, 8, 32),),
            {1: real(32), 2: real(32)},
            {"axis": -1, "epsilon": 1e-5},
        ),
        Case("Gather", (IDS,), ((1, 4, 32),), {0: real(9, 32)}, {"axis": 0}),
    ]
    made += [
        Case(name, (POSITIVE,), ((1, 16, 8, 1),), {1: whole(3)}, {"keepdims": 1})
        for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    ]
    made += [
        Case("Reshape", (X,), ((1, 16, 256, 1),), {1: whole(1, 16, 256, 1)}),
        Case("Transpose", (X,), ((1, 8, 16, 32),), attributes={"perm": [0, 2, 1, 3]}),
        Case("Concat", (X, X), ((1, 32, 8, 32),), attributes={"axis": 1}),
        Case("Slice", (X,), ((1, 8, 8, 32),), {1: whole(0), 2: whole(8), 3: whole(1)}),
        Case("Split", (X,), ((1, 8, 8, 32),) * 2, {1: whole(8, 8)}, {"axis": 1}),
        Case("Expand", (real(1, 16, 1, 32),), (X.shape,), {1: whole(*X.shape)}),
        Case(
            "Pad",
            (X,),
            ((1, 16, 10, 34),),
            {1: whole(0, 0, 1, 1, 0, 0, 1, 1), 2: np.array(0, np.float32)},
        ),
        Case("Conv", (IMAGE,), ((1, 16, 8, 8),), {1: real(16, 8, 3, 3), 2: real(16)}, WINDOW),
        Case("MaxPool", (IMAGE,), ((1, 8, 8, 8),), attributes=WINDOW),
        Case("AveragePool", (IMAGE,), ((1, 8, 8, 8),), attributes=WINDOW),
    ]
    return made


def module_of(made: Sequence[Case], soc: str, store: WeightStore) -> ModuleOp:
    """A graph of each op alone, under its name."""
    module = ModuleOp([PipelineOp("pipeline", edges=[], caches=[], bounds=[])])
    for case in made:
        module.body.block.add_op(_graph(case, store))
    module.attributes[BUILD] = BuildAttr.of(soc, "f16", "channel")
    return module


def inputs_of(case: Case) -> dict[str, Array]:
    """What a graph takes, by name."""
    return {f"x{at}": array for at, array in enumerate(case.inputs)}


def _graph(case: Case, store: WeightStore) -> FuncOp:
    kinds = [tensor_of(ELEMENTS[a.dtype], a.shape) for a in case.inputs]
    block = Block(arg_types=kinds)
    given, operands = iter(block.args), list[SSAValue]()
    for at in range(len(case.inputs) + len(case.constants)):
        array = case.constants.get(at)
        operands.append(next(given) if array is None else _constant(block, array, store))
    results = [tensor_of(ELEMENTS[np.dtype(case.dtype)], shape) for shape in case.results]
    kind = operators()[case.op]
    formals = kind.make([], []).schema.attributes
    attributes = {n: attribute_of(v, formals[n].kind) for n, v in case.attributes.items()}
    op = kind.make(operands, results, attributes)
    block.add_ops([op, ReturnOp(*op.results)])
    graph = FuncOp(case.op, (kinds, results), Region(block))
    graph.properties["arg_attrs"] = named([f"x{at}" for at in range(len(kinds))])
    graph.properties["res_attrs"] = named([f"y{at}" for at in range(len(results))])
    return graph


def _constant(block: Block, array: Array, store: WeightStore) -> SSAValue:
    if array.size <= LARGEST_CONSTANT:
        op = ConstantOp.of(array)
    else:
        op = WeightOp(BlobAttr.of(store.add(array), ELEMENTS[array.dtype], array.shape))
    block.add_op(op)
    return op.results[0]
