"""`mllm-opt`: reads a module, runs passes, prints the module; `xdsl-opt` plus ours."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, NoReturn

import click
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from mllm_compiler import __version__
from mllm_compiler.bundle.files import file_error, reading
from mllm_compiler.cli.faults import guarded, say
from mllm_compiler.dialects import DIALECTS, CompilerContext, dialect_factory
from mllm_compiler.dialects.printing import ExactTarget, text_of
from mllm_compiler.dialects.verify import verify
from mllm_compiler.dumps import unparsed
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import IMPORT, observe
from mllm_compiler.pipelines import (
    PASSES,
    PIPELINES,
    TOLERANCES,
    check_pass,
    pass_class,
    pass_names,
    read_passes,
)
from mllm_compiler.weights import WeightStore

NAME = "mllm-opt"


class MllmOpt(xDSLOptMain):
    """The driver: our dialects, passes and pipelines, and dumps that go to stderr or files."""

    version_format = f"{NAME}, version {__version__} (xDSL {{xdsl_version}})"

    def register_all_dialects(self) -> None:
        """Registers the dialects of xDSL and ours, each imported on first use."""
        self.ctx = CompilerContext()
        super().register_all_dialects()
        known = set(self.ctx.registered_dialect_names)
        for name in DIALECTS.keys() - known:
            self.ctx.register_dialect(name, dialect_factory(name))

    def register_all_passes(self) -> None:
        """Registers the passes of xDSL and ours."""
        super().register_all_passes()
        for name in PASSES:
            self.register_pass(name, partial(pass_class, name))

    def register_all_targets(self) -> None:
        """Registers what xDSL can write; of `mlir`, what parses back to the same numbers."""
        self.available_targets["mlir"] = lambda: ExactTarget
        super().register_all_targets()

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        """Adds our options."""
        super().register_all_arguments(arg_parser)
        arg_parser.prog = NAME
        arg_parser.error = _wrong_usage
        arg_parser.add_argument(
            "--weights",
            metavar="MODEL",
            help="find the bytes of weights in this .onnx file, model.toml or recipe",
        )
        arg_parser.add_argument(
            "--pipeline", help=f"run a named pipeline first: {', '.join(sorted(PIPELINES))}"
        )
        arg_parser.add_argument(
            "--print-ir-after-all", action="store_true", help="print each pass's result on stderr"
        )
        arg_parser.add_argument(
            "--validate", action="store_true", help="run each pass's input and output and compare"
        )
        arg_parser.add_argument(
            "--data", type=Path, help="samples (DIR/GRAPH/*.npz) to prove passes on too"
        )
        arg_parser.add_argument(
            "--dump-dir", type=Path, help="write each pass's result to DIR/NN-pass.mlir"
        )

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        """Opens the input; whatever it is called, it holds a module."""
        if self.args.input_file in (None, "-"):
            with reading(Path("stdin")):
                return io.BytesIO(sys.stdin.buffer.read()), "mlir"
        return Path(self.args.input_file).open("rb"), "mlir"

    def setup_pipeline(self) -> None:
        """Resolves names before anything runs; an unknown one is a located line."""
        if self.args.weights is not None:
            assert isinstance(self.ctx, CompilerContext)
            self.ctx.store = _store_of_model(self.args.weights)
        spec = ",".join(filter(None, [self._named_pipeline(), self.args.passes]))
        self.pipeline = read_passes(spec, self.available_passes, f"{NAME} -p", self._after)

    def _named_pipeline(self) -> str:
        wanted = self.args.pipeline
        if wanted is None:
            return ""
        check_pass(wanted, PIPELINES, f"{NAME} --pipeline")
        return ",".join(pass_names(wanted))

    def _after(
        self, previous: ModulePass | None, module: ModuleOp, following: ModulePass | None
    ) -> None:
        if not self.args.disable_verify:
            verify(module)
        if self.args.validate:
            self._validate(previous, module)
        if previous is None:
            return
        if self.args.print_ir_after_all:
            say(f"// -----// IR Dump After {previous.name} //----- //\n{text_of(module)}\n")
        if self.args.dump_dir is not None:
            self.args.dump_dir.mkdir(parents=True, exist_ok=True)
            number = self.pipeline.passes.index(previous) + 1
            path: Path = self.args.dump_dir / f"{number:02d}-{previous.name}.mlir"
            path.write_text(f"{text_of(module)}\n", encoding="utf-8")

    def _validate(self, previous: ModulePass | None, module: ModuleOp) -> None:
        """Proves the pass that ran; what is known of the module before is kept between calls."""
        from mllm_compiler.validate import Validator
        from mllm_compiler.validate.samples import samples_of

        if previous is None:
            assert isinstance(self.ctx, CompilerContext)
            samples = samples_of(self.args.data, module) if self.args.data is not None else {}
            self.validator = Validator(self.ctx.store, TOLERANCES, samples)
        name = IMPORT if previous is None else previous.name
        observe(0, name, 0.0, module, [self.validator])


def run(arguments: Sequence[str]) -> int:
    """Runs a command line; the answer is the exit status."""
    return guarded(NAME, lambda: _run(arguments), arguments)


def main() -> None:
    """The program `mllm-opt`."""
    sys.exit(run(sys.argv[1:]))


def _run(arguments: Sequence[str]) -> int:
    try:
        MllmOpt(description="Run passes over a module.", args=list(arguments)).run()
    except ParseError as fault:
        raise unparsed(fault) from None
    except DiagnosticException as fault:
        raise CompileError("MLC-U009", str(fault).strip().splitlines()[-1], location=NAME) from None
    except UnicodeDecodeError as fault:
        text = f"byte {fault.start} is not UTF-8 text"
        where, remedy = f"{NAME} input", "give a .mlir file"
        raise CompileError("MLC-U008", text, location=where, remedy=remedy) from None
    except OSError as fault:
        if fault.filename is None:
            raise  # of stdout
        raise file_error(fault, Path(str(fault.filename))) from None
    return 0


def _store_of_model(model: str) -> WeightStore:
    from mllm_compiler.importer import import_model
    from mllm_compiler.recipes import find_model

    return import_model(find_model(model, say)).store


def _wrong_usage(message: str) -> NoReturn:
    raise click.UsageError(message)
