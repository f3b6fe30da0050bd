"""QNN's C interface as ctypes sees it: layouts of structures, numbers of types and of functions.

For core API 2.40 on x86-64; `library.py` refuses another.
"""

from __future__ import annotations

import ctypes as c
from typing import Any, Final

CORE: Final = (2, 40)
"""Major and minor version of the core API whose layouts these are."""

Handle = c.c_void_p
Error = c.c_uint64
UNDEFINED: Final = 0x7FFFFFFF

PLAIN: Final = {
    "i8": 0x008,
    "i16": 0x016,
    "i32": 0x032,
    "i64": 0x064,
    "ui8": 0x108,
    "ui16": 0x116,
    "ui32": 0x132,
    "f16": 0x216,
    "f32": 0x232,
    "i1": 0x508,
}
"""The number of each element type of numbers."""

CODES: Final = {"i8": 0x308, "i16": 0x316, "i32": 0x332, "ui8": 0x408, "ui16": 0x416}
"""The number of each element type of codes, whose tensors have an encoding."""

BINARY_INFO: Final = 3
"""The version of what a context binary says of itself."""

ROLES: Final = {"input": 0, "output": 1, "native": 3, "static": 4}
SCALAR, TENSOR = 0, 1
PER_TENSOR, PER_AXIS, NARROW, NARROW_PER_AXIS, EXPANDED = 0, 1, 2, 3, 5
"""Kinds of encodings: the narrow ones say how many bits a code has, the last has blocks."""


class Version(c.Structure):
    """Major, minor, patch."""

    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("patch", c.c_uint32)]


class Provider(c.Structure):
    """An interface and its table of functions."""

    _fields_ = [
        ("backend", c.c_uint32),
        ("name", c.c_char_p),
        ("core", Version),
        ("own", Version),
        ("functions", c.c_void_p * 90),
    ]


class SystemProvider(c.Structure):
    """The interface of libQnnSystem."""

    _fields_ = [
        ("backend", c.c_uint32),
        ("name", c.c_char_p),
        ("version", Version),
        ("functions", c.c_void_p * 40),
    ]


class ScaleOffset(c.Structure):
    """One scale; an offset is a zero point with the other sign."""

    _fields_ = [("scale", c.c_float), ("offset", c.c_int32)]


class AxisScales(c.Structure):
    """A scale for each element of an axis."""

    _fields_ = [
        ("axis", c.c_int32),
        ("count", c.c_uint32),
        ("scales", c.POINTER(ScaleOffset)),
    ]


class NarrowScale(c.Structure):
    """One scale of codes with fewer bits than their element."""

    _fields_ = [("bits", c.c_uint32), ("scale", c.c_float), ("offset", c.c_int32)]


class NarrowAxisScales(c.Structure):
    """Such scales for each element of an axis."""

    _fields_ = [
        ("bits", c.c_uint32),
        ("axis", c.c_int32),
        ("count", c.c_uint32),
        ("scales", c.POINTER(c.c_float)),
        ("offsets", c.POINTER(c.c_int32)),
    ]


class ExpandedScales(c.Structure):
    """A scale for each element of an axis, and whole multiples of it for blocks along the other."""

    _fields_ = [
        ("axis", c.c_int32),
        ("scales", c.POINTER(ScaleOffset)),
        ("blocks", c.c_uint32),
        ("bits", c.c_uint32),
        ("storage", c.c_uint32),
        ("multiples", c.POINTER(c.c_uint8)),
    ]


class EncodingUnion(c.Union):
    """One of the kinds."""

    _fields_ = [
        ("tensor", ScaleOffset),
        ("axis", AxisScales),
        ("narrow", NarrowScale),
        ("narrow_axis", NarrowAxisScales),
        ("expanded", c.POINTER(ExpandedScales)),
    ]


class Quantization(c.Structure):
    """Whether there is an encoding, its kind, and it."""

    _fields_ = [("defined", c.c_uint32), ("kind", c.c_uint32), ("of", EncodingUnion)]


class Buffer(c.Structure):
    """Bytes that the caller owns."""

    _fields_ = [("data", c.c_void_p), ("size", c.c_uint32)]


class TensorFields(c.Structure):
    """The second version of a tensor."""

    _fields_ = [
        ("id", c.c_uint32),
        ("name", c.c_char_p),
        ("role", c.c_uint32),
        ("format", c.c_uint32),
        ("element", c.c_uint32),
        ("quantization", Quantization),
        ("rank", c.c_uint32),
        ("dims", c.POINTER(c.c_uint32)),
        ("memory", c.c_uint32),
        ("buffer", Buffer),
        ("dynamic", c.c_void_p),
        ("sparse", c.c_uint32 * 3),
        ("produced", c.c_uint8),
    ]


class Tensor(c.Structure):
    """A tensor and its version."""

    _fields_ = [("version", c.c_uint32), ("of", TensorFields)]


class Value(c.Union):
    """A number."""

    _fields_ = [
        ("real", c.c_float),
        ("whole", c.c_uint64),
        ("truth", c.c_uint8),
    ]


class Scalar(c.Structure):
    """A number and its element type."""

    _fields_ = [("element", c.c_uint32), ("of", Value)]


class ParameterUnion(c.Union):
    """A number or a tensor."""

    _fields_ = [("scalar", Scalar), ("tensor", Tensor)]


class Parameter(c.Structure):
    """A named parameter of an operator."""

    _fields_ = [("kind", c.c_uint32), ("name", c.c_char_p), ("of", ParameterUnion)]


class Operation(c.Structure):
    """A call of an operator."""

    _fields_ = [
        ("version", c.c_uint32),
        ("name", c.c_char_p),
        ("package", c.c_char_p),
        ("operator", c.c_char_p),
        ("parameter_count", c.c_uint32),
        ("parameters", c.POINTER(Parameter)),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(Tensor)),
    ]


class DeviceOption(c.Structure):
    """HTP's own option of a device: 0 the SoC's number, 1 a device and its architecture."""

    _fields_ = [
        ("option", c.c_uint32),
        ("padding", c.c_uint32),
        ("first", c.c_uint32),
        ("second", c.c_uint32),
    ]


class Option(c.Structure):
    """An option of any object; 0 says that it is the backend's own."""

    _fields_ = [("option", c.c_uint32), ("value", c.c_void_p)]


class GraphInfo(c.Structure):
    """What a context binary says of a graph, in the third version."""

    _fields_ = [
        ("version", c.c_uint32),
        ("name", c.c_char_p),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(Tensor)),
        ("more", c.c_uint64 * 5),
    ]


class BinaryInfo(c.Structure):
    """What a context binary says of itself, in its third version."""

    _fields_ = [
        ("backend", c.c_uint32),
        ("build", c.c_char_p),
        ("core", Version),
        ("own", Version),
        ("soc", c.c_char_p),
        ("blob", Version),
        ("blob_size", c.c_uint64),
        ("tensor_count", c.c_uint32),
        ("tensors", c.c_void_p),
        ("graph_count", c.c_uint32),
        ("graphs", c.c_void_p),
        ("hardware", c.c_void_p),
        ("hardware_size", c.c_uint32),
        ("more", c.c_void_p),
        ("soc_model", c.c_uint32),
    ]


LogCallback: Any = c.CFUNCTYPE(None, c.c_char_p, c.c_uint32, c.c_uint64, c.c_void_p)
"""Takes a format, a level, a time and a `va_list`."""

assert c.sizeof(Tensor) == 144
assert c.sizeof(Parameter) == 160

P, U32, U64 = c.c_void_p, c.c_uint32, c.c_uint64

CALLS: Final[dict[str, tuple[int, tuple[Any, ...]]]] = {
    "backendCreate": (1, (P, P, P)),
    "backendGetBuildId": (4, (P,)),
    "backendValidateOpConfig": (7, (P, Operation)),
    "contextCreate": (9, (P, P, P, P)),
    "contextGetBinarySize": (11, (P, P)),
    "contextGetBinary": (12, (P, P, U64, P)),
    "contextCreateFromBinary": (13, (P, P, P, P, U64, P, P)),
    "graphCreate": (15, (P, P, P, P)),
    "graphAddNode": (18, (P, Operation)),
    "graphFinalize": (19, (P, P, P)),
    "graphRetrieve": (20, (P, P, P)),
    "graphExecute": (21, (P, P, U32, P, U32, P, P)),
    "tensorCreateGraphTensor": (24, (P, P)),
    "logCreate": (25, (P, U32, P)),
    "deviceCreate": (40, (P, P, P)),
}
"""The place of each function in the table of the interface, and what it takes."""

SYSTEM_CALLS: Final[dict[str, tuple[int, tuple[Any, ...]]]] = {
    "systemContextCreate": (0, (P,)),
    "systemContextGetBinaryInfo": (1, (P, P, U64, P, P)),
}
"""The same of libQnnSystem."""
