"""One hostile model through `mllmc compile`, and what must never come of it."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from mllm_compiler.cli.main import run
from tests.fuzz.seeds import DATA, DATA_BYTES

LINE = re.compile(r"(.+: )?error: .+ \[(MLC-[A-Z]\d{3})\]( \(.+\))?\n", re.DOTALL)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOVES = {"os.rename", "os.link", "os.symlink"}
RELATIVE = {"os.mkdir", "os.remove", "os.rmdir"}
"""What may name a path below an open folder, whose handle is the last argument."""
CHANGES = MOVES | RELATIVE | {"os.truncate"}
LARGEST_LINE = 2000
COMPILED = "compiled"
OWN_FAULT = 70


class FindingError(AssertionError):
    """What must never come of a model; the message says what did."""


class Sandbox:
    """Folders for a model and what is made of it; nothing else may be written.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "in" / "model.onnx"
        self.output = folder / "out" / "model.mllm_bundle"
        self.watching = False
        self.outside: list[str] = []
        for place in ("in", "out", "tmp"):
            (folder / place).mkdir()
        self.model.with_name(DATA).write_bytes(DATA_BYTES)
        sys.addaudithook(self._see)

    def attempt(self, data: bytes) -> str:
        """Compiles the bytes of a model; the answer is `compiled`, or the code of the refusal.

        Raises:
            FindingError: Anything else came of it.
        """
        self.model.write_bytes(data)
        out, err = io.StringIO(), io.StringIO()
        with self._watched(), redirect_stdout(out), redirect_stderr(err):
            words = ["compile", str(self.model), "--unsigned", "-o", str(self.output)]
            status = run(words)
        written = sorted(path.name for path in self.output.parent.iterdir())
        self.output.unlink(missing_ok=True)
        if self.outside and status != OWN_FAULT:
            raise FindingError(f"it wrote to {self.outside}")
        if status == 0 and err.getvalue() == "" and written == [self.output.name]:
            return COMPILED
        return self._refusal(status, err.getvalue(), written)

    def _refusal(self, status: int, text: str, written: list[str]) -> str:
        line = LINE.fullmatch(text)
        if status not in (1, 3) or line is None or text.count("\n") > 1:
            raise FindingError(f"status {status}: {text}")
        if len(text) > LARGEST_LINE:
            raise FindingError(f"a line of {len(text)} characters: {text[:200]}")
        if line[2] == "MLC-X004":
            raise FindingError("it takes more memory than it may")
        if written:
            raise FindingError(f"it left {written}: {text}")
        return line[2]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self.outside.clear()
        before, tempfile.tempdir = tempfile.tempdir, str(self.folder / "tmp")
        self.watching = True
        try:
            yield
        finally:
            self.watching = False
            tempfile.tempdir = before

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        """Notes what is opened for writing, made or removed outside of the sandbox."""
        if not self.watching or not self._changes(event, arguments):
            return
        handle = arguments[-1] if event in RELATIVE else -1
        base = Path.cwd() if handle == -1 else Path(f"/proc/self/fd/{handle}").readlink()
        for path in arguments[: 2 if event in MOVES else 1]:
            if not isinstance(path, str | bytes | os.PathLike):
                continue
            place = base / os.fsdecode(path)
            if not any(place.is_relative_to(self.folder / name) for name in ("out", "tmp")):
                self.outside.append(f"{event} {place}")

    def _changes(self, event: str, arguments: tuple[object, ...]) -> bool:
        if event != "open":
            return event in CHANGES
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & WRITES)
