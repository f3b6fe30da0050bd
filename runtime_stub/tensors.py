"""NumPy arrays to and from `mllm_tensor`."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from runtime_stub.library import CData, ffi

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
    """An array for an output whose dtype, rank and dims are known."""
    shape = tuple(tensor.dims[axis] for axis in range(tensor.rank))
    return np.empty(shape, DTYPES[tensor.dtype])
