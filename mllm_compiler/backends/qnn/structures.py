"""Tensors and nodes as QNN's structures; who makes them keeps what they point to alive."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from mllm_compiler.backends.qnn import capi
from mllm_compiler.backends.qnn.graph import (
    PACKAGE,
    Array,
    Encoding,
    Node,
    Number,
    Tensor,
)

DTYPES: Final[Mapping[str, type[np.generic]]] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "f16": np.float16,
    "f32": np.float32,
    "i1": np.uint8,
}
"""What elements are in memory; a truth value takes a byte."""

VALUES: Final = {"f32": "real", "i1": "truth"}
"""The member of a number's union by its element; `whole` holds any other."""


class Keeper:
    """Makes structures, and keeps alive what they point to."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def tensor(self, tensor: Tensor) -> capi.Tensor:
        """A tensor; a static one with its bytes."""
        made = capi.Tensor(version=2)
        fields = made.of
        fields.name = tensor.name.encode()
        fields.role = capi.ROLES[tensor.role]
        coded = tensor.encoding is not None
        fields.element = (capi.CODES if coded else capi.PLAIN)[tensor.element]
        fields.rank = len(tensor.dims)
        fields.dims = self._array(c.c_uint32, tensor.dims)
        undefined = capi.Quantization(defined=capi.UNDEFINED, kind=capi.UNDEFINED)
        fields.quantization = undefined
        if tensor.encoding is not None:
            fields.quantization = self._quantization(tensor.encoding)
        if tensor.data is not None:
            self.fill(made, tensor.data.astype(DTYPES[tensor.element], copy=False))
        return made

    def fill(self, tensor: capi.Tensor, data: Array) -> Array:
        """Gives a tensor its bytes; the answer is the array that they stay in."""
        held = np.ascontiguousarray(data)
        self._kept.append(held)
        tensor.of.buffer = capi.Buffer(held.ctypes.data, held.nbytes)
        return held

    def operation(self, node: Node, tensors: Mapping[str, capi.Tensor]) -> capi.Operation:
        """A call of an operator."""
        parameters = [self._parameter(*item) for item in node.parameters.items()]
        inputs = [tensors[name] for name in node.inputs]
        outputs = [tensors[name] for name in node.outputs]
        return capi.Operation(
            version=1,
            name=node.name.encode(),
            package=PACKAGE.encode(),
            operator=node.operator.encode(),
            parameter_count=len(parameters),
            parameters=self._array(capi.Parameter, parameters),
            input_count=len(inputs),
            inputs=self._array(capi.Tensor, inputs),
            output_count=len(outputs),
            outputs=self._array(capi.Tensor, outputs),
        )

    def _parameter(self, name: str, value: tuple[str, Number] | Tensor) -> capi.Parameter:
        made = capi.Parameter(name=name.encode())
        if isinstance(value, Tensor):
            made.kind, made.of.tensor = capi.TENSOR, self.tensor(value)
            return made
        element, number = value
        made.kind, made.of.scalar.element = capi.SCALAR, capi.PLAIN[element]
        setattr(made.of.scalar.of, VALUES.get(element, "whole"), number)
        return made

    def _quantization(self, encoding: Encoding) -> capi.Quantization:
        made, offset = capi.Quantization(defined=1), -encoding.zero_point
        narrow = encoding.bits in (2, 4)
        scales, axis, bits = encoding.scales, encoding.axis, encoding.bits
        if axis is None and narrow:
            made.kind, made.of.narrow = capi.NARROW, capi.NarrowScale(bits, scales[0], offset)
        elif axis is None:
            made.kind, made.of.tensor = capi.PER_TENSOR, capi.ScaleOffset(scales[0], offset)
        elif encoding.blocks is not None:
            made.kind = capi.EXPANDED
            made.of.expanded = self._array(capi.ExpandedScales, [self._expanded(encoding, axis)])
        elif narrow:
            reals = self._array(c.c_float, scales)
            offsets = self._array(c.c_int32, [offset] * len(scales))
            made.kind = capi.NARROW_PER_AXIS
            made.of.narrow_axis = capi.NarrowAxisScales(bits, axis, len(scales), reals, offsets)
        else:
            pairs = self._array(capi.ScaleOffset, [capi.ScaleOffset(s, offset) for s in scales])
            made.kind, made.of.axis = capi.PER_AXIS, capi.AxisScales(axis, len(scales), pairs)
        return made

    def _expanded(self, encoding: Encoding, axis: int) -> capi.ExpandedScales:
        assert encoding.blocks is not None
        multiples = encoding.blocks.astype(np.uint8)
        pairs = [capi.ScaleOffset(scale, 0) for scale in encoding.scales]
        return capi.ExpandedScales(
            axis=axis,
            scales=self._array(capi.ScaleOffset, pairs),
            blocks=multiples.shape[1],
            bits=encoding.bits,
            storage=0,
            multiples=self._array(c.c_uint8, multiples.reshape(-1).tolist()),
        )

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        made: Any = (kind * max(1, len(values)))(*values)
        self._kept.append(made)
        cast: Any = c.cast
        return cast(made, c.POINTER(kind))


def element_of_number(number: int) -> str:
    """The element type that QNN numbers so, of numbers or of codes."""
    return next(e for table in (capi.PLAIN, capi.CODES) for e, n in table.items() if n == number)
