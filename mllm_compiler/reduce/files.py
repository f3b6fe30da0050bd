"""Files of candidates: their tensors stay in the model's own files until they are few.

A candidate whose tensors take little is one file that holds them. A larger one points into hard
links of the model's files, so that nothing is copied, and a filled tensor into a file of zeros that
takes no room on the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import onnx_ir as ir
from onnx import ModelProto, TensorProto

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.tensors import file_inside
from mllm_compiler.reduce.proto import Types, copy_of, tensors

SMALL: Final = 32 << 20
"""Bytes of tensors up to which a candidate holds them itself."""

LARGEST: Final = (1 << 31) - (1 << 20)
"""Bytes that a protobuf can hold, less some for the graph."""

ZEROS: Final = "zeros.bin"


@dataclass(frozen=True)
class Files:
    """The files of a model, and a folder to write candidates into.

    Attributes:
        source: The model's file.
        folder: Where candidates are written.
    """

    source: Path
    folder: Path

    def write(self, model: ModelProto) -> Path:
        """Writes a candidate; the same path each time."""
        path = self.folder / "candidate.onnx"
        if self.size(model) <= SMALL:
            path.write_bytes(self.whole(model))
            return path
        for location in sorted({_facts(t)["location"] for t in _external(model)}):
            self._link(location)
        path.write_bytes(model.SerializeToString(deterministic=True))
        return path

    def size(self, model: ModelProto) -> int:
        """The bytes of the tensors that are not in the model itself."""
        return sum(_nbytes(t) for t in _external(model))

    def whole(self, model: ModelProto) -> bytes:
        """The model as one file.

        Raises:
            CompileError: Its tensors are more than a protobuf holds.
        """
        size = self.size(model)
        if size > LARGEST:
            raise CompileError(
                "MLC-U012",
                f"the smallest model that fails holds {size} bytes of weights, a file {LARGEST}",
                location=str(self.source),
                remedy="attach the model itself",
            )
        full = copy_of(model)
        for tensor in _external(full):
            self._embed(tensor)
        return full.SerializeToString(deterministic=True)

    def filled(self, model: ModelProto, names: Collection[str], types: Types) -> ModelProto:
        """The model whose named tensors are zeros."""
        full = copy_of(model)
        chosen = [t for t in _external(full) if t.name in names and _nbytes(t)]
        for tensor in chosen:
            facts = {"location": ZEROS, "offset": "0", "length": str(_nbytes(tensor))}
            del tensor.external_data[:]
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=value)
        largest = max((_nbytes(t) for t in chosen), default=0)
        zeros = self.folder / ZEROS
        if largest and (not zeros.exists() or zeros.stat().st_size < largest):
            with zeros.open("ab") as out:
                out.truncate(largest)
        return full

    def large(self, model: ModelProto) -> list[str]:
        """The tensors that `filled` can fill."""
        return [t.name for t in _external(model) if _facts(t)["location"] != ZEROS]

    def _link(self, location: str) -> None:
        file, link = self._file(location), self.folder / location
        if file is None or link.exists():
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(os.path.realpath(file), link)
        except OSError:
            shutil.copyfile(file, link)

    def _embed(self, tensor: TensorProto) -> None:
        """Takes the bytes of a tensor into it; one that cannot be read stays as it is."""
        facts, wanted = _facts(tensor), _nbytes(tensor)
        file = self._file(facts["location"])
        if facts["location"] == ZEROS:
            raw = bytes(wanted)
        elif file is None:
            return
        else:
            with file.open("rb") as source:
                source.seek(int(facts.get("offset", "0")))
                raw = source.read(wanted)
        if len(raw) == wanted == int(facts.get("length", wanted)):
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = raw

    def _file(self, location: str) -> Path | None:
        """The file of a location, where it lies beside the model."""
        with suppress(OSError, ValueError):
            file = file_inside(self.source.parent, location)
            return file if file is not None and file.is_file() else None
        return None


def _external(model: ModelProto) -> list[TensorProto]:
    return [
        t
        for t in tensors(model)
        if t.data_location == TensorProto.EXTERNAL and "location" in _facts(t)
    ]


def _facts(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _nbytes(tensor: TensorProto) -> int:
    """The bytes that a tensor's shape and type need; 0 where it has none."""
    try:
        bits = ir.DataType(tensor.data_type).bitwidth
    except (ValueError, TypeError):
        return 0
    return max(0, -(-bits * prod(tensor.dims) // 8))
