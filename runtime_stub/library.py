"""Finds `libmllm` and declares its functions from the installed headers."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

from cffi import FFI

import runtime_stub
from runtime_stub.failure import RuntimeFailure

CData: TypeAlias = Any
"""A C value; cffi gives it no better type."""

LIBRARY: Final = "libmllm.so"
PARTS: Final = ("_frame", "", "_pool", "_devices", "_kv", "_schedule")
HEADERS: Final = tuple(f"include/mllm{part}.h" for part in PARTS)
VARIABLE: Final = "MLLM_LIBRARY"
"""The environment variable that names another build of the library."""

OK: Final = 0

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Library(Protocol):
    """`libmllm`, its functions by their names in C."""

    def __getattr__(self, name: str) -> CData: ...


ffi: CData = FFI()


def library_path() -> Path:
    """The shared library that is used.

    Raises:
        ImportError: It was not built.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    for folder in runtime_stub.__path__:
        path = Path(folder) / LIBRARY
        if path.exists():
            return path
    raise ImportError(f"{LIBRARY} is not built; install the package with a C compiler at hand")


def library_version() -> str:
    """The version that the loaded library says it is."""
    return text_of(library().mllm_version())


@cache
def library() -> Library:
    """The loaded library, checked against the header.

    Raises:
        ImportError: It was not built, or is of another version than the header.
    """
    path = library_path()
    _declare()
    try:
        loaded = cast(Library, ffi.dlopen(str(path)))
    except OSError as fault:
        raise ImportError(str(fault)) from fault
    version = loaded.mllm_abi_version()
    if version != loaded.MLLM_ABI_VERSION:
        raise ImportError(f"{path} has interface {version}, not that of its header")
    return loaded


def declarations(header: str) -> str:
    """A C header without what the preprocessor would take away."""
    plain = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
    return re.sub(r"^\s*#.*$", "", plain, flags=re.MULTILINE)


def text_of(pointer: CData) -> str:
    """A NUL-terminated C string."""
    return (
        "" if pointer == ffi.NULL else cast(bytes, ffi.string(pointer)).decode("utf-8", "replace")
    )


def bytes_of(text: str) -> bytes:
    """A text in UTF-8, for C; a surrogate, which is no character, becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text).encode()


def new_error() -> CData:
    """An empty `mllm_error`."""
    library()
    return ffi.new("mllm_error *")


def check(status: int, error: CData) -> None:
    """Raises what an `mllm_error` tells.

    Raises:
        RuntimeFailure: The status is not `MLLM_OK`.
    """
    if status == OK:
        return
    message = text_of(error.message) or text_of(library().mllm_status_name(status))
    raise failure(text_of(error.code) or "MLC-X001", message, location=text_of(error.location))


def failure(code: str, message: str, *, location: str = "") -> RuntimeFailure:
    """A failure with the remedy that the library has for its code."""
    remedy = text_of(library().mllm_remedy(code.encode()))
    return RuntimeFailure(code, message, location=location, remedy=remedy)


@cache
def _declare() -> None:
    for header in HEADERS:
        ffi.cdef(declarations(_text(header)))


def _text(header: str) -> str:
    for folder in runtime_stub.__path__:
        path = Path(folder) / header
        if path.exists():
            return path.read_text("utf-8")
    raise ImportError(f"{header} is not installed beside {LIBRARY}")
