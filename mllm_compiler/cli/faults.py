"""Every way in which a command ends, as an exit status and at most one line on stderr."""

from __future__ import annotations

import difflib
import io
import os
import platform
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType

import click

from mllm_compiler import __version__
from mllm_compiler.cli.lazy import UnknownCommand
from mllm_compiler.errors import OWN_FAULT, CompileError

PACKAGE = Path(__file__).resolve().parent.parent
INTERRUPTED = 130
TERMINATED = 143
CLOSED_PIPE = 141
OPTION = re.compile(r"--[a-z]+(-[a-z]+)*(?==|$)|-[a-zA-Z](?!-)")
"""The name of an option in a word of a command line."""


def guarded(command: str, action: Callable[[], int | None], arguments: Sequence[str]) -> int:
    """Runs a command; the answer is its exit status.

    Args:
        command: The program's name, for messages.
        action: The command.
        arguments: What the user typed; of these only the names of options reach a report.
    """
    signal.signal(signal.SIGTERM, _terminate)
    _prepare_streams()
    try:
        status = action() or 0
        sys.stdout.flush()
        return status
    except CompileError as error:
        return _told(error)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return 2
    except click.UsageError as error:
        say(usage_line(command, error))
        return 2
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return CLOSED_PIPE
    except MemoryError:
        remedy = "free memory, or use a smaller model"
        return _told(CompileError("MLC-X004", "out of memory", location=command, remedy=remedy))
    except Exception as fault:
        error = stdout_error(fault)
        if error is None:
            return _own_fault(command, fault, arguments)
        _drop_stdout()
        return _told(error)


def stdout_error(fault: Exception) -> CompileError | None:
    """The error of a stdout that cannot be written; None for any other fault.

    A fault of a file carries the file's name, one of a stream carries none.
    """
    if not isinstance(fault, OSError) or fault.filename is not None:
        return None
    remedy = "check the free space where stdout goes"
    return CompileError("MLC-U005", str(fault.strerror), location="stdout", remedy=remedy)


def say(line: str) -> None:
    """Writes a line to stderr, whatever has become of it."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def usage_line(command: str, error: click.UsageError) -> str:
    """A usage error as one located line with the nearest option or the way to the help."""
    where = error.ctx.command_path if error.ctx else command
    message = error.format_message()
    remedy = f"{where} --help lists what it takes"
    if isinstance(error, click.NoSuchOption):
        message = f"no such option: {error.option_name}"
        near = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1)
        remedy = f"did you mean {near[0]}?" if near else remedy
    if isinstance(error, UnknownCommand):
        remedy = error.remedy
    line = CompileError("MLC-U001", _lowered(message), location=where, remedy=remedy)
    return str(line)


def cache_folder() -> Path:
    """`$MLLM_CACHE`, else `$XDG_CACHE_HOME/mllm-compiler`, else `~/.cache/mllm-compiler`."""
    if own := os.environ.get("MLLM_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "mllm-compiler"


def report_text(command: str, fault: BaseException, arguments: Sequence[str]) -> str:
    """What a report says: versions, option names and where our code stood.

    No value of an option, no message of the fault and no path outside the package is in it, because
    those may name files, models or prompts.
    """
    options = [name[0] for word in arguments if (name := OPTION.match(word))]
    lines = [
        f"mllm-compiler {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}",
        f"command: {command} {' '.join(options)}".rstrip(),
        *_chain(fault),
    ]
    return "\n".join(lines) + "\n"


def _chain(fault: BaseException | None) -> list[str]:
    lines: list[str] = []
    while fault is not None:
        lines.append(f"fault: {type(fault).__module__}.{type(fault).__qualname__}")
        lines += _frames(fault.__traceback__)
        fault = fault.__cause__ or fault.__context__
    return lines


def _frames(trace: TracebackType | None) -> list[str]:
    return [
        f"  {_inside(Path(frame.filename))}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(trace)
    ]


def _inside(path: Path) -> str:
    """A file's path below our package, or its bare name."""
    return str(path.relative_to(PACKAGE.parent)) if path.is_relative_to(PACKAGE) else path.name


def fault_line(fault: Exception) -> str:
    """What and where, without any data: `KeyError at place.py:80 in place: a fault of ...`."""
    place = _frames(fault.__traceback__)[-1].strip() if fault.__traceback__ else "unknown place"
    return f"{type(fault).__name__} at {place}: a fault of this program"


def _own_fault(command: str, fault: Exception, arguments: Sequence[str]) -> int:
    report = cache_folder() / "reports" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    kept = f"a report without private data is in {report}, please send it"
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(report_text(command, fault, arguments), encoding="utf-8")
    except OSError:
        kept = "no report could be saved"
    say(str(CompileError(OWN_FAULT, fault_line(fault), location=command, remedy=kept)))
    if os.environ.get("MLLM_TRACEBACK"):
        traceback.print_exception(fault)
    return 70


def _told(error: CompileError) -> int:
    say(str(error))
    return error.exit_code


def _prepare_streams() -> None:
    """Closed streams swallow what is written; a name that is no UTF-8 is written with escapes."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leaves through `finally` blocks, so that nothing half-written stays behind."""
    raise SystemExit(TERMINATED)


def _drop_stdout() -> None:
    """Keeps the interpreter from failing once more when it flushes what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lowered(message: str) -> str:
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:]
