"""Collects `.mlir` files: each RUN line is a test, run in this process instead of by a shell.

The same files run under `lit` (`tests/lit.cfg.py`). A RUN line is a pipe of `mllm-opt` and
`filecheck`; `not` in front of `mllm-opt` wants it to fail, `2>&1` joins stderr to stdout.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

from mllm_compiler.bundle.signature import public_bytes
from mllm_compiler.cli import opt
from tests.bundle.small_bundle import KEY


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".mlir":
        return MlirFile.from_parent(parent, path=file_path)
    return None


class MlirFile(pytest.File):
    """A lit test: every `// RUN:` line of it is an item."""

    def collect(self) -> Iterator[pytest.Item]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        runs = [line.split("RUN:", 1)[1].strip() for line in lines if "RUN:" in line]
        if not runs:
            raise self.CollectError(f"{self.path} has no RUN line")
        for index, command in enumerate(runs):
            yield MlirRun.from_parent(self, name=f"run{index}", command=command)


class MlirRun(pytest.Item):
    """One RUN line."""

    def __init__(self, *, command: str, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.command = command

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            line = self.command.replace("%s", str(self.path)).replace("%t", f"{scratch}/t")
            text = ""
            for part in line.split("|"):
                text = step(shlex.split(part), text)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, StepError):
            return f"RUN: {self.command}\n{excinfo.value}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.command}"


class StepError(Exception):
    """A command of a RUN line that did not answer as it should."""


def step(words: list[str], text: str) -> str:
    """Runs one command of a pipe on the text of the one before."""
    joined = "2>&1" in words
    words = [word for word in words if word != "2>&1"]
    fails = words[0] == "not"
    words = words[1:] if fails else words
    if words[0] == "filecheck":
        return check(words[1:], text)
    if words[0] != "mllm-opt":
        raise StepError(f"only mllm-opt and filecheck are known here, not {words[0]}")
    return optimise(words[1:], text, fails=fails, joined=joined)


def optimise(words: list[str], text: str, *, fails: bool, joined: bool) -> str:
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    with (
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = opt.run(words)
    if (status != 0) != fails:
        raise StepError(f"mllm-opt ended with status {status}\n{err.getvalue()}")
    return out.getvalue() + (err.getvalue() if joined else "")


def check(words: list[str], text: str) -> str:
    options = parse_argv_options(["filecheck", *words])
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(err):
        status = Matcher(options, FInput("<input>", text), Parser.from_opts(options)).run()
    if status != 0:
        raise StepError(f"{err.getvalue()}\n{text}")
    return ""


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says whose bundles are believed: the tests' own key alone."""
    path = tmp_path_factory.mktemp("trust") / "trust"
    path.write_text(f"# the tests' own\n{public_bytes(KEY).hex()}  # key\n")
    return path
