"""Which products take more bits: those whose codes move the results most, in a budget.

Each product is quantised by itself on samples, and the graph computed from there on; how far the
results move is its sensitivity. More bits are given where they take away most, until the average
of a recipe is used up. With b more bits a code's squared error is 4^-b of what it was. A product
whose weight an earlier graph quantised has the bits that it got there: it is stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import LinearOp
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, result_names, return_of
from mllm_compiler.passes.quantised_weights import WeightCodes
from mllm_compiler.passes.samples import Samples
from mllm_compiler.passes.sites import Site
from mllm_compiler.quantisation.grid import SCALE_BITS, mse_clipped
from mllm_compiler.quantisation.recipe import Format, Mixed
from mllm_compiler.quantisation.sensitivity import Option, assign
from mllm_compiler.reference import Array, Frame, meaning_of
from mllm_compiler.reference.mllm_linear import linear, log_sum_exp
from mllm_compiler.weights import WeightStore

LOGITS = "logits"
ROWS = 512
"""Samples are taken until their results have so many rows together: a transcript has few."""


def with_more_bits(
    graph: FuncOp,
    sites: Sequence[Site],
    base: Format,
    mixed: Mixed,
    samples: Sequence[Mapping[str, Array]],
    weights: WeightCodes,
) -> list[Site]:
    """The products of a graph, some of which take more bits.

    Args:
        graph: The graph, of real numbers.
        sites: Its products.
        base: The format of those that may take more bits.
        mixed: How many bits those take, and all on average; the head does not count.
        samples: Inputs of the graph, of which some are taken.
        weights: Finds the matrices.

    Returns:
        All of them; each that was free with the loss of its codes of few bits.

    Raises:
        CompileError: `MLC-Q005`, without more bits for any they are over the average.
    """
    more = replace(base, bits=mixed.bits)
    sites = [_as_before(site, base, more, weights) for site in sites]
    counted = [
        site
        for site in sites
        if site.grid is not None and not site.head and not weights.has(site.weight, site.grid)
    ]
    free = [site for site in counted if site.format is base]
    larger = {site.op: site.of_format(more) for site in free}
    losses = sensitivities(graph, free, samples, weights)
    shrink = 4.0 ** (base.bits - mixed.bits)
    table: dict[str, list[Option]] = {}
    for at, site in enumerate(counted):
        loss = losses.get(site.op, 0.0)
        table[str(at)] = [Option("as it is", _size(site), loss)]
        if site.op in larger:
            table[str(at)].append(Option("larger", _size(larger[site.op]), loss * shrink))
    chosen = assign(table, int(mixed.average * sum(_count(site) for site in counted)))
    if chosen is None:
        raise CompileError(
            "MLC-Q005",
            f"the products take more than {mixed.average} bits a weight as it is",
            location=graph.sym_name.data,
            remedy="raise mixed.average, or give the products larger blocks",
        )
    raised = {counted[int(at)].op for at, option in chosen.items() if option.name == "larger"}
    chosen_sites = [larger[site.op] if site.op in raised else site for site in sites]
    return [replace(site, loss=losses.get(site.op)) for site in chosen_sites]


def _as_before(site: Site, base: Format, more: Format, weights: WeightCodes) -> Site:
    """A product in the larger format where an earlier graph gave its weight that."""
    larger = site.of_format(more)
    if site.format is not base or larger.grid is None:
        return site
    return larger if weights.has(site.weight, larger.grid) else site


def sensitivities(
    graph: FuncOp,
    sites: Sequence[Site],
    samples: Sequence[Mapping[str, Array]],
    weights: WeightCodes,
) -> dict[LinearOp, float]:
    """How far a graph's results move where one product alone is quantised.

    It is the divergence of the distributions where there are logits, else the squared error of the
    first result as a part of its square; the mean over rows.
    """
    if not sites:
        return {}
    names, outputs = result_names(graph), return_of(graph).operands
    result = outputs[names.index(LOGITS) if LOGITS in names else 0]
    distance = divergence if LOGITS in names else relative_square
    frames = _computed(graph, samples, result, weights.store)
    rows = [_rows(frame.values[result]) for frame in frames]
    found: dict[LinearOp, float] = {}
    for site in sites:
        assert site.grid is not None
        matrix = mse_clipped(weights.matrix(site.weight), site.grid).dequantised()
        total = 0.0
        for frame, count in zip(frames, rows, strict=True):
            moved = _recomputed(graph, site.op, matrix, frame, result)
            real = frame.values[result]
            total += count * distance(real, moved.get(result, real))
        found[site.op] = total / sum(rows)
        weights.store.release()
    return found


def _computed(
    graph: FuncOp, samples: Sequence[Mapping[str, Array]], result: SSAValue, store: WeightStore
) -> list[Frame]:
    """The values of a graph for some samples, as many as give `ROWS` rows of a result."""
    frames: list[Frame] = []
    left = ROWS
    for sample in _spread(samples):
        frame = Samples.of(graph, [sample], store, ()).frames[0]
        for op in block_of(graph).ops:
            _compute(op, frame, {})
        frames.append(frame)
        left -= _rows(frame.values[result])
        if left <= 0:
            break
    return frames


def _spread(samples: Sequence[Mapping[str, Array]]) -> list[Mapping[str, Array]]:
    """Samples in an order in which the first few, however many, lie evenly over all of them."""
    golden = (5**0.5 - 1) / 2
    return [samples[at] for at in sorted(range(len(samples)), key=lambda at: at * golden % 1)]


def _rows(result: Array) -> int:
    """The rows of a result, one at least."""
    return max(1, prod(result.shape[:-1]))


def _recomputed(
    graph: FuncOp, product: LinearOp, matrix: Array, frame: Frame, result: SSAValue
) -> dict[SSAValue, Array]:
    """The result of a graph, where another matrix of a product changes it."""
    values, bias = frame.values, product.bias
    made = linear(values[product.x], matrix, None if bias is None else values[bias])
    moved: dict[SSAValue, Array] = {product.result: made}
    ops = list(block_of(graph).ops)
    last = {v: at for at, op in enumerate(ops) for v in op.operands}
    for at, op in enumerate(ops[ops.index(product) + 1 :], ops.index(product) + 1):
        if any(v in moved for v in op.operands):
            _compute(op, frame, moved)
        for value in set(op.operands) - {result}:
            if last[value] == at:
                moved.pop(value, None)
    return moved


def _compute(op: Operation, frame: Frame, moved: dict[SSAValue, Array]) -> None:
    """Computes an op on what moved and on what did not; into the frame where nothing did."""
    meaning = meaning_of(op)
    if meaning is None:
        return
    operands = [moved[v] if v in moved else frame.values[v] for v in op.operands]
    into = moved if any(v in moved for v in op.operands) else frame.values
    into.update(zip(op.results, meaning(op, operands, frame), strict=True))


def divergence(logits: Array, moved: Array) -> float:
    """The mean Kullback-Leibler divergence of the distributions that logits give."""
    rows, others = (x.reshape(-1, x.shape[-1]) for x in (logits, moved))
    total = 0.0
    for pair in zip(rows, others, strict=True):
        # A vocabulary is wide: one row at a time has double precision.
        p, q = (x - log_sum_exp(x, (0,), True) for x in (r.astype(np.float64) for r in pair))
        total += float((np.exp(p) * (p - q)).sum())
    return total / max(1, len(rows))


def relative_square(value: Array, moved: Array) -> float:
    """The squared error as a part of the square."""
    wide = value.astype(np.float64)
    return float(((moved - wide) ** 2).sum() / max(float((wide**2).sum()), 1e-30))


def _count(site: Site) -> int:
    return prod(site.weight.value.dims)


def _size(site: Site) -> int:
    """The bits of a product's codes, scales and zero points."""
    assert site.grid is not None
    rows, inputs = site.weight.value.dims
    side = SCALE_BITS + (0 if site.grid.symmetric else site.grid.bits)
    return _count(site) * site.grid.bits + rows * site.grid.blocks(inputs) * side
