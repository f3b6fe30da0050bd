"""A command group whose commands are imported when they are called, so that help is fast."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple, cast

import click


class Entry(NamedTuple):
    """Where a command stands, and the line that the group's help shows of it."""

    module: str
    attribute: str
    help: str


class UnknownCommand(click.UsageError):
    """A command that the group does not have.

    Attributes:
        remedy: The nearest command.
    """

    def __init__(self, message: str, remedy: str, ctx: click.Context) -> None:
        super().__init__(message, ctx)
        self.remedy = remedy


class LazyGroup(click.Group):
    """A group over a table of commands.

    Args:
        table: The commands by name, in the order of the help.
        name: The group's own name.
        help: The group's own help.
    """

    def __init__(self, table: Mapping[str, Entry], *, name: str, help: str) -> None:
        super().__init__(name=name, help=help, no_args_is_help=True)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        return cast(click.Command, getattr(import_module(entry.module), entry.attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; an unknown one is answered with its nearest neighbour.

        Raises:
            UnknownCommand: There is no such command.
        """
        if args and not args[0].startswith("-") and args[0] not in self.table:
            near = difflib.get_close_matches(args[0], self.table, n=1) or list(self.table)
            hint = f"did you mean {near[0]}?" if len(near) == 1 else f"one of {', '.join(near)}"
            raise UnknownCommand(f"no such command '{args[0]}'", hint, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])
