"""Shows the IR after each pass: files of a folder, or stderr; reads such a file back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from mllm_compiler.bundle.files import atomic_output, reading
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.printing import text_of
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import PassRecord
from mllm_compiler.weights import WeightStore

SHOWN = 6
"""How many kinds of operation the head of a dump names."""


@dataclass(frozen=True)
class DumpFolder:
    """Writes `03-lift-attention.mlir`: what the pass left, with locations, to be read back.

    The same model gives the same bytes, so times stand in a report and not here.

    Attributes:
        folder: Where; it is made.
    """

    folder: Path

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """Writes one file."""
        with reading(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{record.number:02d}-{record.name}.mlir"
        with atomic_output(path) as out:
            out.write(f"{head(record)}\n{text_of(module)}\n".encode())


@dataclass(frozen=True)
class PrintAfter:
    """Prints the module after each pass, as `--print-ir-after-all` wants it.

    Attributes:
        write: Takes the text.
    """

    write: Callable[[str], None]

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """Prints the module."""
        self.write(f"// -----// IR Dump After {record.name} //----- //\n{text_of(module)}\n")


def head(record: PassRecord) -> str:
    """The comment at the head of a dump."""
    kinds = [f"{count} {name}" for name, count in list(record.ops.items())[:SHOWN]]
    more = len(record.ops) - SHOWN
    kinds += [f"{more} more kinds"] if more > 0 else []
    return f"// after {record.name}: {record.op_count} operations: {', '.join(kinds)}"


def read_dump(path: Path, store: WeightStore) -> ModuleOp:
    """The module of a dump.

    Raises:
        CompileError: MLC-U005, it cannot be read; MLC-U008, it does not parse.
    """
    with reading(path):
        raw = path.read_bytes()
    try:
        return Parser(make_context(store), raw.decode(), str(path)).parse_module()
    except ParseError as fault:
        raise unparsed(fault) from None
    except UnicodeDecodeError as fault:
        text = f"byte {fault.start} is not UTF-8 text"
        remedy = "give a .mlir file"
        raise CompileError("MLC-U008", text, location=str(path), remedy=remedy) from None


def unparsed(fault: ParseError) -> CompileError:
    """The error of text that is no IR."""
    # xDSL 0.75 says "{first_char}" itself, where it means the character.
    text = fault.msg.replace("{first_char}", f"'{fault.span.text[:1]}'")
    return CompileError(
        "MLC-U008",
        text.strip().splitlines()[0],
        location=str(fault.span.get_location()),
        remedy="docs/dialects.md shows how each operation is written",
    )
