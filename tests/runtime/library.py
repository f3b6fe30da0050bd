"""The runtime's core over cffi, as thin as tests need it: the header is the binding."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from runtime_stub.library import library_path
from tests.runtime.program_writer import DTYPES, Array, dtype_of

ROOT = Path(__file__).resolve().parents[2]
HEADERS = [ROOT / f"runtime_stub/include/{name}.h" for name in ("mllm_frame", "mllm")]
NUMPY = {number: name for name, number in DTYPES.items()}


class RunError(Exception):
    """An mllm_error."""

    def __init__(self, error: Any) -> None:
        self.status: int = error.status
        self.code: str = text(error.code)
        self.location: str = text(error.location)
        super().__init__(f"{self.location}: {text(error.message)} [{self.code}]")


def text(chars: Any) -> str:
    return ffi().string(chars).decode()


@functools.cache
def ffi() -> cffi.FFI:
    made = cffi.FFI()
    for header in HEADERS:
        lines = [
            line
            for line in header.read_text(encoding="utf-8").splitlines()
            if not line.startswith(("#", 'extern "C"'))
        ]
        body = "\n".join(lines)
        made.cdef(body[: body.rindex(";") + 1])
    return made


@functools.cache
def library() -> Any:
    return ffi().dlopen(str(library_path()))


class Model:
    """A program and its weights; frees itself."""

    def __init__(self, program: bytes, weights: bytes, cpu: str | None = None) -> None:
        self.weights = np.zeros(len(weights) // 8 + 1, np.uint64)
        self.weights.view(np.uint8)[: len(weights)] = np.frombuffer(weights, np.uint8)
        name = ffi().NULL if cpu is None else ffi().new("char[]", cpu.encode())
        options = ffi().new("mllm_model_options *", {"abi": 1, "cpu": name})
        made, error = ffi().new("mllm_model **"), ffi().new("mllm_error *")
        place = ffi().cast("void *", self.weights.ctypes.data)
        status = library().mllm_model_create(
            program, len(program), place, len(weights), options, made, error
        )
        if status:
            raise RunError(error)
        self.handle = ffi().gc(made[0], library().mllm_model_destroy)

    def entry(self, name: str) -> int:
        found: int = library().mllm_model_find_entry(self.handle, name.encode())
        return found


class Session:
    """A session of a model; runs entries with arrays by name."""

    def __init__(self, model: Model, threads: int = 2, max_tokens: int = 0) -> None:
        self.model = model
        options = ffi().new(
            "mllm_session_options *", {"threads": threads, "max_tokens": max_tokens}
        )
        made, error = ffi().new("mllm_session **"), ffi().new("mllm_error *")
        if library().mllm_session_create(model.handle, options, made, error):
            raise RunError(error)
        self.handle = ffi().gc(made[0], library().mllm_session_destroy)

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] = ("y",), entry: str = "main"
    ) -> list[Array]:
        """Copies of the outputs, which the caller's memory receives."""
        given = list(tensors(inputs))
        array = ffi().new("mllm_tensor[]", [fields for fields, _ in given])
        wanted = self.shapes(array, len(given), outputs, entry)
        results: list[Array] = []
        for tensor in wanted:
            result = np.zeros(list(tensor.dims[0 : tensor.rank]), numpy_dtype(tensor.dtype))
            tensor.data = ffi().cast("void *", result.ctypes.data)
            results.append(result)
        self.call(library().mllm_run, array, len(given), wanted, entry)
        return results

    def run_in_place(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] = (), entry: str = "main"
    ) -> list[Array]:
        """Leaves the outputs in their default places; copies of those that are named."""
        given = list(tensors(inputs))
        array = ffi().new("mllm_tensor[]", [fields for fields, _ in given])
        wanted = ffi().new("mllm_tensor[]", len(outputs))
        names = [ffi().new("char[]", name.encode()) for name in outputs]
        for tensor, name in zip(wanted, names, strict=True):
            tensor.name = name
        self.call(library().mllm_run, array, len(given), wanted, entry)
        return [
            np.frombuffer(ffi().buffer(t.data, t.bytes), numpy_dtype(t.dtype))
            .reshape(list(t.dims[0 : t.rank]))
            .copy()
            for t in wanted
        ]

    def shapes(self, given: Any, count: int, outputs: Sequence[str], entry: str) -> Any:
        wanted = ffi().new("mllm_tensor[]", len(outputs))
        self.names = [ffi().new("char[]", name.encode()) for name in outputs]
        for tensor, name in zip(wanted, self.names, strict=True):
            tensor.name = name
        self.call(library().mllm_run_shapes, given, count, wanted, entry)
        return wanted

    def call(self, function: Any, given: Any, count: int, wanted: Any, entry: str) -> None:
        error = ffi().new("mllm_error *")
        index = self.model.entry(entry) % (1 << 32)
        if function(self.handle, index, given, count, wanted, len(wanted), error):
            raise RunError(error)

    @property
    def length(self) -> int:
        found: int = library().mllm_session_cache_length(self.handle, 0)
        return found


def tensors(inputs: Mapping[str, Array]) -> list[tuple[dict[str, Any], object]]:
    """Struct fields of each array, and what keeps their memory alive."""
    made: list[tuple[dict[str, Any], object]] = []
    for name, value in inputs.items():
        dense = np.ascontiguousarray(value)
        chars = ffi().new("char[]", name.encode())
        fields: dict[str, Any] = {
            "name": chars,
            "data": ffi().cast("void *", dense.ctypes.data),
            "bytes": dense.nbytes,
            "dtype": DTYPES[dtype_of(dense)],
            "rank": value.ndim,
            "dims": list(value.shape) + [0] * (8 - value.ndim),
        }
        made.append((fields, (dense, chars)))
    return made


def numpy_dtype(number: int) -> np.dtype[Any]:
    name = NUMPY[number]
    if name == "bf16":
        return np.dtype(np.uint16)
    if name == "bool":
        return np.dtype(np.bool_)
    return np.dtype(f"{name[0]}{int(name[1:]) // 8}")
