"""Weights one behind another as one, written to the store one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import (
    LARGEST_CONSTANT,
    BlobAttr,
    ConstantOp,
    DequantizeOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import ELEMENTS, bits_of, dtype_of, element_of, shape_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]


def known_array(store: WeightStore, value: SSAValue) -> Array | None:
    """The array of a constant, or of a weight whose bytes the store knows, mapped."""
    weight = made_by(value, WeightOp)
    if weight is None:
        return constant_array(value)
    blob = weight.value
    if blob.digest.data not in store:
        return None
    return store.array(blob.digest.data, str(blob.element), blob.dims)


def stored(store: WeightStore, arrays: Sequence[Array], name: str) -> Operation:
    """The rows of arrays, one array behind another, as a constant or, where many, a weight."""
    shape = (sum(len(array) for array in arrays), *arrays[0].shape[1:])
    if np.prod(shape) <= LARGEST_CONSTANT:
        return ConstantOp.of(np.concatenate(arrays))
    digest = store.add_pieces(arrays)
    store.release()
    return WeightOp(BlobAttr.of(digest, ELEMENTS[arrays[0].dtype], shape), name or None)


def joined(store: WeightStore, values: Sequence[SSAValue]) -> list[Operation] | None:
    """The ops that make the rows of weights, one weight behind another; the last one's result.

    None where the weights do not join: their bytes are not known, their types or row lengths
    differ, or they are quantised in ways that differ.
    """
    makers = [made_by(value, DequantizeOp) for value in values]
    quantised = [maker for maker in makers if maker is not None]
    if len(quantised) == len(values):
        return _dequantised(store, quantised)
    alike = {(element_of(value), shape_of(value)[1:]) for value in values}
    arrays = [known_array(store, value) for value in values]
    known = [array for array in arrays if array is not None]
    if len(alike) > 1 or len(known) < len(arrays) or not _whole_bytes(values[0], known):
        return None
    return [stored(store, known, names_of(values))]


def joined_biases(
    store: WeightStore, biases: Sequence[SSAValue | None], weights: Sequence[SSAValue]
) -> list[Operation] | None:
    """What makes the biases of weights one behind another; one that is absent is zeros.

    Nothing where no weight has one; None where one is not known.
    """
    given = [bias for bias in biases if bias is not None]
    if not given:
        return []
    dtype = dtype_of(element_of(given[0]))
    arrays: list[Array] = []
    for bias, weight in zip(biases, weights, strict=True):
        rows = shape_of(weight)[0].as_int()
        zeros = None if rows is None else np.zeros(rows, dtype)
        array = zeros if bias is None else known_array(store, bias)
        if array is None or array.dtype != dtype:
            return None
        arrays.append(array)
    return [stored(store, arrays, names_of(given))]


def _whole_bytes(value: SSAValue, arrays: Sequence[Array]) -> bool:
    """Whether each array ends at a byte."""
    bits = bits_of(element_of(value))
    return bits % 8 == 0 or all(array.size * bits % 8 == 0 for array in arrays)


def names_of(values: Sequence[SSAValue]) -> str:
    """The names of weights, one behind another."""
    names = [weight.weight_name for value in values if (weight := made_by(value, WeightOp))]
    return "+".join(name.data for name in names if name is not None)


def _dequantised(store: WeightStore, makers: Sequence[DequantizeOp]) -> list[Operation] | None:
    """Codes, scales and zero points joined, and what reads them; each row has scales of its own."""
    first = makers[0]
    if any(maker.properties != first.properties for maker in makers):
        return None
    sides = [[maker.x for maker in makers], [maker.scale for maker in makers]]
    zeros = [maker.zero_point for maker in makers if maker.zero_point is not None]
    if zeros and len(zeros) < len(makers):
        return None
    made: list[Operation] = []
    operands: list[SSAValue] = []
    for side in [*sides, zeros] if zeros else sides:
        rows = [shape_of(value)[:1] for value in side]
        if rows != [shape_of(maker.x)[:1] for maker in makers]:
            return None
        ops = joined(store, side)
        if ops is None:
            return None
        made += ops
        operands.append(ops[-1].results[0])
    axis, size = first.axis, first.block_size
    whole = DequantizeOp(
        *operands,
        axis=None if axis is None else axis.value.data,
        block_size=None if size is None else size.value.data,
        element=element_of(first.result),
    )
    return [*made, whole]
