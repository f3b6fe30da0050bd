"""Locations: the name of the ONNX node that an op comes from."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    NameLoc,
    NoneAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Operation
from xdsl.utils.hints import isa


def named(name: str) -> NameLoc:
    """The location of the ONNX node `name`."""
    return NameLoc(StringAttr(name), NoneAttr())


def location_name(op: Operation) -> str:
    """Where an op comes from, as a user reads it; empty where that is unknown."""
    return next(_names(op.location), "")


def _names(location: Attribute) -> Iterator[str]:
    if isinstance(location, NameLoc):
        yield location.desc.data
    elif isinstance(location, FileLineColLoc):
        yield f"{location.filename.data}:{location.line.data}:{location.column.data}"
    elif isinstance(location, CallSiteLoc):
        yield from _names(location.callee)
    elif isinstance(location, FusedLoc) and isa(location.locations, ArrayAttr[Attribute]):
        for part in location.locations:
            yield from _names(part)
