"""The numbers of weights and constants, and others in their place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.types import ELEMENTS, dtype_of, element_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.quantisation.grid import Floats
from mllm_compiler.weights import WeightStore


def numbers_of(value: SSAValue, store: WeightStore) -> Floats | None:
    """The numbers of a weight or a constant in single precision; None of anything else."""
    weight, constant = made_by(value, WeightOp), made_by(value, ConstantOp)
    if constant is not None:
        return array_of(constant.value).astype(np.float32)
    if weight is None or weight.value.digest.data not in store:
        return None
    blob = weight.value
    array = store.array(blob.digest.data, str(blob.element), blob.dims)
    return array.astype(np.float32, copy=False)


def put_numbers(op: Operation, at: int, array: Floats, store: WeightStore) -> None:
    """Gives an op other numbers for an operand, in the operand's type; who else reads it does not.

    The store forgets its resident pages, so that one weight is in memory at a time.
    """
    old = op.operands[at]
    made = array.astype(dtype_of(element_of(old)))
    new = ConstantOp.of(made) if made.size <= LARGEST_CONSTANT else _weight(old, made, store)
    new.location = op.location
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(new, op)
    op.operands[at] = new.results[0]
    store.release()


def _weight(old: SSAValue, array: NDArray[np.generic], store: WeightStore) -> WeightOp:
    maker = made_by(old, WeightOp)
    name = None if maker is None or maker.weight_name is None else maker.weight_name.data
    return WeightOp(BlobAttr.of(store.add(array), ELEMENTS[array.dtype], array.shape), name)
