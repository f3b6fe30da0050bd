"""`mllmc`: compiles a model, explains, runs, signs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from mllm_compiler import __version__
from mllm_compiler.cli.faults import guarded
from mllm_compiler.cli.lazy import Entry, LazyGroup

HERE = "mllm_compiler.cli"

COMMANDS = {
    "compile": Entry(f"{HERE}.compile", "compile_command", "Compile a model into a signed bundle."),
    "quantize": Entry(
        f"{HERE}.quantize",
        "quantize_command",
        "Quantise a model into a bundle, or refresh the scales of one from new data.",
    ),
    "run": Entry(f"{HERE}.run", "run_command", "Run a bundle: text, image and sound, or tensors."),
    "check": Entry(f"{HERE}.check", "check_group", "Hold a bundle to gates."),
    "explain": Entry(f"{HERE}.explain", "explain_command", "Say where each operation would run."),
    "reduce": Entry(
        f"{HERE}.reduce", "reduce_command", "Find the smallest model that still fails."
    ),
    "export": Entry(
        f"{HERE}.export", "export_command", "Write a model, or a dump (.mlir) of one, as ONNX."
    ),
    "bundle": Entry(f"{HERE}.bundle", "bundle_group", "Keys, signatures and contents of bundles."),
    "doctor": Entry(
        f"{HERE}.doctor", "doctor_command", "Say what is installed and what is missing."
    ),
}
"""The commands, in the order of the help."""


def command_group() -> LazyGroup:
    """The whole command line."""
    group = LazyGroup(
        COMMANDS,
        name="mllmc",
        help="Compile multimodal models from ONNX to the chip and run them.\n\nMODEL is an .onnx "
        "file, a model.toml, a directory with one, or the name of a recipe in models/.",
    )
    click.version_option(__version__, prog_name="mllmc")(group)
    return group


def run(arguments: Sequence[str]) -> int:
    """Runs a command line; the answer is the exit status."""
    words = list(arguments)
    group = command_group()
    return guarded(
        "mllmc", lambda: group.main(words, prog_name="mllmc", standalone_mode=False), words
    )


def main() -> None:
    """The program `mllmc`."""
    sys.exit(run(sys.argv[1:]))
