"""How many floating-point operations an op needs, as a dim expression, and which share is lifted.

A multiplication and an addition count one each, and so does any other function of one element; ops
that move elements, and integer arithmetic, count none. A dim that only data decide counts as 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import is_float, ranked, shape_of
from mllm_compiler.passes.graphs import graphs, pipeline_of, symbol_bound

OpT = TypeVar("OpT", bound=Operation)

Count = Callable[[Operation], Dim]


def elements(value: SSAValue) -> Dim:
    """The number of elements of a tensor."""
    total = Dim.const(1)
    for dim in shape_of(value) if ranked(value) is not None else ():
        total = total * (Dim.const(1) if dim.unknown else dim)
    return total


def is_real(value: SSAValue) -> bool:
    """Whether a value is a tensor of floating-point numbers."""
    kind = ranked(value)
    return kind is not None and is_float(kind.element_type)


def _each(times: int) -> Count:
    """So many operations an element of the result, where the operands are real."""

    def count(op: Operation) -> Dim:
        real = any(is_real(v) for v in op.operands)
        return elements(op.results[0]) * times if real else Dim()

    return count


def _linear(op: mllm.LinearOp) -> Dim:
    out, depth = elements(op.result), shape_of(op.weight)[1]
    return out * depth * 2 + (out if op.bias is not None else 0)


def _matmul(op: mllm.MatmulOp) -> Dim:
    return elements(op.result) * shape_of(op.a)[-1] * 2 if is_real(op.a) else Dim()


def _gated_mlp(op: mllm.GatedMlpOp) -> Dim:
    width, depth = shape_of(op.gate)
    rows = elements(op.x) // depth
    return rows * width * (depth * 4 + 2) + elements(op.result) * width * 2


def _mlp(op: mllm.MlpOp) -> Dim:
    width, depth = shape_of(op.w1)
    rows = elements(op.x) // depth
    return rows * width * (depth * 2 + 2) + elements(op.result) * (width * 2 + 1)


def _attention(op: mllm.AttentionInterface) -> Dim:
    batch, queries, width = shape_of(op.q)
    scores = batch * queries * op.keys
    values = elements(op.result) * op.keys * 2
    # The scale, a mask and the softmax's difference, exponential, sum and quotient.
    return scores * width * 2 + values + scores * op.head_count * 6


def _rope(op: mllm.RopeOp) -> Dim:
    angles = elements(op.positions) * shape_of(op.inv_freq)[0]
    return elements(op.x) * 3 + angles * 3


def _reduce(op: mllm.ReduceOp) -> Dim:
    return elements(op.x) if is_real(op.x) else Dim()


def _conv(op: mllm.ConvOp) -> Dim:
    window = elements(op.weight) // shape_of(op.weight)[0]
    return elements(op.result) * (window * 2 + (1 if op.bias is not None else 0))


def _patch_embed(op: mllm.PatchEmbedOp) -> Dim:
    window = elements(op.weight) // shape_of(op.weight)[0]
    return elements(op.result) * (window * 2 + 2)


def _pool(op: mllm.PoolOp) -> Dim:
    total = elements(op.result)
    for size in op.window[0]:
        total = total * size
    return total


def _token_importance(op: mllm.TokenImportanceOp) -> Dim:
    return elements(op.k) * 2 + elements(op.result) * op.heads.value.data * 6


def _none(op: Operation) -> Dim:
    return Dim()


def _of(kind: type[OpT], count: Callable[[OpT], Dim]) -> tuple[type[Operation], Count]:
    return kind, lambda op: count(cast(OpT, op))


COUNTS: dict[type[Operation], Count] = {
    **dict(
        [
            _of(mllm.LinearOp, _linear),
            _of(mllm.MatmulOp, _matmul),
            _of(mllm.GatedMlpOp, _gated_mlp),
            _of(mllm.MlpOp, _mlp),
            _of(mllm.AttentionOp, _attention),
            _of(mllm.CrossAttnOp, _attention),
            _of(mllm.RopeOp, _rope),
            _of(mllm.ReduceOp, _reduce),
            _of(mllm.ConvOp, _conv),
            _of(mllm.PatchEmbedOp, _patch_embed),
            _of(mllm.PoolOp, _pool),
            _of(mllm.TokenImportanceOp, _token_importance),
        ]
    ),
    mllm.UnaryOp: _each(1),
    mllm.BinaryOp: _each(1),
    mllm.CompareOp: _each(1),
    mllm.SelectOp: _none,
    mllm.CastOp: _none,
    mllm.SoftmaxOp: _each(4),
    mllm.LayerNormOp: _each(8),
    mllm.RmsNormOp: _each(5),
    mllm.AlibiOp: _each(2),
    mllm.ResizeOp: _each(4),
    mllm.QuantizeOp: _each(2),
    mllm.DequantizeOp: _each(2),
    mllm.RequantizeOp: _each(2),
}
"""Operations of each op class; classes that are not here move elements."""


def flops(op: Operation) -> Dim:
    """The floating-point operations of an op of the `mllm` dialect, or of an ONNX operator."""
    if isinstance(op, OnnxOp):
        return _onnx(op)
    return COUNTS.get(type(op), _none)(op)


def _onnx(op: OnnxOp) -> Dim:
    """The products of an operator that has any; else one an element of its real results."""
    results = [r for r in op.results if is_real(r)]
    total = sum((elements(r) for r in results), start=Dim())
    if not results or ranked(op.operands[0] if op.operands else results[0]) is None:
        return total
    if op.name in ("onnx.MatMul", "onnx.Gemm") and shape_of(op.operands[0]):
        return total * shape_of(op.operands[0])[-1] * 2
    if op.name in ("onnx.Conv", "onnx.ConvTranspose") and ranked(op.operands[1]) is not None:
        return total * (elements(op.operands[1]) // shape_of(op.operands[1])[0]) * 2
    return total


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """The floating-point operations of a module, at the bounds of its symbols.

    Attributes:
        lifted: Those of `mllm` ops.
        total: All of them.
        left: Those of each kind of other op.
    """

    lifted: int
    total: int
    left: Mapping[str, int]

    @property
    def share(self) -> float:
        """The share that is lifted, 1 where there are none at all."""
        return self.lifted / self.total if self.total else 1.0


def lifted_share(module: ModuleOp) -> Lifted:
    """Counts the operations of every graph of a module, and the lifted ones among them."""
    bounds = pipeline_of(module).bound_of
    lifted, left = 0, dict[str, int]()
    for graph in graphs(module):
        for op in graph.walk():
            count = _at_bounds(flops(op), bounds)
            if count and op.name.startswith("mllm."):
                lifted += count
            elif count:
                left[op.name] = left.get(op.name, 0) + count
    return Lifted(lifted=lifted, total=lifted + sum(left.values()), left=left)


def _at_bounds(dim: Dim, bounds: Mapping[str, int]) -> int:
    env = {name: symbol_bound(name, dict(bounds)) for name in dim.symbols()}
    return dim.evaluate(env)
