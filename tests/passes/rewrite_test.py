"""The driver of rewrites: by class, to a fixpoint, with locations, without leftovers."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import BinaryKind, BinaryOp, UnaryKind, UnaryOp
from mllm_compiler.passes.rewrite import On, rewrite, substitute

TEXT = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mllm.unary abs %x : (tensor<4xf32>) -> tensor<4xf32> loc("/inner")
  %1 = mllm.unary neg %0 : (tensor<4xf32>) -> tensor<4xf32> loc("/middle")
  %2 = mllm.unary neg %1 : (tensor<4xf32>) -> tensor<4xf32> loc("/outer")
  %3 = mllm.unary exp %2 : (tensor<4xf32>) -> tensor<4xf32> loc("/last")
  func.return %3 : tensor<4xf32>
}
"""


def parsed() -> ModuleOp:
    return Parser(make_context(), TEXT).parse_module()


def names(module: ModuleOp) -> list[str]:
    return [f"{op.kind.data}" for op in module.walk() if isinstance(op, UnaryOp | BinaryOp)]


def _cancel(op: UnaryOp, rewriter: PatternRewriter) -> None:
    inner = op.x.owner
    if isinstance(inner, UnaryOp) and {op.kind.data, inner.kind.data} == {UnaryKind.NEG}:
        rewriter.replace(op, [], [inner.x])


def test_what_a_rewrite_leaves_without_a_user_is_erased() -> None:
    module = parsed()
    assert rewrite(module, On(UnaryOp, _cancel))
    assert names(module) == ["abs", "exp"]
    assert not rewrite(module, On(UnaryOp, _cancel))


def test_patterns_see_only_ops_of_their_class() -> None:
    seen: list[str] = []
    rewrite(parsed(), On(BinaryOp, lambda op, rewriter: seen.append(op.name)))
    assert seen == []


def _doubled(op: UnaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is UnaryKind.EXP:
        first = UnaryOp(UnaryKind.TANH, op.x)
        substitute(rewriter, op, first, BinaryOp(BinaryKind.ADD, first.result, first.result))


def test_inserted_ops_take_the_location_of_what_was_matched() -> None:
    module = parsed()
    rewrite(module, On(UnaryOp, _doubled))
    made = [op for op in module.walk() if isinstance(op, UnaryOp | BinaryOp)][-2:]
    assert [op.name for op in made] == ["mllm.unary", "mllm.binary"]
    assert {location_name(op) for op in made} == {"/last"}


class Absolute(RewritePattern):
    """A plain pattern of xDSL, which sees every op."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if isinstance(op, UnaryOp) and op.kind.data is UnaryKind.ABS:
            rewriter.replace(op, UnaryOp(UnaryKind.RELU, op.x))


def test_plain_patterns_run_too_and_users_are_visited_again() -> None:
    module = parsed()
    assert rewrite(module, Absolute(), On(UnaryOp, _cancel))
    assert names(module) == ["relu", "exp"]


def test_a_result_keeps_the_type_that_its_users_know() -> None:
    text = """
    func.func @f(%x: tensor<?xf32, #mllm.dims<"total">>)
        -> tensor<?xf32, #mllm.dims<"past + seq">> {
      %0 = mllm.unary exp %x
        : (tensor<?xf32, #mllm.dims<"total">>) -> tensor<?xf32, #mllm.dims<"past + seq">>
      func.return %0 : tensor<?xf32, #mllm.dims<"past + seq">>
    }
    """
    module = Parser(make_context(), text).parse_module()
    rewrite(module, On(UnaryOp, _doubled))
    module.verify()
    assert 'tensor<?xf32, #mllm.dims<"past + seq">>\n' in str(module)
