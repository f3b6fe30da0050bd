"""Narrowing of IR values to tensors, and the correspondence of element types and NumPy dtypes."""

from __future__ import annotations

from typing import Final, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
    TensorType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.weights import NARROW

Tensor = TensorType[Attribute]

FLOATS: Final = (Float16Type, BFloat16Type, Float32Type, Float64Type)
"""The element types that floating-point contracts accept."""

i2: Final = IntegerType(2)
i4: Final = IntegerType(4)
ui2: Final = IntegerType(2, Signedness.UNSIGNED)
ui4: Final = IntegerType(4, Signedness.UNSIGNED)
ui8: Final = IntegerType(8, Signedness.UNSIGNED)
ui16: Final = IntegerType(16, Signedness.UNSIGNED)
ui32: Final = IntegerType(32, Signedness.UNSIGNED)
ui64: Final = IntegerType(64, Signedness.UNSIGNED)

ELEMENTS: Final[dict[np.dtype[np.generic], AnyFloat | IntegerType]] = {
    np.dtype(np.float32): f32,
    np.dtype(np.float64): f64,
    np.dtype(np.float16): f16,
    np.dtype(ml_dtypes.bfloat16): bf16,
    np.dtype(np.bool_): i1,
    np.dtype(np.int8): i8,
    np.dtype(np.int16): i16,
    np.dtype(np.int32): i32,
    np.dtype(np.int64): i64,
    np.dtype(np.uint8): ui8,
    np.dtype(np.uint16): ui16,
    np.dtype(np.uint32): ui32,
    np.dtype(np.uint64): ui64,
    np.dtype(ml_dtypes.int4): i4,
    np.dtype(ml_dtypes.uint4): ui4,
    np.dtype(ml_dtypes.int2): i2,
    np.dtype(ml_dtypes.uint2): ui2,
}
"""The element type of each NumPy dtype; NumPy gives each narrow integer a byte of its own."""

_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


def tensor_type(value: SSAValue) -> Tensor:
    """The ranked tensor type of a value.

    Raises:
        TypeError: The value is no ranked tensor.
    """
    type = ranked(value)
    if type is None:
        raise TypeError(f"a ranked tensor is expected, not {value.type}")
    return type


def ranked(value: SSAValue) -> Tensor | None:
    """The type of a ranked tensor, None for anything else."""
    # `isa` would narrow the type too, but takes 200 us where `isinstance` takes 0.1.
    type: Attribute = value.type
    return cast("Tensor", type) if isinstance(type, TensorType) else None


def shape_of(value: SSAValue) -> tuple[Dim, ...]:
    """The dims of a ranked tensor."""
    return dims_of(tensor_type(value))


def extents(value: SSAValue) -> tuple[int, ...]:
    """The extents of a tensor of static shape."""
    return tuple(n for d in shape_of(value) if (n := d.as_int()) is not None)


def rank_of(value: SSAValue) -> int:
    """The number of dims of a ranked tensor."""
    return tensor_type(value).get_num_dims()


def element_of(value: SSAValue) -> Attribute:
    """The element type of a ranked tensor."""
    return tensor_type(value).element_type


def is_float(element: Attribute) -> bool:
    """Whether an element type is floating point."""
    return isinstance(element, FLOATS)


def is_integer(element: Attribute) -> bool:
    """Whether an element type is an integer of more than one bit."""
    return isinstance(element, IntegerType) and cast("IntegerType", element).width.data > 1


def is_signed(element: Attribute) -> bool:
    """Whether an integer type has negative numbers."""
    if not isinstance(element, IntegerType):
        return False
    return cast("IntegerType", element).signedness.data is not Signedness.UNSIGNED


def bounds_of(element: Attribute) -> tuple[int, int]:
    """The lowest and the largest number of an integer type.

    Raises:
        TypeError: It is no integer type.
    """
    if not isinstance(element, IntegerType):
        raise TypeError(f"{element} is no integer type")
    count = 1 << cast("IntegerType", element).width.data
    return (-count // 2, count // 2 - 1) if is_signed(cast(Attribute, element)) else (0, count - 1)


def bits_of(element: Attribute) -> int:
    """The bits of one element as the weight store and the devices hold it.

    Raises:
        TypeError: NumPy has no dtype for it.
    """
    dtype = dtype_of(element)
    return NARROW.get(dtype, 8 * dtype.itemsize)


def dtype_of(element: Attribute) -> np.dtype[np.generic]:
    """The NumPy dtype of an element type.

    Raises:
        TypeError: NumPy has no dtype for it.
    """
    dtype = _DTYPES.get(element)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if dtype is None:
        raise TypeError(f"NumPy has no dtype for {element}")
    return dtype
