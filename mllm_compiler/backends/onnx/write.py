"""The bytes of an ONNX model: in one file, or, above 1 GiB of weights, those in a second one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

INSIDE: Final = 1 << 30
"""Bytes of weights that a model's own file may hold; a protobuf ends at 2 GiB."""

SMALL: Final = 1024
"""A tensor of fewer bytes stays: what it holds may be a shape that others must know."""

PAGE: Final = 4096
"""Weights in a second file start at multiples of it."""


def weights_of(model: ir.Model) -> list[ir.Value]:
    """The initialisers."""
    return list(model.graph.initializers.values())


def is_large(model: ir.Model) -> bool:
    """Whether the weights go into a second file."""
    return sum(v.const_value.nbytes for v in weights_of(model) if v.const_value) > INSIDE


def move_out(model: ir.Model, location: str) -> Iterator[bytes | memoryview]:
    """Makes the weights external, and yields what their file holds, one after the other.

    Args:
        model: The model; it points into the file from then on.
        location: The name of the file.
    """
    at = 0
    for value in weights_of(model):
        tensor = value.const_value
        if tensor is None or tensor.nbytes < SMALL:
            continue
        gap = -at % PAGE
        yield bytes(gap)
        at += gap
        shape = ir.Shape(tensor.shape.numpy())
        value.const_value = ir.ExternalTensor(
            location, at, tensor.nbytes, tensor.dtype, shape=shape, name=value.name or ""
        )
        yield tensor.tobytes()
        at += tensor.nbytes


def serialised(model: ir.Model) -> bytes:
    """The model's own file."""
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)
