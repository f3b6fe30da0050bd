"""`lift-selective-scan`: a scan of states that decay becomes `mllm.selective_scan`; tolerance 1e-5.

    %kept = mllm.unary exp (mllm.binary mul %step4, %a4) : ... -> tensor<1x64x5x8xf32>
    %added = mllm.binary mul (mllm.binary mul %step4, %b4), %x4 : ... -> tensor<1x64x5x8xf32>
    %last, %y = onnx.Scan %state, %kept, %added, %c {num_scan_inputs = 3 : i64, ...} body {
    ^bb0(%h: tensor<1x64x8xf32>, %k: tensor<1x64x8xf32>, %p: ..., %r: tensor<1x8xf32>):
      %0 = mllm.binary mul %k, %h : ... -> tensor<1x64x8xf32>
      %1 = mllm.binary add %0, %p : ... -> tensor<1x64x8xf32>
      %2 = mllm.matmul %1, (mllm.reshape %r) : ... -> tensor<1x64x1xf32>
      onnx.yield %1, (mllm.reshape %2) : tensor<1x64x8xf32>, tensor<1x64xf32>
    } : (...) -> (tensor<1x64x8xf32>, tensor<1x64x5xf32>)

becomes, where 5 tokens are scanned and around what brings tokens in front of channels,

    %y, %last = mllm.selective_scan %x, %step, %a, %b, %c, %state : (tensor<1x5x64xf32>, ...)
      -> (tensor<1x5x64xf32>, tensor<1x64x8xf32>)

so that nothing of the size of tokens times channels times states is ever kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    MatmulOp,
    ReshapeOp,
    SelectiveScanOp,
    TransposeOp,
    UnaryKind,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx import operators
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import binary, factors, made_by, peel, unary
from mllm_compiler.passes.rewrite import On, rewrite

SCAN = operators()["onnx.Scan"]
"""The class of the operator."""


@dataclass(frozen=True)
class Body:
    """Which arguments of a body are what: `h = kept h + added` and `read = h out`."""

    kept: int
    added: int
    out: int


def _body(block: Block) -> Body | None:
    """Reads a body of one state and three slices that yields the state and what is read of it."""
    end = block.last_op
    if end is None or len(end.operands) != 2 or len(block.args) != 4:
        return None
    arguments: list[SSAValue] = list(block.args)
    state, read = end.operands
    product = made_by(peel(read), MatmulOp)
    if product is None or product.a is not state:
        return None
    out = peel(product.b)
    for decayed, added in _both(state, BinaryKind.ADD):
        for held, kept in _both(decayed, BinaryKind.MUL):
            slices = (kept, added, out)
            if held is arguments[0] and set(slices) == set(arguments[1:]):
                return Body(*(arguments.index(v) for v in slices))
    return None


def _both(value: SSAValue, kind: BinaryKind) -> list[tuple[SSAValue, SSAValue]]:
    """The operands of a binary op in both orders."""
    pair = binary(value, kind)
    return [] if pair is None else [pair, (pair[1], pair[0])]


@dataclass
class _Builder:
    """Brings factors [B, D, N] with a token axis among them into the op's own layout."""

    axis: int
    made: list[Operation] = field(default_factory=list[Operation])

    def __call__(self, new: Operation) -> SSAValue:
        self.made.append(new)
        return new.results[0]

    @property
    def axes(self) -> tuple[int, int, int, int]:
        """The axes of batch, tokens, channels and states."""
        batch, channels, states = (a for a in range(4) if a != self.axis)
        return batch, self.axis, channels, states

    def lacks(self, value: SSAValue) -> tuple[bool, bool, bool]:
        """Whether a factor has no channels, no tokens, no states."""
        _, tokens, channels, states = self.axes
        dims = shape_of(value)
        one = [dims[a].as_int() == 1 for a in (channels, tokens, states)]
        return one[0], one[1], one[2]

    def only(self, value: SSAValue, *order: int) -> SSAValue:
        """The value with these of its axes, in this order; the others are 1."""
        kept = sorted(order)
        flat = self(ReshapeOp(value, [shape_of(value)[a] for a in kept]))
        return self(TransposeOp(flat, [kept.index(a) for a in order]))


def _scan(op: OnnxOp, rewriter: PatternRewriter) -> None:
    body = _body(op.regions[0].block)
    backward = _integers(op, "scan_input_directions"), _integers(op, "scan_output_directions")
    if body is None or any(d for given in backward for d in given):
        return
    slices = [op.operands[at] for at in (body.kept, body.added, body.out)]
    if [rank_of(v) for v in slices] != [4, 4, 3]:
        return
    given = _integers(op, "scan_input_axes") or [0, 0, 0]
    places = [
        normal_axis(given[at - 1], rank_of(v))
        for at, v in zip((body.kept, body.added, body.out), slices, strict=True)
    ]
    build = _Builder(places[0])
    found = _factors(build, slices[0], slices[1])
    if places[0] != places[1] or found is None:
        return
    batch, tokens, channels, states = build.axes
    rows, columns = (axis for axis in range(3) if axis != places[2])
    made = SelectiveScanOp(
        build.only(found.x, batch, tokens, channels),
        build.only(found.step, batch, tokens, channels),
        build.only(found.a, channels, states),
        build.only(found.b, batch, tokens, states),
        build(TransposeOp(slices[2], [rows, places[2], columns])),
        op.operands[0],
    )
    order = [0, 2]
    order.insert(normal_axis((_integers(op, "scan_output_axes") or [0])[0], 3), 1)
    read = TransposeOp(made.y, order)
    if [made.last.type, read.result.type] == [r.type for r in op.results]:
        rewriter.replace(op, [*build.made, made, read], [made.last, read.result])


def _integers(op: OnnxOp, name: str) -> list[int]:
    given = op.attribute(name)
    return [int(v) for v in given if isinstance(v, int)] if isinstance(given, list | tuple) else []


@dataclass(frozen=True)
class Factors:
    """What decay and input are products of: `exp(step a)` and `step b x`."""

    step: SSAValue
    a: SSAValue
    b: SSAValue
    x: SSAValue


def _factors(build: _Builder, kept: SSAValue, added: SSAValue) -> Factors | None:
    """The factors, told apart by the axes that they lack; the step is in both products."""
    exponent = unary(kept, UnaryKind.EXP)
    if exponent is None:
        return None
    (scale, decay), (factor, inputs) = factors(exponent), factors(added)
    if scale != 1.0 or factor != 1.0 or any(rank_of(v) != 4 for v in (*decay, *inputs)):
        return None
    rates = [v for v in decay if build.lacks(v) == (False, True, False)]
    steps = [v for v in decay if build.lacks(v) == (False, False, True)]
    rows = [v for v in inputs if build.lacks(v) == (True, False, False)]
    channels = [v for v in inputs if build.lacks(v) == (False, False, True)]
    counts = [len(v) for v in (decay, rates, steps, inputs, rows, channels)]
    if counts != [2, 1, 1, 3, 1, 2]:
        return None
    streams = [v for v in channels if peel(v) is not peel(steps[0])]
    if len(streams) != 1 or shape_of(rates[0])[build.axes[0]].as_int() != 1:
        return None
    return Factors(steps[0], rates[0], rows[0], streams[0])


@dataclass(frozen=True)
class LiftSelectiveScan(ModulePass):
    """Recognises selective state spaces."""

    name = "lift-selective-scan"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(SCAN, _scan), *SHAPE_PATTERNS)
