"""Passes that are right on ordinary inputs only are caught by an adversarial one, and named.

The truth is what each planted pass is known to do wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.mllm import BinaryKind, ReduceKind, UnaryKind
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import observe, run_passes
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.reference import run_function
from mllm_compiler.validate import Case, Validator, relative_error, seeded_inputs
from mllm_compiler.weights import WeightStore

TOLERANCE = 2e-5
ROWS = 'tensor<1x?x8xf32, #mllm.dims<"1", "tokens", "8">>'
KEPT = 'tensor<1x?xi64, #mllm.dims<"1", "tokens">>'

SOFTMAX = f"""
func.func @graph(%x: {ROWS} {{mllm.name = "x"}}) -> ({ROWS} {{mllm.name = "y"}}) {{
  %p = mllm.softmax %x {{axis = 2 : i64}} : ({ROWS}) -> {ROWS} loc("probabilities")
  %y = mllm.binary add %p, %p : ({ROWS}, {ROWS}) -> {ROWS} loc("sum")
  func.return %y : {ROWS}
}}
"""
NORM = f"""
func.func @graph(%x: {ROWS} {{mllm.name = "x"}}, %w: tensor<8xf32> {{mllm.name = "w"}})
    -> ({ROWS} {{mllm.name = "y"}}) {{
  %y = mllm.rms_norm %x, %w {{epsilon = 1.0e-6 : f64}} : ({ROWS}, tensor<8xf32>) -> {ROWS}
    loc("norm")
  func.return %y : {ROWS}
}}
"""
ATTENTION = f"""
func.func @graph(%x: {ROWS} {{mllm.name = "x"}}, %m: {KEPT} {{mllm.name = "attention_mask"}})
    -> ({ROWS} {{mllm.name = "y"}}) {{
  %y = mllm.attention %x, %x, %x key_mask(%m : {KEPT}) {{heads = 2 : i64, kv_heads = 2 : i64,
    scale = 0.5 : f64, causal = true, window = 16 : i64}}
    : ({ROWS}, {ROWS}, {ROWS}) -> {ROWS} loc("attend")
  func.return %y : {ROWS}
}}
"""


def exponentials(op: Operation) -> list[Operation]:
    """A softmax that does not subtract the largest score first."""
    assert isinstance(op, mllm.SoftmaxOp)
    powers = mllm.UnaryOp(UnaryKind.EXP, op.x)
    total = mllm.ReduceOp(ReduceKind.SUM, powers.result, [2], keepdims=True)
    return [powers, total, mllm.BinaryOp(BinaryKind.DIV, powers.result, total.result)]


def without_epsilon(op: Operation) -> list[Operation]:
    """A norm whose epsilon is so small that it vanishes."""
    assert isinstance(op, mllm.RmsNormOp)
    return [mllm.RmsNormOp(op.x, op.weight, epsilon=1e-60)]


def attention(op: Operation, *, mask: bool, window: int | None) -> list[Operation]:
    assert isinstance(op, mllm.AttentionOp)
    return [
        mllm.AttentionOp(
            op.q,
            op.k,
            op.v,
            heads=2,
            kv_heads=2,
            scale=0.5,
            causal=True,
            window=window,
            key_mask=op.key_mask if mask else None,
        )
    ]


def without_mask(op: Operation) -> list[Operation]:
    return attention(op, mask=False, window=16)


def without_window(op: Operation) -> list[Operation]:
    return attention(op, mask=True, window=None)


@dataclass(frozen=True)
class Planted(ModulePass):
    """Puts ops in the place of the one at the head of a graph."""

    name = "planted"
    make: Callable[[Operation], list[Operation]] = exponentials

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first = graphs(op)[0].body.block.first_op
        assert first is not None
        made = self.make(first)
        for each in made:
            each.location = first.location
        Rewriter.replace_op(first, made)


WRONG = {
    "softmax without its maximum": (SOFTMAX, exponentials, "large", "probabilities"),
    "norm without epsilon": (NORM, without_epsilon, "denormal", "norm"),
    "attention without its mask": (ATTENTION, without_mask, "mask", "attend"),
    "attention without its window": (ATTENTION, without_window, "longest", "attend"),
}


@pytest.mark.parametrize("name", WRONG)
def test_only_an_adversarial_input_catches_it(name: str) -> None:
    text, make, case, node = WRONG[name]
    module = parse(text)
    ordinary = seeded_inputs(graphs(module)[0], pipeline_of(module))
    before = run_function(module, "graph", ordinary, WeightStore())["y"]
    with pytest.raises(CompileError) as caught:
        prove(module, Planted(make))
    after = run_function(module, "graph", ordinary, WeightStore())["y"]
    assert relative_error(after, before) <= TOLERANCE
    error = caught.value
    assert (error.code, error.exit_code, error.location) == ("MLC-P001", 3, "graph")
    assert error.message.startswith("'planted' changed 'y' by ")
    assert f"on the input '{case}" in error.message
    assert error.message.endswith(f"the first node that moved is {node}")


@pytest.mark.parametrize("name", WRONG)
def test_the_same_op_again_is_no_change(name: str) -> None:
    validator = prove(parse(WRONG[name][0]), Planted(lambda op: [op.clone()]))
    assert validator.proofs["planted"].error == 0.0


def test_a_graph_that_cannot_be_run_any_more_is_a_fault_of_the_pass() -> None:
    def cut(op: Operation) -> list[Operation]:
        assert isinstance(op, mllm.SoftmaxOp)
        tokens = shape_of(op.x)[1]
        whole = mllm.ReshapeOp(op.x, (1, tokens * 8 // 32, 32))
        return [whole, mllm.ReshapeOp(whole.result, (1, tokens, 8))]

    with pytest.raises(CompileError) as caught:
        prove(parse(SOFTMAX), Planted(cut))
    assert "'planted' left what cannot be run on the input '" in caught.value.message


def test_the_samples_of_the_user_are_tried_first() -> None:
    module = parse(SOFTMAX)
    sample = Case("0001.npz", {"x": np.full((1, 2, 8), 1e3, np.float32)})
    validator = Validator(WeightStore(), {"planted": TOLERANCE}, {"graph": [sample]})
    observe(0, "import", 0.0, module, [validator])
    with pytest.raises(CompileError, match=r"on the input '0001\.npz'"):
        run_passes(module, [Planted(exponentials)], make_context(), [validator])


def parse(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def prove(module: ModuleOp, planted: Planted) -> Validator:
    validator = Validator(WeightStore(), {"planted": TOLERANCE})
    observe(0, "import", 0.0, module, [validator])
    run_passes(module, [planted], make_context(), [validator])
    return validator
