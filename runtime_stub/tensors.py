"""NumPy arrays to and from `mllm_tensor`."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from runtime_stub.library import CData, failure, ffi, library

Array = npt.NDArray[np.generic]

DTYPES: Final[dict[int, np.dtype[np.generic]]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.float16),
    4: np.dtype(ml_dtypes.bfloat16),
    5: np.dtype(np.int64),
    6: np.dtype(np.int32),
    7: np.dtype(np.int16),
    8: np.dtype(np.int8),
    9: np.dtype(np.uint64),
    10: np.dtype(np.uint32),
    11: np.dtype(np.uint16),
    12: np.dtype(np.uint8),
    13: np.dtype(np.bool_),
}
"""NumPy's dtype of each `mllm_dtype`."""

NUMBERS: Final = {dtype: number for number, dtype in DTYPES.items()}


def dtype_name(number: int) -> str:
    """`float32` and so on."""
    return DTYPES[number].name


def check_input(name: str, array: Array, entry: str) -> None:
    """Whether an `mllm_tensor` can describe an array.

    Raises:
        RuntimeFailure: `MLC-X001`, no tensor has its dtype or so many dims.
    """
    most = int(library().MLLM_MAX_RANK)
    if array.dtype not in NUMBERS:
        raise failure("MLC-X001", f"input '{name}' has dtype {array.dtype}", location=entry)
    if array.ndim > most:
        message = f"input '{name}' has rank {array.ndim}, at most {most} is possible"
        raise failure("MLC-X001", message, location=entry)


def describe(tensor: CData, name: CData, array: Array) -> None:
    """Points an `mllm_tensor` to an array, which has to be contiguous and outlive it."""
    tensor.name = name
    tensor.data = ffi.cast("void *", array.ctypes.data)
    tensor.bytes = array.nbytes
    tensor.dtype = NUMBERS[array.dtype]
    tensor.rank = array.ndim
    for axis, size in enumerate(array.shape):
        tensor.dims[axis] = size


def empty_like(tensor: CData) -> Array:
    """An array for an output whose dtype, rank and dims are known.

    Raises:
        RuntimeFailure: `MLC-X004`, there is no memory for it.
    """
    shape = tuple(tensor.dims[axis] for axis in range(tensor.rank))
    try:
        return np.empty(shape, DTYPES[tensor.dtype])
    except (MemoryError, ValueError) as fault:
        raise failure("MLC-X004", f"no memory for an output of shape {list(shape)}") from fault
