"""The element types that the qnn dialect allows are those that HTP's own validator takes.

Each form of `dialects/qnn/htp.toml` is asked about, on the HTP that it begins with and on the one
before; and each type that no form of an operator has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.backends.qnn.emit import graph_of
from mllm_compiler.backends.qnn.graph import Soc
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.qnn.binary import BinaryOp
from mllm_compiler.dialects.qnn.unary import UnaryOp
from mllm_compiler.weights import WeightStore
from tests.vendor.qnn_graphs import Case, function_of, real

pytestmark = pytest.mark.vendor

SM8450, SM8650 = Soc(name="sm8450", model=36, arch=69), Soc(name="sm8650", model=57, arch=75)
TYPES = ("f16", "ui8", "i8", "ui16", "i16")
COMPARED = ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
X = real(2, 3, 4)
BETWEEN = (qnn.CastOp, qnn.QuantizeOp, qnn.DequantizeOp, qnn.ConvertOp)
TURNS = {"transpose_in0": False, "transpose_in1": True}


def families() -> Iterator[tuple[Case, tuple[str, ...], str]]:
    """Functions of elements, with the types of their operands and result."""
    for op in qnn.OPS:
        named = op.name.removeprefix("qnn.")
        logical = named in ("element_wise_and", "element_wise_or", "element_wise_not")
        if op in BETWEEN or logical:
            continue
        for element in TYPES:
            if issubclass(op, UnaryOp):
                yield Case(op, (X,), X.shape), (element,), element
            elif issubclass(op, BinaryOp):
                result = "i1" if op.operator().removeprefix("ElementWise") in COMPARED else element
                yield Case(op, (X, X), X.shape), (element, element), result


def products() -> Iterator[tuple[Case, tuple[str, ...], str]]:
    """Products and norms, whose operands differ in type."""
    a, b = real(1, 2, 3, 8), real(1, 2, 5, 8)
    for first in TYPES:
        for second in TYPES:
            yield Case(qnn.MatMulOp, (a, b), (1, 2, 3, 5), TURNS), (first, second), first
        for weights in ("f16", "i8", "i4"):
            linear = Case(
                qnn.FullyConnectedOp,
                (real(6, 32), real(5, 32), None),
                (6, 5),
                constants=frozenset({1}),
            )
            yield linear, (first, weights, ""), first


def test_the_table_and_the_library_agree() -> None:
    wrong = list[str]()
    with Library(SM8650) as library:
        for case, elements, result in (*families(), *products()):
            said, words = allowed(case, elements, result), asked(library, case, elements, result)
            if said != (not words) and not refused_on_purpose(case, elements):
                wrong.append(f"{case.op.operator()} {elements} -> {result}: {said}, {words[:80]}")
    assert wrong == []


def test_16_bits_are_multiplied_from_v73_on() -> None:
    a, b = real(1, 2, 3, 8), real(1, 2, 5, 8)
    case, elements = Case(qnn.MatMulOp, (a, b), (1, 2, 3, 5), TURNS), ("ui16", "ui16")
    with Library(SM8450) as old, Library(SM8650) as new:
        assert "expected >= 73" in asked(old, case, elements, "ui16")
        assert asked(new, case, elements, "ui16") == ""


@pytest.mark.parametrize("gain", ["ui8", "ui16"])
def test_gains_of_16_bits_are_for_v73_on(gain: str) -> None:
    given = (real(64, 32), real(32), None)
    options = {"epsilon": 1e-5, "axes": [1]}
    case = Case(qnn.LayerNormOp, given, (64, 32), options, frozenset({1}))
    with Library(SM8450) as old, Library(SM8650) as new:
        assert (asked(old, case, ("ui16", gain, ""), "ui16") == "") == (gain == "ui8")
        assert asked(new, case, ("ui16", gain, ""), "ui16") == ""


def refused_on_purpose(case: Case, elements: tuple[str, ...]) -> bool:
    """The validator takes ui16 times i16, which HTP cannot prepare, and wrong logarithms."""
    faults = ((qnn.MatMulOp, ("ui16", "i16")), (qnn.ElementWiseLogOp, ("ui16",)))
    return (case.op, elements) in faults


def allowed(case: Case, elements: tuple[str, ...], result: str) -> bool:
    """Whether the op's verifier takes the types."""
    function, _ = function_of("f", case, elements, result, WeightStore())
    op = next(op for op in function.body.block.ops if isinstance(op, case.op))
    try:
        op.verify_()
    except VerifyException:
        return False
    return True


def asked(library: Library, case: Case, elements: tuple[str, ...], result: str) -> str:
    """Why the library does not take the op; empty where it does."""
    store = WeightStore()
    function, _ = function_of("f", case, elements, result, store)
    graph = graph_of(function, store)
    node = next(n for n in graph.nodes if n.operator == case.op.operator())
    names = (*node.inputs, *node.outputs)
    return library.reason(node, {name: graph.tensors[name] for name in names})


def test_whole_numbers_are_added_and_gathered() -> None:
    numbers = np.array([[2, 0]], np.int32)
    with Library(SM8650) as library:
        add = Case(qnn.ElementWiseAddOp, (numbers, numbers), (1, 2))
        assert asked(library, add, ("i32", "i32"), "i32") == ""
        gather = Case(qnn.GatherOp, (real(5, 4), numbers), (1, 2, 4), {"axis": 0})
        assert asked(library, gather, ("f16", "i32"), "f16") == ""
