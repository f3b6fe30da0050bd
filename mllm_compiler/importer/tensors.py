"""Tensors of a model: small ones as constants in the IR, large ones as handles into the store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Final, cast

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, LocationAttr, TensorType
from xdsl.ir import Attribute, Operation

from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp
from mllm_compiler.dialects.onnx import operators
from mllm_compiler.dialects.onnx_attributes import tensor_attribute
from mllm_compiler.dialects.onnx_types import StringType
from mllm_compiler.errors import CompileError
from mllm_compiler.importer.names import utf8_name
from mllm_compiler.importer.types import element_of
from mllm_compiler.weights import WeightStore

LARGEST_CONSTANT: Final = 64
"""Elements that may stand in the IR."""


@dataclass
class Tensors:
    """Turns tensors of one model file into IR.

    Attributes:
        file: The model's file; its folder bounds where external data may lie.
        store: Where the bytes are registered.
    """

    file: Path
    store: WeightStore
    _digests: dict[tuple[Path, int, int], str] = field(
        default_factory=dict[tuple[Path, int, int], str]
    )

    def constant(self, tensor: ir.TensorProtocol, name: str, location: LocationAttr) -> Operation:
        """The op that makes the tensor."""
        attribute = self.attribute(tensor, name)
        if isinstance(attribute, BlobAttr):
            op: Operation = WeightOp(attribute, name)
        elif isinstance(attribute, DenseIntOrFPElementsAttr):
            op = ConstantOp(cast("DenseIntOrFPElementsAttr", attribute))
        else:
            element = StringType()
            op = operators()["onnx.Constant"].make(
                [], [TensorType(element, extents(tensor))], {"value": attribute}
            )
        op.location = location
        return op

    def attribute(self, tensor: ir.TensorProtocol, name: str) -> Attribute:
        """The tensor as an attribute: in place, or, above 64 elements, a handle."""
        shape = self._shape(tensor, name)
        if tensor.dtype == ir.DataType.STRING:
            return tensor_attribute(self._array(tensor, name))
        if prod(shape) <= LARGEST_CONSTANT:
            return tensor_attribute(self._small(tensor, name))
        return BlobAttr.of(self._digest(tensor, name), element_of(tensor.dtype), shape)

    def _shape(self, tensor: ir.TensorProtocol, name: str) -> tuple[int, ...]:
        shape = extents(tensor)
        try:
            dtype = tensor.dtype
        except ValueError as error:
            raise self._malformed(name, str(error)) from error
        if dtype == ir.DataType.UNDEFINED or any(d < 0 for d in shape):
            raise self._malformed(name, f"its dtype is {dtype.name}, its shape {shape}")
        return shape

    def _digest(self, tensor: ir.TensorProtocol, name: str) -> str:
        if isinstance(tensor, ir.ExternalTensor) and _is_kept(tensor.dtype):
            file, offset, nbytes = self._extent(tensor, name)
            key = (file, offset, nbytes)
            if key not in self._digests:
                self._digests[key] = self.store.add_mapped(file, offset, nbytes)
            return self._digests[key]
        return self.store.add(self._array(tensor, name))

    def _small(self, tensor: ir.TensorProtocol, name: str) -> NDArray[np.generic]:
        if isinstance(tensor, ir.ExternalTensor):
            file, offset, nbytes = self._extent(tensor, name)
            with file.open("rb") as source:
                source.seek(offset)
                raw = source.read(nbytes)
            return _unpacked(raw, tensor.dtype, self._shape(tensor, name))
        return self._array(tensor, name)

    def _array(self, tensor: ir.TensorProtocol, name: str) -> NDArray[np.generic]:
        shape = self._shape(tensor, name)
        if isinstance(tensor, ir.ExternalTensor):
            file, offset, nbytes = self._extent(tensor, name)
            raw = self.store.raw(self.store.add_mapped(file, offset, nbytes))
            return _unpacked(raw, tensor.dtype, shape)
        try:
            if isinstance(tensor, ir.StringTensor):
                return np.array([s.decode() for s in tensor.string_data()], object).reshape(shape)
            array = tensor.numpy()
            if array.shape != shape:
                raise ValueError(f"its data have shape {array.shape}")
        except Exception as error:  # the reader of a malformed tensor raises whatever it met
            raise self._malformed(name, str(error)) from error
        return array

    def _extent(self, tensor: ir.ExternalTensor, name: str) -> tuple[Path, int, int]:
        """File, offset and size of an external tensor, checked.

        Raises:
            CompileError: The file is missing, too short, or outside the model's folder.
        """
        location = cast("str | os.PathLike[str]", tensor.location)
        file = self._external_file(utf8_name(os.fsdecode(location)), name)
        wanted = -(-int(tensor.dtype.bitwidth * prod(self._shape(tensor, name))) // 8)
        offset, length = tensor.offset or 0, tensor.length
        if length is not None and length != wanted:
            raise self._malformed(name, f"{wanted} bytes are needed, external data have {length}")
        size = file.stat().st_size
        if offset < 0 or offset + wanted > size:
            raise CompileError(
                "MLC-I006",
                f"external data of '{name}' end at byte {offset + wanted}, "
                f"but '{tensor.location}' has {size}",
                location=str(self.file),
                remedy="the file is truncated or not the model's: copy it again",
            )
        return file, offset, wanted

    def _external_file(self, location: str, name: str) -> Path:
        if location == utf8_name(self.file.name):
            return self.file
        if "\0" in location:
            raise self._malformed(name, "the path of its external data has a NUL")
        given = file_inside(self.file.parent, location)
        if given is None:
            raise CompileError(
                "MLC-I005",
                f"external data of '{name}' lie outside the model's folder: '{location}'",
                location=str(self.file),
                remedy="copy the data file beside the model and save the model with its name",
            )
        if not given.is_file():
            raise CompileError(
                "MLC-I004",
                f"external data of '{name}' are missing: there is no '{location}'",
                location=str(self.file),
                remedy="copy the data file beside the model",
            )
        return given

    def _malformed(self, name: str, message: str) -> CompileError:
        return CompileError(
            "MLC-I007",
            f"tensor '{name}' is malformed: {message}",
            location=str(self.file),
            remedy="export the model again",
        )


def file_inside(folder: Path, location: str) -> Path | None:
    """The file of a relative path that does not leave a folder, also not by a link; else None."""
    real = Path(os.path.realpath(folder))
    given = real / location
    inside = not os.path.isabs(location) and ".." not in Path(location).parts
    return given if inside and Path(os.path.realpath(given)).is_relative_to(real) else None


def extents(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The shape of a tensor with data, whose extents are all numbers."""
    return tuple(cast(int, d) for d in tensor.shape)


def _is_kept(dtype: ir.DataType) -> bool:
    """Whether the store holds a tensor's elements as the file does."""
    return dtype.itemsize >= 1 or dtype.is_integer()


def _unpacked(
    raw: bytes | memoryview, dtype: ir.DataType, shape: tuple[int, ...]
) -> NDArray[np.generic]:
    """The array of raw little-endian bytes; elements of less than a byte are unpacked."""
    if dtype.itemsize >= 1:
        return np.frombuffer(raw, dtype.numpy()).reshape(shape)
    packed = ir.PackedTensor(np.frombuffer(raw, np.uint8), dtype, shape=ir.Shape(shape))
    return packed.numpy()
