"""What a person sees: progress on a terminal and none in a pipe, tables, one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mllm_compiler.cli.faults import say

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Says what is going on: a spinner's text on a terminal, nothing in a pipe.

    Args:
        status: The spinner; None in a pipe.
    """

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def step(self, text: str) -> None:
        """The work's next step."""
        if self._status is not None:
            self._status.update(text)

    def say(self, line: str) -> None:
        """A line that stays, on stderr, in a pipe too."""
        if self._status is None:
            say(line)
        else:
            self._status.console.print(line, markup=False, highlight=False)


@contextmanager
def progress(text: str) -> Generator[Progress]:
    """Progress of one piece of work, on stderr.

    Args:
        text: The first step.
    """
    if not sys.stderr.isatty():
        yield Progress(None)
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield Progress(status)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table on stdout: drawn on a terminal, plain columns in a pipe."""
    if not sys.stdout.isatty():
        plain_table(columns, rows)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, title=title, title_justify="left")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints columns that stand below each other, two blanks apart."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_line(line.rstrip())


def write_line(line: str) -> None:
    """Prints a line on stdout."""
    sys.stdout.write(f"{line}\n")


def write_json(value: object) -> None:
    """Prints one JSON object on stdout: laid out on a terminal, one line in a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    write_line(json.dumps(value, indent=indent, ensure_ascii=False))
    sys.stdout.flush()
