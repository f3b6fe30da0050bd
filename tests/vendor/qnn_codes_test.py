"""Every op that `encode-qnn` puts on codes: HTP's emulator computes what the reference says.

The graphs of `qnn_ops_test` go through the pass, with 8 and with 16 bits; inputs are such as codes
stand for, so that both sides begin alike. Steps are those of the result's codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from xdsl.dialects.builtin import f16
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.qnn.emit import emit
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.dialects import make_context, qnn
from mllm_compiler.dialects.qnn import QnnOp, SocAttr
from mllm_compiler.dialects.types import element_of
from mllm_compiler.passes.encode_qnn import EncodeQnn
from mllm_compiler.passes.graphs import argument_names, block_of, graphs
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.vendor.qnn_graphs import SM8650, Array, Case, function_of, module_of, real
from tests.vendor.qnn_ops_test import TURNS, cases

pytestmark = pytest.mark.vendor
LOGICAL = (qnn.ElementWiseAndOp, qnn.ElementWiseOrOp, qnn.ElementWiseNotOp)
MOST = {8: 1, 16: 8}
"""How many codes off an element may be."""

ROUGH = {
    qnn.ElementWiseDivideOp: 16,
    qnn.SoftmaxOp: 32,
    qnn.GeluOp: 48,
    qnn.ElementWiseSquareRootOp: 48,
    qnn.MatMulOp: 96,
}
"""The same of what HTP computes less exactly in 16 bits; a code of 8 bits is 256."""

SM8450 = SocAttr.of("sm8450", 36, 69)
LARGE = Case(qnn.MatMulOp, (real(2, 64, 24), real(2, 96, 24)), (2, 64, 96), TURNS)
"""A product that HTP makes other reals of than of a small one."""


@dataclass(frozen=True)
class Answer:
    """What the emulator gives, what the reference says, and the operator on codes."""

    got: Array
    want: Array
    op: QnnOp


def coded() -> list[Case]:
    """Graphs of reals; comparisons and casts have no codes to give."""
    given = [case for case in cases() if not case.result]
    return [*(case for case in given if case.op not in LOGICAL), LARGE]


@cache
def answers(bits: int) -> list[Answer]:
    """What is said of every case."""
    return computed(coded(), bits, SM8650)


def computed(cases: Sequence[Case], bits: int, soc: SocAttr) -> list[Answer]:
    """What is said of some cases, all in one context."""
    store = WeightStore()
    functions = [_function(f"f{i}", c, store, soc) for i, c in enumerate(cases)]
    module = module_of([function for function, _ in functions])
    with TemporaryDirectory() as folder:
        for function, inputs in functions:
            (Path(folder) / function.sym_name.data).mkdir()
            np.savez(Path(folder) / function.sym_name.data / "0.npz", **inputs)
        EncodeQnn(f"w8a{bits}-npu", folder).apply(make_context(store), module)
    module.verify()
    artifact, found = emit(module, store), list[Answer]()
    with Library(artifact.soc) as library:
        library.load(library.prepare(artifact.graphs))
        made = zip(functions, graphs(module), cases, strict=True)
        for (_, inputs), graph, case in made:
            name, given = graph.sym_name.data, _snapped(graph, inputs)
            got, want = library.run(name, given), run_function(module, name, given, store)
            op = next(op for op in block_of(graph).ops if isinstance(op, case.op))
            found.append(Answer(got["y"], want["y"], op))
    return found


def _function(
    name: str, case: Case, store: WeightStore, soc: SocAttr
) -> tuple[FuncOp, dict[str, Array]]:
    """The graph of reals; products have weights of codes."""
    kinds = {"f": "f32", "b": "i1", "i": "i32"}
    elements = ["" if a is None else kinds[a.dtype.kind] for a in case.operands]
    if case.op is qnn.FullyConnectedOp:
        elements[1] = "i8"
    return function_of(name, case, elements, "f32", store, soc)


def _snapped(graph: FuncOp, inputs: dict[str, Array]) -> dict[str, Array]:
    """Inputs that codes stand for."""
    made = dict(inputs)
    for name, value in zip(argument_names(graph), graph.args, strict=True):
        ops = [use.operation for use in value.uses if isinstance(use.operation, qnn.QuantizeOp)]
        for op in ops[:1]:
            step = np.float32(op.scale.value.data)
            most = (1 << (8 if "8" in str(element_of(op.y)) else 16)) - 1
            codes = np.rint(inputs[name] / step).clip(-op.zero, most - op.zero)
            made[name] = codes * step
    return made


def check(answer: Answer, bits: int) -> None:
    assert str(element_of(answer.op.y)) == f"ui{bits}"
    assert answer.op.scale is not None
    steps = np.abs(answer.got - answer.want) / answer.op.scale.value.data
    most = ROUGH.get(type(answer.op), MOST[bits]) if bits == 16 else MOST[bits]
    assert np.rint(steps).max() <= most


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("at", range(len(coded())), ids=[str(case) for case in coded()])
def test_codes_are_what_the_reference_says(at: int, bits: int) -> None:
    answer = answers(bits)[at]
    if bits == 16 and isinstance(answer.op, qnn.ElementWiseLogOp):
        assert element_of(answer.op.y) == f16, "HTP computes it wrong, so codes go around it"
        return
    check(answer, bits)


def test_sines_that_were_always_0_rotate_nothing() -> None:
    """Those of position 0, before a result that reaches less far than what is rotated."""
    half = np.full((1, 1, 32), 0.5, np.float32)
    case = Case(
        qnn.RotaryEmbeddingOp,
        (real(1, 3, 1, 64), half, np.zeros_like(half)),
        (1, 3, 1, 64),
        {"interleaved": False},
    )
    (answer,) = computed([case], 8, SM8650)
    check(answer, 8)


def test_older_chips_read_8_bits_beside_16() -> None:
    """The reference has the same conversion before a product; a norm knows its gain."""
    norms = [case for case in coded() if case.op is qnn.LayerNormOp]
    for answer in computed([LARGE, *norms], 16, SM8450):
        assert str(element_of(answer.op.operands[1])) == "ui8"
        check(answer, 16)
