"""Every op of the qnn dialect: what HTP's emulator computes is what the reference says.

All graphs are in one context, so that one process prepares and runs them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from mllm_compiler.backends.qnn.emit import emit
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.dialects import qnn
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.vendor.qnn_graphs import Array, Case, function_of, module_of, real

pytestmark = pytest.mark.vendor

X, POSITIVE, IMAGE = real(2, 3, 4), real(2, 3, 4, low=0.2), real(2, 6, 7, 4)
B = np.array([True, False, True, True])
WHOLE = np.array([[2, 0]], np.int32)
WINDOW = {"stride": [1, 2], "pad_amount": [1, 0, 0, 2]}
POOL = {**WINDOW, "filter_size": [3, 2]}
WEIGHTS = frozenset({1, 2})
TURNS = {"transpose_in0": False, "transpose_in1": True}
NORM = {"epsilon": 1e-5, "axes": [1]}
FUNCTIONS = (
    *(qnn.ElementWiseAbsOp, qnn.ElementWiseCeilOp, qnn.ElementWiseCosOp, qnn.ElementWiseExpOp),
    *(qnn.ElementWiseFloorOp, qnn.ElementWiseNegOp, qnn.ElementWiseRoundOp),
    *(qnn.ElementWiseSignOp, qnn.ElementWiseSinOp, qnn.GeluOp, qnn.HardSwishOp, qnn.ReluOp),
    *(qnn.SigmoidOp, qnn.TanhOp),
)
ROOTS = (qnn.ElementWiseLogOp, qnn.ElementWiseRsqrtOp, qnn.ElementWiseSquareRootOp)
SUMS = (
    *(qnn.ElementWiseAddOp, qnn.ElementWiseSubtractOp, qnn.ElementWiseMultiplyOp),
    *(qnn.ElementWiseDivideOp, qnn.ElementWiseMaximumOp, qnn.ElementWiseMinimumOp),
)
COMPARISONS = (
    *(qnn.ElementWiseEqualOp, qnn.ElementWiseNotEqualOp, qnn.ElementWiseLessOp),
    *(qnn.ElementWiseLessEqualOp, qnn.ElementWiseGreaterOp, qnn.ElementWiseGreaterEqualOp),
)


def cases() -> list[Case]:
    """Arrays of reals are halves or codes; others are what they are."""
    made = [Case(op, (X,), X.shape) for op in FUNCTIONS]
    made += [Case(op, (POSITIVE,), X.shape) for op in ROOTS]
    made += [Case(op, (X, real(3, 1, low=0.5)), X.shape) for op in SUMS]
    made.append(Case(qnn.ElementWisePowerOp, (POSITIVE, real(1, 4)), X.shape))
    made += [Case(op, (X, X[:, :1]), X.shape, result="i1") for op in COMPARISONS]
    made += [
        Case(op, (B, ~B), B.shape, result="i1")
        for op in (qnn.ElementWiseAndOp, qnn.ElementWiseOrOp)
    ]
    made.append(Case(qnn.ElementWiseNotOp, (B,), B.shape, result="i1"))
    made.append(Case(qnn.ElementWiseSelectOp, (B, X, real(3, 1)), X.shape))
    made += [Case(qnn.CastOp, (X,), X.shape, result=to) for to in ("i32", "f32")]
    made += [
        Case(qnn.FullyConnectedOp, (real(6, 32), real(5, 32), bias), (6, 5), constants=WEIGHTS)
        for bias in (None, real(5))
    ]

    made += [
        Case(qnn.MatMulOp, (real(1, 2, 3, 8), real(1, 2, 5, 8)), (1, 2, 3, 5), TURNS),
        Case(
            qnn.MatMulOp,
            (real(2, 3, 4), real(1, 4, 5)),
            (2, 3, 5),
            {"transpose_in0": False, "transpose_in1": False},
        ),
        Case(qnn.SoftmaxOp, (X,), X.shape, {"axis": 2, "beta": 1.5}),
        Case(
            qnn.RmsNormOp,
            (real(64, 32), real(32)),
            (64, 32),
            NORM,
            WEIGHTS,
        ),
        *(
            Case(qnn.LayerNormOp, (real(64, 32), real(32), beta), (64, 32), NORM, WEIGHTS)
            for beta in (None, real(32, low=-1.0))
        ),
        *(
            Case(
                qnn.RotaryEmbeddingOp,
                (real(b, 2, 3, 8), real(b, 3, 4), real(b, 3, 4, low=-1.0)),
                (b, 2, 3, 8),
                {"interleaved": paired},
            )
            for paired in (False, True)
            for b in (1, 2)
        ),
        *(
            Case(op, (X,), (2, 1, 4), {"axes": [1], "keep_dims": True})
            for op in (qnn.ReduceMeanOp, qnn.ReduceSumOp, qnn.ReduceMaxOp, qnn.ReduceMinOp)
        ),
        Case(qnn.ReduceMeanOp, (X,), (3,), {"axes": [0, 2], "keep_dims": False}),
        Case(qnn.ReshapeOp, (X,), (4, 6)),
        Case(qnn.TransposeOp, (X,), (4, 2, 3), {"perm": [2, 0, 1]}),
        Case(qnn.ConcatOp, (X, X), (2, 6, 4), {"axis": 1}),
        Case(qnn.StridedSliceOp, (X,), (1, 2, 4), {"ranges": [1, 2, 1, 0, 3, 2, 0, 4, 1]}),
        Case(qnn.TileOp, (real(2, 1, 4),), (2, 3, 4), {"multiples": [1, 3, 1]}),
        Case(qnn.GatherOp, (X, WHOLE), (2, 1, 2, 4), {"axis": 1}, frozenset({1})),
        Case(qnn.GatherOp, (real(5, 4), WHOLE), (1, 2, 4), {"axis": 0}),
        Case(
            qnn.Conv2dOp,
            (IMAGE, real(2, 3, 2, 6), real(6)),
            (2, 5, 4, 6),
            {**WINDOW, "dilation": [2, 1], "group": 2},
            WEIGHTS,
        ),
        Case(
            qnn.Conv2dOp,
            (IMAGE, real(2, 3, 1, 8), real(8)),
            (2, 6, 4, 8),
            {**WINDOW, "dilation": [1, 1], "group": 4},
            WEIGHTS,
        ),
        Case(
            qnn.DepthWiseConv2dOp,
            (IMAGE, real(2, 3, 1, 4), real(4)),
            (2, 6, 4, 4),
            {**WINDOW, "dilation": [1, 1]},
            WEIGHTS,
        ),
        Case(qnn.PoolMax2dOp, (IMAGE,), (2, 5, 4, 4), POOL),
        *(
            Case(qnn.PoolAvg2dOp, (IMAGE,), (2, 5, 4, 4), {**POOL, "count_pad_for_edges": edges})
            for edges in (False, True)
        ),
    ]
    return made


@cache
def answers() -> dict[str, tuple[Array, Array]]:
    """What the emulator gives and what the reference says, of each case."""
    store, functions, given = WeightStore(), [], {}
    for at, case in enumerate(cases()):
        elements = [
            "" if a is None else {"f": "f16", "b": "i1", "i": "i32"}[a.dtype.kind]
            for a in case.operands
        ]
        function, inputs = function_of(f"f{at}", case, elements, case.result or "f16", store)
        functions.append(function)
        given[f"f{at}"] = inputs
    module = module_of(functions)
    module.verify()
    artifact = emit(module, store)
    with Library(artifact.soc) as library:
        library.load(library.prepare(artifact.graphs))
        return {
            name: (library.run(name, inputs)["y"], run_function(module, name, inputs, store)["y"])
            for name, inputs in given.items()
        }


@pytest.mark.parametrize("at", range(len(cases())), ids=[str(case) for case in cases()])
def test_the_emulator_computes_what_the_reference_says(at: int) -> None:
    got, want = answers()[f"f{at}"]
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
