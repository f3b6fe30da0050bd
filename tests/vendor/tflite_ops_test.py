"""Every op of the tfl dialect: what LiteRT's interpreter computes is what the reference says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, PipelineOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.tfl import PseudoQconstOp, TflOp
from mllm_compiler.dialects.types import ELEMENTS
from mllm_compiler.passes.graphs import named
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore

pytestmark = pytest.mark.vendor
Array = np.ndarray


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(len(shape)).uniform(low, high, shape).astype(np.float32)


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


@dataclass(frozen=True)
class Case:
    """An op: what it is given when it runs, what is constant, and its results' shapes."""

    op: type[TflOp]
    inputs: tuple[Array, ...]
    results: tuple[tuple[int, ...], ...]
    constants: dict[int, Array] = field(default_factory=dict[int, Array])
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value])
    dtype: type[np.generic] | None = None
    quantised: int | None = None

    def __str__(self) -> str:
        form = "" if self.quantised is None else f"-block{self.quantised}"
        words = [str(v) for v in self.properties.values() if isinstance(v, str | bool | float)]
        return "-".join([self.op.name.removeprefix("tfl."), *words]) + form


X = real(2, 3, 4)
TWO = (True, False)
B = np.array([True, False, True, True])
ROWS = {"fused_activation_function": "NONE", "keep_num_dims": True}
WINDOW = {"stride_w": 2, "stride_h": 1, "fused_activation_function": "NONE"}
DILATED = {**WINDOW, "dilation_w_factor": 1, "dilation_h_factor": 2}
POOL = {**WINDOW, "filter_width": 2, "filter_height": 3}
IMAGE = real(2, 6, 7, 4)


def cases() -> list[Case]:
    made = [
        Case(kind, (X,), (X.shape,))
        for kind in (
            *(tfl.AbsOp, tfl.CeilOp, tfl.CosOp, tfl.ExpOp, tfl.FloorOp, tfl.HardSwishOp),
            *(tfl.LogisticOp, tfl.NegOp, tfl.ReluOp, tfl.RoundOp, tfl.SignOp, tfl.SinOp),
            *(tfl.TanhOp,),
        )
    ]
    positive = real(2, 3, 4, low=0.1)
    made += [Case(k, (positive,), (X.shape,)) for k in (tfl.LogOp, tfl.SqrtOp, tfl.RsqrtOp)]
    made += [
        Case(tfl.GeluOp, (X,), (X.shape,), properties={"approximate": a}) for a in (True, False)
    ]
    made += [
        Case(k, (X, real(3, 1)), (X.shape,), properties={"fused_activation_function": f})
        for k, f in (
            (tfl.AddOp, "NONE"),
            (tfl.AddOp, "RELU"),
            (tfl.SubOp, "RELU6"),
            (tfl.MulOp, "RELU_N1_TO_1"),
            (tfl.DivOp, "NONE"),
        )
    ]
    made += [
        Case(k, (X, real(3, 1)), (X.shape,))
        for k in (tfl.MaximumOp, tfl.MinimumOp, tfl.SquaredDifferenceOp)
    ]
    made += [Case(k, (positive, X), (X.shape,)) for k in (tfl.PowOp, tfl.FloorModOp)]
    made += [
        Case(k, (whole(1, 2, 3), whole(3, 2, 1)), ((3,),), dtype=np.bool_)
        for k in (
            *(tfl.EqualOp, tfl.NotEqualOp, tfl.LessOp),
            *(tfl.LessEqualOp, tfl.GreaterOp, tfl.GreaterEqualOp),
        )
    ]
    made += [Case(k, (B, ~B), (B.shape,)) for k in (tfl.LogicalAndOp, tfl.LogicalOrOp)]
    made.append(Case(tfl.LogicalNotOp, (B,), (B.shape,)))
    made.append(Case(tfl.SelectV2Op, (B, X, real(1)), (X.shape,), dtype=np.float32))
    made += [Case(tfl.CastOp, (X,), (X.shape,), dtype=d) for d in (np.int32, np.int64, np.bool_)]
    made += [
        Case(tfl.FullyConnectedOp, (X, real(5, 4), *bias), ((2, 3, 5),), properties=ROWS)
        for bias in ((), (real(5),))
    ]
    flat = {**ROWS, "keep_num_dims": False, "fused_activation_function": "RELU"}
    made.append(Case(tfl.FullyConnectedOp, (X, real(5, 4)), ((6, 5),), properties=flat))
    made += [
        Case(
            tfl.BatchMatmulOp,
            (real(2, 3, 4), real(*((1, 5, 4) if turned else (1, 4, 5)))),
            ((2, 3, 5),),
            properties={"adj_y": turned, "adj_x": False},
        )
        for turned in (True, False)
    ]
    made += [
        Case(tfl.CumsumOp, (x,), (x.shape,), {1: whole(1)}, {"exclusive": e, "reverse": r})
        for x, e, r in ((X, False, False), (X, True, True), (whole(4, 5, 6)[None], True, False))
    ]
    made.append(Case(tfl.SoftmaxOp, (X,), (X.shape,), properties={"beta": 1.0}))
    made += [
        Case(k, (X,), ((2, 1, 4),), {1: whole(1)}, {"keep_dims": True})
        for k in (tfl.MeanOp, tfl.SumOp, tfl.ReduceMaxOp, tfl.ReduceMinOp, tfl.ReduceProdOp)
    ]
    made.append(Case(tfl.MeanOp, (X,), ((3,),), {1: whole(0, 2)}, {"keep_dims": False}))
    made += [
        Case(tfl.ReshapeOp, (X,), ((4, 6),), {1: whole(4, 6)}),
        Case(tfl.TransposeOp, (X,), ((4, 2, 3),), {1: whole(2, 0, 1)}),
        Case(tfl.ConcatenationOp, (X, X), ((2, 6, 4),), properties={"axis": 1}),
        Case(tfl.SplitOp, (X,), ((2, 3, 2), (2, 3, 2)), {0: whole(2)}, {"num_splits": 2}),
        Case(
            tfl.StridedSliceOp,
            (X,),
            ((1, 2, 4),),
            {1: whole(1, 0, 0), 2: whole(2, 3, 4), 3: whole(1, 2, 1)},
        ),
        Case(
            tfl.PadV2Op,
            (X,),
            ((2, 6, 5),),
            {1: np.array([[0, 0], [1, 2], [0, 1]], np.int32), 2: np.array(-1.5, np.float32)},
        ),
        Case(
            tfl.GatherOp,
            (X, np.array([[2, 0]], np.int32)),
            ((2, 1, 2, 4),),
            properties={"axis": 1, "batch_dims": 0},
            dtype=np.float32,
        ),
        Case(tfl.BroadcastToOp, (real(3, 1),), (X.shape,), {1: whole(2, 3, 4)}),
        Case(tfl.DequantizeOp, (X.astype(np.float16),), (X.shape,), dtype=np.float32),
    ]
    made += [
        Case(
            tfl.Conv2dOp,
            (IMAGE, real(5, 2, 3, 4), real(5)),
            ((2, *size, 5),),
            properties={**DILATED, "padding": padding},
        )
        for padding, size in (("VALID", (4, 3)), ("SAME", (6, 4)))
    ]
    made += [
        Case(
            tfl.DepthwiseConv2dOp,
            (IMAGE, real(1, 2, 3, 8), real(8)),
            ((2, 4, 3, 8),),
            properties={**DILATED, "padding": "VALID", "depth_multiplier": 2},
        ),
        *(
            Case(k, (IMAGE,), ((2, *size, 4),), properties={**POOL, "padding": padding})
            for k in (tfl.MaxPool2dOp, tfl.AveragePool2dOp)
            for padding, size in (("VALID", (4, 3)), ("SAME", (6, 4)))
        ),
    ]
    made += [
        Case(
            tfl.FullyConnectedOp,
            (real(3, 64),),
            ((3, 6),),
            {1: np.random.default_rng(1).integers(-7, 8, (6, 64)).astype(np.int8)},
            ROWS,
            quantised=block,
        )
        for block in (0, 32)
    ]
    return made


@pytest.mark.parametrize("case", cases(), ids=str)
def test_litert_computes_what_the_reference_says(case: Case) -> None:
    from mllm_compiler.backends.tflite.sdk import Interpreter

    store = WeightStore()
    module, inputs = graph_of(case, store)
    module.verify()
    file = b"".join(bytes(piece) for piece in emit(module, store).stream(store))
    got = Interpreter(memoryview(file)).run("f", inputs)
    want = run_function(module, "f", inputs, store)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=2e-6)


def test_every_operator_has_a_case() -> None:
    assert {case.op for case in cases()} == set(tfl.OPS) - {PseudoQconstOp, tfl.QuantizeOp}


def graph_of(case: Case, store: WeightStore) -> tuple[ModuleOp, dict[str, Array]]:
    """A graph of the op alone, and its inputs by name."""
    kinds = [tensor_of(ELEMENTS[a.dtype], a.shape) for a in case.inputs]
    block = Block(arg_types=kinds)
    given, operands = iter(block.args), list[SSAValue]()
    for at in range(len(case.inputs) + len(case.constants)):
        if at not in case.constants:
            operands.append(next(given))
            continue
        operands.append(constant(block, case.constants[at], store))
    if case.quantised is not None:
        operands[1] = quantised(block, operands[1], case, store)
    if case.op in (tfl.FullyConnectedOp, tfl.Conv2dOp, tfl.DepthwiseConv2dOp):
        operands += [None] * (3 - len(operands))
    dtype = np.dtype(case.dtype or (case.inputs[0].dtype))
    results = [tensor_of(ELEMENTS[dtype], shape) for shape in case.results]
    op = case.op.call(operands, results, **case.properties)
    block.add_ops([op, ReturnOp(*op.results)])
    graph = FuncOp("f", (kinds, results), Region(block))
    names = [f"x{i}" for i in range(len(kinds))]
    graph.properties["arg_attrs"] = named(names)
    graph.properties["res_attrs"] = named([f"y{i}" for i in range(len(results))])
    pipeline = PipelineOp("pipeline", edges=[], caches=[], bounds=[])
    return ModuleOp([graph, pipeline]), dict(zip(names, case.inputs, strict=True))


def constant(block: Block, array: Array, store: WeightStore) -> SSAValue:
    if array.size <= LARGEST_CONSTANT:
        op = ConstantOp.of(array)
    else:
        op = WeightOp(BlobAttr.of(store.add(array), ELEMENTS[array.dtype], array.shape))
    block.add_op(op)
    return op.results[0]


def quantised(block: Block, codes: SSAValue, case: Case, store: WeightStore) -> SSAValue:
    """Codes of 8 bits with a scale for each row, or of 4 with one for each block."""
    array, size = case.constants[1], case.quantised or 0
    scales = real(6, 64 // size if size else 1, low=0.01, high=0.02)
    if size:
        import ml_dtypes

        codes = constant(block, array.astype(ml_dtypes.int4), store)
        scales = scales.astype(np.float16)
    scale = constant(block, scales, store)
    op = PseudoQconstOp.call([codes, scale], codes.type, block_size=size)
    block.add_op(op)
    return op.results[0]
