"""`rotate-weights`: a decoder's residual stream is turned; exact but rounding.

    %x = mllm.embedding %e, %ids                      %e R
    %n = mllm.rms_norm %x, %g                         1
    %y = mllm.linear %n, %w                           (%w * %g) R
    %z = mllm.linear %v, %o                           R^T %o
    %s = mllm.binary add %x, %z

take what stands on the right, so that all of the stream is turned: x becomes x R, and the root mean
square of a row is what it was. A Hadamard matrix spreads the few loud channels over all, which four
bits take better (Ashkboos et al. 2024). A head that was the embedding too becomes a weight of its
own. Graphs whose stream starts at an input, or is read by anything else, stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import BinaryKind, BinaryOp, EmbeddingOp, LinearOp, RmsNormOp
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.folded_weights import numbers_of, put_numbers
from mllm_compiler.passes.graphs import block_of, graphs, remove_dead, users
from mllm_compiler.passes.lift_gated_mlp import LiftGatedMlp
from mllm_compiler.passes.lift_mlp import LiftMlp
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.mlp_parts import take_mlps_apart
from mllm_compiler.quantisation.hadamard import (
    Matrix,
    fold_into_inputs,
    fold_into_outputs,
    rotation,
)
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.weights import WeightStore


@dataclass
class Stream:
    """A residual stream.

    Attributes:
        start: What it starts with.
        norms: The norms that read it.
        writers: The products that are added to it.
    """

    start: EmbeddingOp
    norms: list[RmsNormOp] = field(default_factory=list[RmsNormOp])
    writers: list[LinearOp] = field(default_factory=list[LinearOp])


@dataclass(frozen=True)
class RotateWeights(ModulePass):
    """Turns residual streams.

    Attributes:
        recipe: A built-in recipe or a `.toml` file; without `rotate` in it, nothing happens.
        seed: Of the random signs.
    """

    name = "rotate-weights"
    recipe: str = "w8a8"
    seed: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Turns the stream of each graph that has one.

        Raises:
            CompileError: The recipe cannot be used.
        """
        if not read_recipe(self.recipe).rotate:
            return
        store = store_of(ctx)
        for graph in graphs(op):
            take_mlps_apart(graph)
            stream = stream_of(graph, store)
            if stream is not None:
                _turn(stream, self.seed, store)
                remove_dead(graph)
        LiftGatedMlp().apply(ctx, op)
        LiftMlp().apply(ctx, op)


def stream_of(graph: FuncOp, store: WeightStore) -> Stream | None:
    """The residual stream of a graph; None where it cannot be turned."""
    stream: Stream | None = None
    values: set[SSAValue] = set()
    for op in block_of(graph).ops:
        read = [v for v in op.operands if v in values]
        if isinstance(op, EmbeddingOp) and stream is None and _known(op, 0, store):
            stream = Stream(op)
            values.add(op.result)
        elif read and stream is not None:
            writer = _writer(op, read[0], store)
            if writer is not None:
                stream.writers.append(writer)
                values.add(op.results[0])
            elif isinstance(op, RmsNormOp) and _is_read_by_products(op, store):
                stream.norms.append(op)
            else:
                return None
    return stream if stream is not None and stream.norms else None


def _writer(op: Operation, read: SSAValue, store: WeightStore) -> LinearOp | None:
    """The product that an op adds to the stream."""
    if not isinstance(op, BinaryOp) or op.kind.data is not BinaryKind.ADD or op.a is op.b:
        return None
    other = op.b if op.a is read else op.a
    linear = made_by(other, LinearOp)
    alone = linear is not None and other.has_one_use() and shape_of(other) == shape_of(read)
    if linear is None or not alone:
        return None
    known = all(_known(linear, at, store) for at in range(1, len(linear.operands)))
    return linear if known else None


def _is_read_by_products(norm: RmsNormOp, store: WeightStore) -> bool:
    readers = list(users(norm.result))
    return _known(norm, 1, store) and all(
        isinstance(r, LinearOp) and r.x is norm.result and _known(r, 1, store) for r in readers
    )


def _known(op: Operation, at: int, store: WeightStore) -> bool:
    return numbers_of(op.operands[at], store) is not None


def _turn(stream: Stream, seed: int, store: WeightStore) -> None:
    width = shape_of(stream.start.table)[1].as_int()
    assert width is not None
    turn = rotation(width, seed)
    _put(stream.start, 0, turn, store)
    for norm in stream.norms:
        gain = numbers_of(norm.weight, store)
        assert gain is not None
        for reader in users(norm.result):
            _put(reader, 1, gain[:, None].astype(np.float64) * turn, store)
        put_numbers(norm, 1, np.ones_like(gain), store)
    for writer in stream.writers:
        weight = numbers_of(writer.weight, store)
        assert weight is not None
        put_numbers(writer, 1, fold_into_outputs(weight, turn), store)
        if writer.bias is not None:
            _put(writer, 2, turn, store)


def _put(op: Operation, at: int, turn: Matrix, store: WeightStore) -> None:
    """Turns the rows of a matrix, or a row."""
    array = numbers_of(op.operands[at], store)
    assert array is not None
    put_numbers(op, at, fold_into_inputs(array, turn), store)
