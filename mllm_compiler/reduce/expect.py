"""Whether a model shows a failure: an error code of ours, or a command that fails."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

NOT_RUN = (126, 127)
"""How a shell says that there is no such command, or that it cannot be run."""

SHOWN = 400
"""Characters of a command's last line that are kept."""


@dataclass(frozen=True)
class Limits:
    """What a try may take.

    Attributes:
        seconds: Wall time; a try that takes longer does not show the failure.
        mebibytes: Memory of each process.
    """

    seconds: float = 120.0
    mebibytes: int = 8192


@dataclass(frozen=True)
class Outcome:
    """What a try ended with.

    Attributes:
        failed: It shows the failure that is looked for.
        said: The line that says what happened.
    """

    failed: bool
    said: str


class Test(Protocol):
    """Says of a model whether it fails in the way that is looked for."""

    def outcome(self, model: Path) -> Outcome:
        """What becomes of a model."""
        ...

    def close(self) -> None:
        """Ends what the test has started."""
        ...


@dataclass
class CodeTest:
    """Compiles the model in a child process; it fails where the compiler answers with a code.

    Attributes:
        code: The code.
        target: The target to compile for.
        match: A pattern that the error's line must contain.
        limits: What a compilation may take.
    """

    code: str
    target: str = "c"
    match: re.Pattern[str] | None = None
    limits: Limits = field(default_factory=Limits)
    _worker: subprocess.Popen[bytes] | None = None

    def outcome(self, model: Path) -> Outcome:
        """Compiles the model."""
        worker = self._worker or self._start()
        answer = _ask(worker, json.dumps(str(model)), self.limits.seconds)
        if not answer:
            late = f"it took over {self.limits.seconds:g} s"
            said = late if answer is None else f"the compiler ended with status {worker.wait()}"
            self.close()
            return Outcome(False, said)
        code, said = json.loads(answer)
        matches = self.match is None or self.match.search(said) is not None
        return Outcome(code == self.code and matches, said)

    def close(self) -> None:
        """Ends the child process."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
        self._worker = None

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "mllm_compiler.reduce.worker", self.target]
        self._worker = subprocess.Popen(
            [*words, str(self.limits.mebibytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._worker


@dataclass
class CommandTest:
    """Runs a shell command; the model fails where it ends with the first model's status, not 0.

    The path of the model takes the place of `{}`, or is the last argument.

    Attributes:
        command: The command.
        match: A pattern that what the command prints must contain.
        limits: What a run may take.
    """

    command: str
    match: re.Pattern[str] | None = None
    limits: Limits = field(default_factory=Limits)
    _status: int | None = None

    def outcome(self, model: Path) -> Outcome:
        """Runs the command."""
        path = shlex.quote(str(model.resolve()))
        command = (
            self.command.replace("{}", path) if "{}" in self.command else (f"{self.command} {path}")
        )
        with subprocess.Popen(
            f"ulimit -d {self.limits.mebibytes * 1024}; {command}",
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=self.limits.seconds)
            except subprocess.TimeoutExpired:
                return Outcome(False, f"it took over {self.limits.seconds:g} s")
            finally:
                _end_group(process.pid)
        return self._judged(process.returncode, printed.decode(errors="replace"))

    def close(self) -> None:
        """Nothing is left running."""

    def _judged(self, status: int, printed: str) -> Outcome:
        last = (printed.strip().splitlines() or [""])[-1][:SHOWN]
        said = f"status {status}{': ' if last else ''}{last}"
        failed = status not in (0, *NOT_RUN) and status == (self._status or status)
        failed = failed and (self.match is None or self.match.search(printed) is not None)
        if failed:
            self._status = status
        return Outcome(failed, said)


def _ask(process: subprocess.Popen[bytes], question: str, seconds: float) -> bytes | None:
    """The line that a process answers with; empty where it ends, None where it takes longer."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{question}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(seconds) else None


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
