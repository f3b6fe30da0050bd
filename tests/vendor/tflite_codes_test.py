"""Every operator on codes of 8 and 16 bits: LiteRT's interpreter gives the reference's codes.

With XNNPACK, as the interpreter runs by default, and, where it does not have the operator, by
TFLite's own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f32, i8, i16
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.dialects.mllm.contract import integer
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import FIXED, FORMS, moved, operator
from mllm_compiler.passes.graphs import named
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.vendor.tflite_ops_test import Array, constant, whole

pytestmark = pytest.mark.vendor
RNG = np.random.default_rng(21)
NONE = {"fused_activation_function": "NONE"}
WINDOW = {"padding": "VALID", "stride_w": 2, "stride_h": 1, **NONE}
DILATED = {**WINDOW, "dilation_w_factor": 1, "dilation_h_factor": 2}
POOL = {**WINDOW, "filter_width": 2, "filter_height": 3}


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An operator on codes.

    Attributes:
        inputs: What it reads, real; each is quantised over its own range.
        reach: How far the result's codes reach.
        results: The shapes of its results.
        constants: Whole numbers, by position.
        weight: Codes of 8 bits with a scale for each element of an axis, and a bias, by position.
        apart: How many codes LiteRT may be away, and on how many parts of the result.
    """

    op: type[TflOp]
    inputs: tuple[Array, ...]
    results: tuple[tuple[int, ...], ...]
    reach: tuple[float, float] = (-2.0, 2.0)
    constants: Mapping[int, Array] = field(default_factory=dict[int, Array])
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value])
    weight: Array | None = None
    apart: tuple[int, float] = (0, 0.0)

    def __str__(self) -> str:
        shapes = "x".join(str(n) for n in self.results[0])
        return f"{self.op.name.removeprefix('tfl.')}-{shapes}"


X, Y, IMAGE = real(4, 24, 40), real(24, 1), real(2, 12, 14, 6)


def codes(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


CASES = [
    Case(tfl.QuantizeOp, (X,), (X.shape,)),
    *(Case(k, (X, Y), (X.shape,), (-4, 4), {}, NONE) for k in (tfl.AddOp, tfl.SubOp, tfl.MulOp)),
    Case(tfl.MulOp, (X, real(4, 24, 40, low=0, high=0.1)), (X.shape,), (-0.2, 0.2), {}, NONE),
    Case(tfl.AddOp, (X, real(40, low=-0.01, high=0.3)), (X.shape,), (-2, 2.3), {}, NONE),
    Case(tfl.MaximumOp, (X, X[::-1].copy()), (X.shape,)),
    Case(tfl.MinimumOp, (X, X[::-1].copy()), (X.shape,)),
    Case(tfl.ConcatenationOp, (X, X), ((4, 48, 40),), properties={"axis": 1, **NONE}),
    Case(tfl.MeanOp, (X,), ((4, 24, 1),), (-0.7, 0.6), {1: whole(2)}, {"keep_dims": True}),
    Case(tfl.MeanOp, (X,), ((24,),), (-0.2, 0.2), {1: whole(0, 2)}, {"keep_dims": False}),
    Case(tfl.SumOp, (X,), ((4, 24, 1),), (-20, 20), {1: whole(2)}, {"keep_dims": True}),
    Case(
        tfl.ReduceMaxOp,
        (X,),
        ((4, 24, 1),),
        constants={1: whole(2)},
        properties={"keep_dims": True},
    ),
    Case(
        tfl.ReduceMinOp,
        (X,),
        ((4, 24, 1),),
        constants={1: whole(2)},
        properties={"keep_dims": True},
    ),
    Case(tfl.SoftmaxOp, (real(6, 50, low=-9, high=4),), ((6, 50),), properties={"beta": 1.0}),
    Case(tfl.SoftmaxOp, (real(3, 300, low=-20, high=1),), ((3, 300),), properties={"beta": 1.0}),
    Case(
        tfl.GeluOp,
        (real(40, 40, low=-6, high=5),),
        ((40, 40),),
        (-0.2, 5),
        {},
        {"approximate": False},
    ),
    Case(
        tfl.GeluOp,
        (real(40, 41, low=-6, high=5),),
        ((40, 41),),
        (-0.2, 5),
        {},
        {"approximate": True},
    ),
    Case(tfl.LogisticOp, (real(50, 50, low=-7, high=9),), ((50, 50),), apart=(1, 0.4)),
    Case(tfl.LogisticOp, (real(50, 51, low=-6, high=7),), ((50, 51),), apart=(1, 0.4)),
    Case(tfl.TanhOp, (real(50, 50, low=-3, high=4),), ((50, 50),), apart=(1, 0.5)),
    Case(tfl.ExpOp, (real(50, 50, low=-7, high=1),), ((50, 50),), (0, 2.8)),
    Case(tfl.LogOp, (real(50, 50, low=0.0, high=4),), ((50, 50),), (-4, 1.5)),
    Case(tfl.ReluOp, (X,), (X.shape,), (0, 1.9)),
    Case(tfl.RsqrtOp, (real(50, 50, low=0.0, high=4),), ((50, 50),), (0, 6)),
    Case(tfl.ReshapeOp, (X,), ((96, 40),), constants={1: whole(96, 40)}),
    Case(tfl.TransposeOp, (X,), ((40, 4, 24),), constants={1: whole(2, 0, 1)}),
    Case(tfl.SplitOp, (X,), ((4, 24, 20),) * 2, (-2, 2), {0: whole(2)}, {"num_splits": 2}),
    Case(
        tfl.StridedSliceOp,
        (X,),
        ((1, 12, 40),),
        constants={1: whole(1, 0, 0), 2: whole(2, 24, 40), 3: whole(1, 2, 1)},
    ),
    Case(
        tfl.PadV2Op,
        (X, np.array(0.0, np.float32)),
        ((4, 27, 41),),
        constants={1: np.array([[0, 0], [1, 2], [0, 1]], np.int32)},
    ),
    Case(
        tfl.GatherOp,
        (X,),
        ((4, 2, 40),),
        constants={1: whole(7, 2)},
        properties={"axis": 1, "batch_dims": 0},
    ),
    Case(tfl.BroadcastToOp, (Y,), ((4, 24, 40),), constants={1: whole(4, 24, 40)}),
    Case(tfl.MaxPool2dOp, (IMAGE,), ((2, 10, 7, 6),), properties=POOL),
    Case(tfl.AveragePool2dOp, (IMAGE,), ((2, 10, 7, 6),), properties=POOL),
    Case(
        tfl.BatchMatmulOp,
        (X, real(4, 33, 40)),
        ((4, 24, 33),),
        (-16, 17),
        properties={"adj_y": True, "adj_x": False},
    ),
    Case(
        tfl.BatchMatmulOp,
        (X, real(1, 40, 33)),
        ((4, 24, 33),),
        (-16, 17),
        properties={"adj_y": False, "adj_x": False},
    ),
    *(
        Case(
            tfl.FullyConnectedOp,
            (x,),
            ((*x.shape[:-1], 70),),
            (-9, 8),
            properties={"keep_num_dims": True, **NONE},
            weight=codes(70, x.shape[-1]),
        )
        for x in (X, real(1, 300))
    ),
    Case(
        tfl.Conv2dOp,
        (IMAGE,),
        ((2, 8, 6, 10),),
        (-9, 8),
        properties=DILATED,
        weight=codes(10, 3, 3, 6),
    ),
    Case(
        tfl.DepthwiseConv2dOp,
        (IMAGE,),
        ((2, 8, 6, 12),),
        (-9, 8),
        properties={**DILATED, "depth_multiplier": 2},
        weight=codes(1, 3, 3, 12),
    ),
]


def encoded(reach: tuple[float, float], bits: int, *, symmetric: bool) -> dict[str, Attribute]:
    low, high = reach
    scale, zero = max(-low, high) / (127 if bits == 8 else 32767), 0
    if bits == 8 and not symmetric:
        scale = (high - low) / 255
        zero = int(np.clip(round(-128 - low / scale), -128, 127))
    return {"scale": FloatAttr(scale, f32), "zero_point": integer(zero)}


def graph_of(case: Case, bits: int, store: WeightStore) -> tuple[ModuleOp, dict[str, Array]]:
    """Reals are quantised, the operator runs on codes, and what its codes mean is returned."""
    element = i8 if bits == 8 else i16
    block = Block(arg_types=[tensor_of(f32, a.shape) for a in case.inputs])
    joined = (min(a.min() for a in case.inputs), max(a.max() for a in case.inputs))
    operands, given = list[SSAValue | None](), list[dict[str, Attribute]]()
    shared = case.op in (tfl.ConcatenationOp, tfl.MaximumOp, tfl.MinimumOp, tfl.PadV2Op)
    for at, (argument, array) in enumerate(zip(block.args, case.inputs, strict=True)):
        reach = joined if shared else (min(0, array.min()), max(0, array.max()))
        symmetric = case.op is tfl.BatchMatmulOp and at == 1
        given.append(encoded(reach, bits, symmetric=symmetric))
        kind = tensor_of(element, array.shape)
        op = tfl.QuantizeOp.call([argument], kind, **given[-1])
        block.add_op(op)
        operands.append(op.y)
    for at in sorted(case.constants):
        operands.insert(at, constant(block, case.constants[at], store))
    if case.weight is not None:
        operands += weighted(block, case, given[0], bits, store)
    kinds = [tensor_of(element, shape) for shape in case.results]
    if case.op is tfl.QuantizeOp:
        operands = [*block.args]
    op = case.op.call(operands, kinds, **case.properties)
    meaning = encoded(case.reach, bits, symmetric=False)
    if operator(op) in FIXED[bits]:
        scale, zero = FIXED[bits][operator(op)]
        meaning = {"scale": FloatAttr(scale, f32), "zero_point": integer(zero)}
    op.properties |= given[0] if moved(op) else meaning
    block.add_op(op)
    ends = [
        tfl.DequantizeOp.call([r], tensor_of(f32, s))
        for r, s in zip(op.results, case.results, strict=True)
    ]
    block.add_ops([*ends, ReturnOp(*(e.y for e in ends))])
    types = [a.type for a in block.args], [e.y.type for e in ends]
    graph = FuncOp("f", types, Region(block))
    names = [f"x{i}" for i in range(len(case.inputs))]
    graph.properties["arg_attrs"] = named(names)
    graph.properties["res_attrs"] = named([f"y{i}" for i in range(len(ends))])
    pipeline = PipelineOp("pipeline", edges=[], caches=[], bounds=[])
    return ModuleOp([graph, pipeline]), dict(zip(names, case.inputs, strict=True))


def weighted(
    block: Block, case: Case, given: Mapping[str, Attribute], bits: int, store: WeightStore
) -> list[SSAValue]:
    """A weight of 8 bits and its bias, in steps of both scales."""
    assert case.weight is not None
    axis = 3 if case.op is tfl.DepthwiseConv2dOp else 0
    count = case.weight.shape[axis]
    scale = given["scale"]
    assert isinstance(scale, FloatAttr)
    steps = RNG.uniform(0.0005, 0.005, (count, 1)).astype(np.float32)
    bias = RNG.integers(-9000, 9000, count).astype(np.int32 if bits == 8 else np.int64)
    made = list[SSAValue]()
    for array, scales, at in (
        (case.weight, steps, axis),
        (bias, steps * np.float32(scale.value.data), 0),
    ):
        held = [constant(block, array, store), constant(block, scales, store)]
        op = tfl.PseudoQconstOp.call(held, held[0].type, quantized_dimension=at)
        block.add_op(op)
        made.append(op.weights)
    return made


@pytest.mark.parametrize(
    ("case", "bits"),
    [
        pytest.param(case, bits, id=f"{case}-{bits}")
        for case in CASES
        for bits in FORMS
        if operator(case.op.create(result_types=[])) in FORMS[bits]
    ],
)
def test_litert_gives_the_same_codes(case: Case, bits: int) -> None:
    """Of each width that TFLite has a kernel for."""
    from mllm_compiler.backends.tflite.sdk import Interpreter

    store = WeightStore()
    module, inputs = graph_of(case, bits, store)
    module.verify()
    file = b"".join(bytes(piece) for piece in emit(module, store).stream(store))
    got, want = (
        Interpreter(memoryview(file)).run("f", inputs),
        run_function(module, "f", inputs, store),
    )
    step = next(op.scale for op in module.walk() if isinstance(op, case.op)).value.data
    for name, array in want.items():
        assert len(np.unique(array)) > 10
        steps = np.abs(got[name] - array) / step
        most, part = case.apart if bits == 16 else (0, 0)
        assert steps.max() <= most + 1e-3
        assert (steps > 0.5).mean() <= part


def test_every_operator_with_a_form_on_codes_has_a_case() -> None:
    tried = {operator(case.op.create(result_types=[])) for case in CASES}
    assert tried == FORMS[8] | FORMS[16]
