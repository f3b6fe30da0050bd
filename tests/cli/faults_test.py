"""How commands end: statuses, one line, and reports that name nothing private."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from mllm_compiler import __version__
from mllm_compiler.cli.faults import guarded
from mllm_compiler.cli.main import COMMANDS, command_group
from mllm_compiler.errors import CompileError

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLLM_CACHE", str(tmp_path / "cache"))


def fail_with(fault: BaseException) -> None:
    raise fault


def test_a_fault_of_ours_is_70_with_a_report_without_private_data(
    tmp_path: Path, capsys: Captured
) -> None:
    words = ["run", "secret.mllm_bundle", "--prompt", "my secret", "--image=secret.png"]
    words += ["-osecret.mllm_bundle", "-- my secret", "--system", "-secret"]
    status = guarded("mllmc", lambda: fail_with(KeyError("secret name")), words)
    line = capsys.readouterr().err
    assert status == 70
    assert line.count("\n") == 1
    assert "KeyError at faults_test.py" in line
    assert "[MLC-F000]" in line
    (report,) = (tmp_path / "cache" / "reports").iterdir()
    text = report.read_text()
    assert "--prompt --image" in text
    assert "KeyError" in text
    assert "secret" not in text
    assert str(tmp_path) not in text


def test_a_fault_is_told_even_where_no_report_can_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLLM_CACHE", str(tmp_path / "file"))
    assert guarded("mllmc", lambda: fail_with(KeyError("x")), []) == 70
    assert "no report could be saved" in capsys.readouterr().err


def test_a_name_moves_neither_line_nor_cursor() -> None:
    line = str(CompileError("MLC-R001", "no home", location="a\nb\x1b[31m\u00e9"))
    assert line == "a\\nb\\x1b[31m\u00e9: error: no home [MLC-R001]"


@pytest.mark.parametrize(
    ("fault", "status"),
    [(KeyboardInterrupt(), 130), (click.Abort(), 130), (click.exceptions.Exit(3), 3)],
)
def test_other_ends(fault: BaseException, status: int) -> None:
    assert guarded("mllmc", lambda: fail_with(fault), []) == status


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_its_own(name: str) -> None:
    entry = COMMANDS[name]
    command = getattr(import_module(entry.module), entry.attribute)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.get_short_help_str(100) == entry.help


def test_help_lists_every_command_without_importing_one() -> None:
    code = "import sys; from mllm_compiler.cli.main import run; run(['--help']); "
    code += "print([name for name in ('numpy', 'xdsl', 'onnx', 'rich') if name in sys.modules])"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 5
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(name in done.stdout for name in COMMANDS)


def test_a_closed_pipe_is_quiet() -> None:
    code = "import sys; sys.argv = ['mllmc', '--help']; "
    code += "from mllm_compiler.cli.main import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert "Traceback" not in done.stderr


FULL = ["--help"], ["--version"], ["doctor"], ["bundle", "inspect", "--help"]


def program(module: str, words: Sequence[str], **streams: object) -> subprocess.CompletedProcess:
    code = f"import sys; sys.argv[1:] = {list(words)!r}; "
    code += f"from mllm_compiler.cli.{module} import main; main()"
    return subprocess.run([sys.executable, "-c", code], check=False, text=True, **streams)


@pytest.mark.parametrize("words", FULL, ids=" ".join)
def test_a_full_disk_behind_stdout_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = program("main", words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.startswith("stdout: error: No space left on device [MLC-U005] (")
    assert done.stderr.count("\n") == 1


def test_a_full_disk_behind_stdout_of_a_long_module(tmp_path: Path) -> None:
    """Above the buffer's size the write itself fails, and nothing is left for the last flush."""
    ops = (f"  %v{n} = arith.constant {n} : i64\n" for n in range(1000))
    (tmp_path / "long.mlir").write_text("builtin.module {\n" + "".join(ops) + "}\n")
    with open("/dev/full", "w") as full:
        words = [str(tmp_path / "long.mlir")]
        done = program("opt", words, stdout=full, stderr=subprocess.PIPE)
    assert done.stderr.startswith("stdout: error: No space left on device [MLC-U005] (")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_closed_streams_swallow_what_is_written() -> None:
    for closed in ("1>&-", "2>&-", "1>&- 2>&-"):
        command = f'exec "$0" -m mllm_compiler.cli doctor {closed}'
        done = subprocess.run(
            ["sh", "-c", command, sys.executable], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_no_memory_is_one_line(capsys: Captured) -> None:
    assert guarded("mllmc compile", lambda: fail_with(MemoryError()), []) == 1
    assert capsys.readouterr().err.startswith("mllmc compile: error: out of memory [MLC-X004] (")


def test_a_fault_of_a_file_is_not_one_of_stdout(capsys: Captured) -> None:
    fault = OSError(errno.EIO, "Input/output error", "secret")
    assert guarded("mllmc", lambda: fail_with(fault), []) == 70


def test_mllm_opt_says_its_own_version() -> None:
    done = program("opt", ["--version"], capture_output=True)
    assert done.stdout == f"mllm-opt, version {__version__} (xDSL {version('xdsl')})\n"


def test_the_group_is_called_mllmc() -> None:
    assert command_group().name == "mllmc"
