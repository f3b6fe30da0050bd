"""`--validate` names the pass, the graph and the result that moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.passes import ModulePass

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import BinaryOp, BoundAttr, PipelineOp
from mllm_compiler.errors import CompileError
from mllm_compiler.flops import lifted_share
from mllm_compiler.pass_run import count_ops, observe, run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.validate import Proof, Validator, seeded_inputs
from mllm_compiler.validate.compare import exact_error, relative_error
from mllm_compiler.validate.sizes import symbol_sizes
from mllm_compiler.weights import WeightStore

TEXT = """
func.func @doubles(%x: tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "x"})
    -> (tensor<?x8xf32, #mllm.dims<"tokens", "8">> {mllm.name = "y"}) {
  %y = mllm.binary add %x, %x : (tensor<?x8xf32, #mllm.dims<"tokens", "8">>,
       tensor<?x8xf32, #mllm.dims<"tokens", "8">>) -> tensor<?x8xf32, #mllm.dims<"tokens", "8">>
  func.return %y : tensor<?x8xf32, #mllm.dims<"tokens", "8">>
}
"""


@dataclass(frozen=True)
class Keep(ModulePass):
    """Does nothing."""

    name = "keep"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        return


def replace_addition(module: ModuleOp, kind: str) -> None:
    other = parse(TEXT.replace("mllm.binary add", f"mllm.binary {kind}"))
    (ours,), (theirs,) = (
        [found for found in each.walk() if isinstance(found, BinaryOp)] for each in (module, other)
    )
    ours.properties["kind"] = theirs.properties["kind"]


@dataclass(frozen=True)
class AddToMul(ModulePass):
    """Turns additions into products, wrongly."""

    name = "add-to-mul"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        replace_addition(op, "mul")


@dataclass(frozen=True)
class Overflow(ModulePass):
    """Turns additions into powers, which large numbers do not have."""

    name = "overflow"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        replace_addition(op, "pow")


def parse(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def validated(*passes: ModulePass, tolerance: float = 0.0) -> Validator:
    module = parse(TEXT)
    validator = Validator(WeightStore(), {this.name: tolerance for this in passes})
    observe(0, "import", 0.0, module, [validator])
    run_passes(module, passes, make_context(), [validator])
    return validator


def test_a_pass_that_keeps_everything_passes() -> None:
    proofs = validated(Keep()).proofs
    assert {name: proof.error for name, proof in proofs.items()} == {"import": 0.0, "keep": 0.0}


def test_a_pass_that_moves_a_result_is_named() -> None:
    with pytest.raises(CompileError) as caught:
        validated(Keep(), AddToMul())
    error = caught.value
    assert (error.code, error.exit_code, error.location) == ("MLC-P001", 3, "doubles")
    assert "'add-to-mul' changed 'y' by" in error.message


def test_a_pass_that_may_change_numbers_may_not_lose_them() -> None:
    with pytest.raises(CompileError) as caught:
        validated(Keep(), Overflow(), tolerance=np.inf)
    assert caught.value.code == "MLC-P001"
    assert "'overflow' changed 'y' by inf" in caught.value.message
    assert "neither shapes nor whether they are finite" in caught.value.message


def test_a_tolerance_is_a_promise_and_no_more() -> None:
    proof = validated(AddToMul(), tolerance=1e5).proofs["add-to-mul"]
    assert 0.1 < proof.error < proof.promised
    assert (proof.graph, proof.result, proof.case) == ("doubles", "y", "large")
    assert proof.runs == len(["ordinary", "length 1", "longest", "denormal", "large"])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda x: x, 0.0),
        (lambda x: x * 1.5, 0.5),
        (lambda x: x[:1], np.inf),
        (lambda x: np.where(x == 2, np.nan, x), np.inf),
    ],
)
def test_the_error_is_relative_to_the_largest_value(
    change: Callable[[np.ndarray], np.ndarray], error: float
) -> None:
    expected = np.array([[1.0, 2.0], [-2.0, 0.5]], np.float32)
    assert relative_error(change(expected), expected) == pytest.approx(error)


def test_infinities_of_masks_compare() -> None:
    mask = np.array([0.0, -np.inf], np.float32)
    assert relative_error(mask, mask) == 0.0
    assert relative_error(-mask, mask) == np.inf
    assert relative_error(np.array([0.0, np.nan], np.float32), mask) == np.inf
    assert relative_error(np.array([]), np.array([])) == 0.0


def test_an_exact_pass_keeps_every_bit() -> None:
    zero = np.array([0.0, np.nan], np.float32)
    assert exact_error(zero, zero) == 0.0
    assert exact_error(-zero, zero) > 0
    assert exact_error(zero.astype(np.float64), zero) == np.inf
    assert exact_error(np.array([1, 2]), np.array([1, 3])) == pytest.approx(1 / 3)


def test_what_is_below_the_normal_numbers_is_not_asked_for() -> None:
    expected = np.array([1e-40], np.float32)
    assert relative_error(expected * 2, expected) < 0.01
    assert relative_error(expected + np.float32(1e-30), expected) > 1


def bounded(**largest: int) -> PipelineOp:
    return PipelineOp("p", bounds=[BoundAttr.of(symbol, n) for symbol, n in largest.items()])


def test_sizes_respect_bounds_and_totals() -> None:
    names = {"batch", "past_sequence_length", "sequence_length", "total_sequence_length"}
    sizes = symbol_sizes(names, {"sequence_length": 2}, {"past_sequence_length": 9})
    assert sizes["batch"] == 1
    assert sizes["sequence_length"] == 2
    assert sizes["past_sequence_length"] == 9
    assert sizes["total_sequence_length"] == sizes["past_sequence_length"] + 2


def test_operations_are_counted_and_lifted() -> None:
    module = parse(TEXT)
    assert count_ops(module) == {"mllm.binary": 1}
    assert lifted_share(module) == 1.0
    onnx = TEXT.replace("mllm.binary add %x, %x", "onnx.Add %x, %x")
    onnx = onnx.replace(
        '-> tensor<?x8xf32, #mllm.dims<"tokens", "8">>\n  func',
        '-> (tensor<?x8xf32, #mllm.dims<"tokens", "8">>)\n  func',
    )
    assert lifted_share(parse(onnx)) == 0.0


def test_sizes_grow_until_a_window_fits() -> None:
    text = """
    func.func @hears(%x: tensor<1x1x?xf32, #mllm.dims<"1", "1", "samples">> {mllm.name = "x"},
                     %w: tensor<2x1x10xf32> {mllm.name = "w"}) -> (tensor<?x?x?xf32>) {
      %y = onnx.Conv %x, %w {strides = array<i64: 5>, group = 1 : i64}
        : (tensor<1x1x?xf32, #mllm.dims<"1", "1", "samples">>, tensor<2x1x10xf32>)
        -> (tensor<?x?x?xf32>)
      func.return %y : tensor<?x?x?xf32>
    }
    """
    graph = graphs(parse(text))[0]
    assert seeded_inputs(graph, bounded(samples=100))["x"].shape == (1, 1, 12)
    assert seeded_inputs(graph, bounded(samples=7))["x"].shape == (1, 1, 7)


CANCELS = """
func.func @cancels(%x: tensor<8xf32> {mllm.name = "x"}) -> (tensor<8xf32> {mllm.name = "y"}) {
  %large = mllm.constant dense<LARGE> : tensor<f32>
  %factor = mllm.constant dense<FACTOR> : tensor<f32>
  %0 = mllm.binary add %x, %large : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = mllm.binary sub %0, %large : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %y = mllm.binary mul %1, %factor : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
"""


@dataclass(frozen=True)
class Enlarge(ModulePass):
    """Adds and takes away a larger number, and multiplies the result."""

    name = "enlarge"
    factor: float = 1.0
    large: float = 30000.0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        other = parse(cancelling(self.large, self.factor))
        for graph in list(op.body.block.ops):
            graph.detach()
            graph.erase()
        op.body.block.add_ops([graph.clone() for graph in other.body.block.ops])


def cancelling(large: float, factor: float = 1.0) -> str:
    return CANCELS.replace("LARGE", str(large)).replace("FACTOR", str(factor))


def enlarged(factor: float, tolerance: float, large: float = 10000.0) -> Proof:
    module = parse(cancelling(large))
    validator = Validator(WeightStore(), {"enlarge": tolerance})
    observe(0, "import", 0.0, module, [validator])
    run_passes(module, [Enlarge(factor, 3 * large)], make_context(), [validator])
    return validator.proofs["enlarge"]


def test_what_roundings_explain_is_no_fault_of_a_pass() -> None:
    """Of x, x + 10000 keeps a thousandth, and x + 30000 two: so far the same function moves."""
    proof = enlarged(1.0, 2e-5)
    assert 2e-5 < proof.error < proof.noise < 0.1


@pytest.mark.parametrize(("factor", "tolerance"), [(1.5, 2e-5), (1.0, 0.0)])
def test_what_roundings_do_not_explain_is_one(factor: float, tolerance: float) -> None:
    """A wrong factor; and another sum, of a pass that promises every bit."""
    with pytest.raises(CompileError) as caught:
        enlarged(factor, tolerance)
    assert caught.value.code == "MLC-P001"


def test_roundings_that_leave_nothing_of_a_result_excuse_nothing() -> None:
    """Of x, x + 1000000 keeps a tenth: whatever a pass does to it looks like roundings."""
    with pytest.raises(CompileError, match="it promises at most 2e-05"):
        enlarged(1.0, 2e-5, large=1e6)
