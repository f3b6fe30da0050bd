"""A pass that moves work from one graph to another is held to what the pipeline gives.

The truth is what each planted pass is known to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.parser import Parser
from xdsl.passes import ModulePass

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.mllm import EdgeAttr, UnaryKind
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import observe, run_passes
from mllm_compiler.passes.graphs import (
    add_argument,
    add_results,
    block_of,
    erase_arguments,
    graphs,
    pipeline_of,
    return_of,
)
from mllm_compiler.validate import Case, Validator
from mllm_compiler.validate.cases import LARGE
from mllm_compiler.validate.edges import makers_of
from mllm_compiler.weights import WeightStore

ROWS = 'tensor<?x8xf32, #mllm.dims<"rows", "8">>'
TOKENS = 'tensor<?x8xf32, #mllm.dims<"a_token", "8">>'
TEXT = f"""
func.func @sees(%p: {ROWS} {{mllm.name = "p"}}) -> ({ROWS} {{mllm.name = "x"}}) {{
  %x = mllm.unary tanh %p : ({ROWS}) -> {ROWS}
  func.return %x : {ROWS}
}}
func.func @says(%t: {TOKENS} {{mllm.name = "t"}}, %x: {ROWS} {{mllm.name = "x"}})
    -> (tensor<8xf32> {{mllm.name = "y"}}) {{
  %e = mllm.unary exp %x : ({ROWS}) -> {ROWS} loc("exponential")
  %s = mllm.reduce sum %e {{axes = array<i64: 0>, keepdims = false}} : ({ROWS}) -> tensor<8xf32>
    loc("sum")
  %u = mllm.reduce sum %t {{axes = array<i64: 0>, keepdims = false}} : ({TOKENS}) -> tensor<8xf32>
  %y = mllm.binary add %s, %u : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}}
mllm.pipeline @p {{edges = [#mllm.edge<"says" "x" from "sees" "x">], caches = [], bounds = []}}
"""


@dataclass(frozen=True)
class Move(ModulePass):
    """Lets the first graph take the exponential that the second one takes of its result.

    Attributes:
        kind: What it takes instead.
        edge: Whether the pipeline says where it comes from.
    """

    name = "move"
    kind: UnaryKind = UnaryKind.EXP
    edge: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        sees, says = graphs(op)
        end, old = return_of(sees), block_of(says).first_op
        assert old is not None
        made = mllm.UnaryOp(self.kind, end.operands[0])
        block_of(sees).insert_op_before(made, end)
        add_results(sees, {"moved": made.result})
        old.results[0].replace_all_uses_with(add_argument(says, "moved", made.result.type))
        old.detach()
        old.erase()
        erase_arguments(says, {"x"})
        edges = [EdgeAttr.of("says", "moved", "sees", "moved")] if self.edge else []
        pipeline_of(op).properties["edges"] = ArrayAttr(edges)


@dataclass(frozen=True)
class Turn(ModulePass):
    """Writes a sum the other way around, which moves no inputs."""

    name = "turn"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        (found,) = (o for o in op.walk() if isinstance(o, mllm.BinaryOp))
        found.operands = found.operands[::-1]


def parse() -> ModuleOp:
    return Parser(make_context(), TEXT).parse_module()


def validated(*passes: ModulePass) -> Validator:
    module = parse()
    validator = Validator(WeightStore(), dict.fromkeys((this.name for this in passes), 0.0))
    observe(0, "import", 0.0, module, [validator])
    run_passes(module, passes, make_context(), [validator])
    return validator


def test_what_moves_rightly_is_the_same_bit_for_bit() -> None:
    """In both graphs, of each case; a pass behind it runs on what was carried."""
    cases = ["ordinary", "length 1", "longest", "denormal", "large"]
    proofs = validated(Move(), Turn()).proofs
    assert (proofs["move"].error, proofs["move"].runs) == (0.0, 2 * len(cases))
    assert (proofs["turn"].error, proofs["turn"].runs) == (0.0, len(cases))


def test_what_moves_wrongly_is_named() -> None:
    with pytest.raises(CompileError) as caught:
        validated(Move(kind=UnaryKind.COSH))
    error = caught.value
    assert (error.code, error.exit_code, error.location) == ("MLC-P001", 3, "says")
    assert "'move' changed 'y' by" in error.message
    assert error.message.endswith("the first node that moved is sum")


def test_an_input_that_nothing_gives_is_a_fault_of_the_pass() -> None:
    with pytest.raises(CompileError) as caught:
        validated(Move(edge=False))
    assert caught.value.code == "MLC-P001"
    assert "'move' left what cannot be run" in caught.value.message
    assert "these inputs are missing: moved" in caught.value.message


def test_numbers_are_as_large_as_the_case_says() -> None:
    module = parse()
    _, says = graphs(module)
    inputs = {"t": np.ones((2, 8), np.float32), "x": np.ones((5, 8), np.float32)}
    plain, large = (
        makers_of(module, says, Case(name, inputs), {})["sees"].inputs["p"]
        for name in ("ordinary", "large")
    )
    np.testing.assert_allclose(large, plain * LARGE)


@pytest.mark.parametrize(("rows", "taken"), [(3, True), (5, False)])
def test_what_runs_before_gives_the_shapes_of_a_case(rows: int, taken: bool) -> None:
    """A known case is taken where it fits; else inputs are made that do."""
    module = parse()
    _, says = graphs(module)
    case = Case("one", {"t": np.ones((2, 8), np.float32), "x": np.ones((rows, 8), np.float32)})
    known = Case("one", {"p": np.full((3, 8), 7, np.float32)})
    found = makers_of(module, says, case, {"sees": [known]})["sees"]
    assert found.inputs["p"].shape == (rows, 8)
    assert (found is known) is taken
