"""What is asked of an open bundle: the C runtime or the NumPy reference, one face."""

from __future__ import annotations

import resource
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.bundle.verify import Bundle
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.loop import Ask

__all__ = ["Access", "Ask", "Facts", "Session", "session_of"]

Array = NDArray[np.generic]
Facts = dict[str, object]
"""What `--json` prints."""


class Session(Protocol):
    """An open bundle that runs."""

    def answer(self, ask: Ask, emit: Callable[[str], None]) -> Facts:
        """Answers; each piece of text is emitted as it comes."""
        ...

    def run_tensors(self, inputs: Path, outputs: Path, entry: str | None) -> Facts:
        """Runs an entry on the tensors of a file."""
        ...


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a bundle is opened.

    Attributes:
        trust: A file of public keys; the user's own where none is given.
        allow_unsigned: Whether nobody need vouch for it.
        threads: Of the C runtime; 0 is one per core.
    """

    trust: Path | None = None
    allow_unsigned: bool = False
    threads: int = 0


@contextmanager
def session_of(bundle: Bundle, access: Access) -> Generator[Session]:
    """The session of the target that the bundle was compiled for; it checks every byte.

    Raises:
        CompileError: The runtime refuses the bundle or what it is asked, or is not installed; a
            fault that lies in no file is located at the bundle.
    """
    try:
        with _opened(bundle, access) as session:
            yield session
    except CompileError as error:
        error.location = error.location or str(bundle.path)
        raise


@contextmanager
def _opened(bundle: Bundle, access: Access) -> Generator[Session]:
    if "c" not in bundle.manifest.targets:
        from mllm_compiler.generation.model import open_model
        from mllm_compiler.sessions.on_numpy import NumpySide

        yield NumpySide(open_model(bundle))
        return
    from mllm_compiler.sessions.on_c import opened

    with opened(bundle, access) as session:
        yield session


def chosen_entry(bundle: Bundle, entry: str | None, names: Iterable[str]) -> str:
    """The entry to run: the one that is named, else the only one that takes these tensors.

    Raises:
        CompileError: `MLC-D004`, there is no such entry, or more than one.
    """
    known = bundle.manifest.entries
    if entry is not None and entry in known:
        return entry
    given = set(names)
    fitting = [n for n, e in known.items() if {tensor.name for tensor in e.inputs} <= given]
    if entry is None and len(fitting) == 1:
        return fitting[0]
    asked = f"has no graph '{entry}'" if entry is not None else "--entry is needed"
    raise CompileError(
        "MLC-D004",
        f"{asked} (it has: {', '.join(known)})",
        location=str(bundle.path),
        remedy="name one with --entry",
    )


def tensor_facts(entry: str, outputs: Path, arrays: Mapping[str, Array]) -> Facts:
    """What is said of a run on tensors."""
    shapes = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    return {"entry": entry, "outputs": str(outputs), "tensors": shapes}


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
