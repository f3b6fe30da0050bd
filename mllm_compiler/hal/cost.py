"""What an op costs: floating-point operations and bytes, at given values of the symbols.

A contraction counts two operations for each product, everything else that computes one for each
element of its result; moving data counts none. Bytes are those of operands and results, but of a
cache that attention appends to, only new tokens are written, and a product with a weight of codes
reads the codes: kernels unpack them a tile at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.types import bits_of, element_of, ranked

Env = Mapping[str, int]


@dataclass(frozen=True)
class Cost:
    """The cost of an op.

    Attributes:
        flops: Floating-point operations.
        read: Bytes of its operands.
        written: Bytes of its results.
        weights: Those of the bytes read that are weights and constants.
    """

    flops: int
    read: int
    written: int
    weights: int = 0

    @property
    def bytes(self) -> int:
        """What is read and written."""
        return self.read + self.written


def cost_of(op: Operation, env: Env) -> Cost:
    """The cost of an op with the symbols of `env`; a data-dependent dimension counts as 1."""
    if isinstance(op, mllm.DequantizeOp) and _is_unpacked_by_readers(op):
        return Cost(0, 0, 0)
    elements = sum(_elements(r, env) for r in op.results)
    flops = FLOPS.get(type(op), _none)(op, elements, env)
    operands = [part for v in op.operands for part in _parts(op, v)]
    weights = [v for v in operands if is_stored(v)]
    read, written, kept = (
        sum(nbytes_of(v, env) for v in values) for values in (operands, op.results, weights)
    )
    if isinstance(op, mllm.CachedAttentionOp):
        written -= nbytes_of(op.past_k, env) + nbytes_of(op.past_v, env)
    return Cost(flops, read, written, kept)


def is_stored(value: SSAValue) -> bool:
    """Whether a value is a weight or a constant."""
    return isinstance(value.owner, mllm.WeightOp | mllm.ConstantOp)


def _is_unpacked_by_readers(op: mllm.DequantizeOp) -> bool:
    """Whether an op says what stored codes mean, and all that read it are products."""
    products = all(isinstance(use.operation, PRODUCTS) for use in op.result.uses)
    return products and all(is_stored(v) for v in op.operands)


def _parts(op: Operation, value: SSAValue) -> Sequence[SSAValue]:
    """What is read of an operand: codes, scales and zero points of a weight that has them."""
    maker = value.owner
    if isinstance(op, PRODUCTS) and isinstance(maker, mllm.DequantizeOp):
        return maker.operands if _is_unpacked_by_readers(maker) else [value]
    return [value]


def _none(op: Operation, elements: int, env: Env) -> int:
    return 0


def _one(op: Operation, elements: int, env: Env) -> int:
    return elements


def _input(op: Operation, elements: int, env: Env) -> int:
    return _elements(op.operands[0], env)


def _products(op: Operation, elements: int, env: Env) -> int:
    """Elements times the inner extent, which is the last one of the first operand."""
    return 2 * elements * _shape(op.operands[0], env)[-1]


def _qkv(op: Operation, elements: int, env: Env) -> int:
    assert isinstance(op, mllm.QkvOp)
    turned = sum(_elements(v, env) for v in (op.q, op.k)) if op.positions is not None else 0
    return _products(op, elements, env) + 6 * turned


def _residual_norm(op: Operation, elements: int, env: Env) -> int:
    assert isinstance(op, mllm.ResidualNormOp)
    return elements // 2 * (1 + NORMS[op.kind.data])


def _norm_feed_forward(op: Operation, elements: int, env: Env) -> int:
    assert isinstance(op, mllm.NormGatedMlpOp)
    norm = NORMS[op.kind.data] * _elements(op.x, env)
    return norm + _feed_forward(op, elements, env)


def _cached_attention(op: Operation, elements: int, env: Env) -> int:
    assert isinstance(op, mllm.CachedAttentionOp)
    return 4 * _elements(op.result, env) * op.keys.evaluate(env)


def _filters(op: Operation, elements: int, env: Env) -> int:
    return 2 * elements * prod(_shape(op.operands[1], env)[1:])


def _feed_forward(op: Operation, elements: int, env: Env) -> int:
    tokens = elements // max(1, _shape(op.results[0], env)[-1])
    shapes = [_shape(v, env) for v in op.operands[1:]]
    matrices = [s for s in shapes if len(s) == 2]
    return tokens * (2 * sum(map(prod, matrices)) + 2 * matrices[0][0])


def _attention(op: Operation, elements: int, env: Env) -> int:
    keys = _shape(op.operands[1], env)
    count = keys[1] if len(keys) == 3 else keys[2]
    return 4 * elements * count


def _states(op: Operation, elements: int, env: Env) -> int:
    """Of each token, channel and state: three products, a sum, an exponential and a reading."""
    return 8 * _elements(op.operands[0], env) * _shape(op.operands[2], env)[-1]


def _window(op: Operation, elements: int, env: Env) -> int:
    assert isinstance(op, mllm.PoolOp)
    return elements * prod(op.window[0])


PRODUCTS = (
    mllm.LinearOp,
    mllm.ActivatedLinearOp,
    mllm.MlpOp,
    mllm.GatedMlpOp,
    mllm.NormGatedMlpOp,
    mllm.QkvOp,
)
"""Ops that may read a weight as codes."""

NORMS = {mllm.NormKind.LAYER: 8, mllm.NormKind.RMS: 4}
"""The operations of a norm for each element."""

FLOPS: dict[type[Operation], Callable[[Operation, int, Env], int]] = {
    mllm.UnaryOp: _one,
    mllm.BinaryOp: _one,
    mllm.CompareOp: _one,
    mllm.LinearOp: _products,
    mllm.MatmulOp: _products,
    mllm.MlpOp: _feed_forward,
    mllm.GatedMlpOp: _feed_forward,
    mllm.ActivatedLinearOp: lambda op, n, env: n + _products(op, n, env),
    mllm.NormGatedMlpOp: _norm_feed_forward,
    mllm.LayerNormOp: lambda op, n, env: NORMS[mllm.NormKind.LAYER] * n,
    mllm.RmsNormOp: lambda op, n, env: NORMS[mllm.NormKind.RMS] * n,
    mllm.ResidualNormOp: _residual_norm,
    mllm.SoftmaxOp: lambda op, n, env: 5 * n,
    mllm.ReduceOp: _input,
    mllm.CumsumOp: _one,
    mllm.SelectiveScanOp: _states,
    mllm.RopeOp: lambda op, n, env: 6 * n,
    mllm.QkvOp: _qkv,
    mllm.AlibiOp: _one,
    mllm.AttentionOp: _attention,
    mllm.CachedAttentionOp: _cached_attention,
    mllm.CrossAttnOp: _attention,
    mllm.TokenImportanceOp: _products,
    mllm.PatchEmbedOp: _filters,
    mllm.ConvOp: _filters,
    mllm.PoolOp: _window,
    mllm.ResizeOp: lambda op, n, env: 8 * n,
    mllm.QuantizeOp: _one,
    mllm.DequantizeOp: _one,
    mllm.DynamicQuantizeOp: _one,
    mllm.QuantizedLinearOp: _products,
    mllm.IntegerMatmulOp: _products,
    mllm.IntegerConvOp: _filters,
}
"""The operations of each op that computes."""


def _shape(value: SSAValue, env: Env) -> tuple[int, ...]:
    type = ranked(value)
    if type is None:
        return ()
    return tuple(1 if d.unknown else d.evaluate(env) for d in dims_of(type))


def _elements(value: SSAValue, env: Env) -> int:
    return prod(_shape(value, env))


def nbytes_of(value: SSAValue, env: Env) -> int:
    """The bytes of a value, packed; 0 of what has no size."""
    if ranked(value) is None:
        return 0
    try:
        bits = bits_of(element_of(value))
    except TypeError:
        return 0
    return -(-_elements(value, env) * bits // 8)
