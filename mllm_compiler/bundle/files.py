"""Files that appear whole or not at all, and operating-system faults as one line."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mllm_compiler.errors import CompileError


@contextmanager
def atomic_output(path: Path) -> Generator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends without a fault.

    It is a sibling of `path` until then and is removed if the block fails.

    Raises:
        CompileError: `MLC-U005`, the operating system refuses.
    """
    partial = _partial(path)
    try:
        with partial.open("x+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as fault:
        raise file_error(fault, path) from fault
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def check_output(path: Path) -> None:
    """Whether `atomic_output` can make a file at `path`; asked before long work is done for it.

    Raises:
        CompileError: `MLC-U005`, the operating system refuses.
    """
    with reading(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        partial = _partial(path)
        partial.touch(exist_ok=False)
        partial.unlink()


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keeps other processes, and other threads, that lock the same folder waiting.

    Raises:
        CompileError: `MLC-U005`, the folder cannot be opened.
    """
    with reading(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Turns the operating system's faults while a user's file is read into one line.

    Raises:
        CompileError: `MLC-U005`.
    """
    try:
        yield
    except OSError as fault:
        raise file_error(fault, path) from fault


def file_error(fault: OSError, path: Path) -> CompileError:
    """The error of a file that cannot be read or written."""
    return CompileError(
        "MLC-U005",
        fault.strerror or str(fault),
        location=str(path),
        remedy="check the path, the permissions and the free space",
    )


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync_folder(folder: Path) -> None:
    """Makes the new name last through a power cut; not every file system offers it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
