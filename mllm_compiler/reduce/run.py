"""Reduces a model: finds that it fails, cuts it until nothing more goes, writes what is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, checker

from mllm_compiler.bundle.files import atomic_output, reading
from mllm_compiler.errors import CompileError
from mllm_compiler.importer.protobuf import without_tensors
from mllm_compiler.reduce import cuts, simplify
from mllm_compiler.reduce.expect import Test
from mllm_compiler.reduce.files import SMALL, Files
from mllm_compiler.reduce.proto import node_count
from mllm_compiler.reduce.search import Search, Strategy
from mllm_compiler.reduce.types import more_types, value_types


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """What came out.

    Attributes:
        source: The model's file.
        output: The file that was written.
        before: Nodes of the model.
        after: Nodes of what is left.
        tries: Models that were tried.
        said: What the test said of what is left.
        nbytes: The size of the file.
    """

    source: Path
    output: Path
    before: int
    after: int
    tries: int
    said: str
    nbytes: int


def reduce_model(
    source: Path,
    output: Path,
    test: Test,
    *,
    limit: int = 2000,
    step: Callable[[str], None] = lambda text: None,
) -> Reduction:
    """Writes the smallest model that still fails.

    Args:
        source: An `.onnx` file that fails.
        output: The file to write.
        test: Says whether a file fails.
        limit: How many models may be tried.
        step: Is told what is done next.

    Raises:
        CompileError: MLC-U011, the model does not fail; or its file cannot be read.
    """
    step("trying the model itself")
    first = test.outcome(source)
    if not first.failed:
        raise CompileError(
            "MLC-U011",
            f"the model does not fail as expected: {first.said}",
            location=str(source),
            remedy="check --expect and --target; a failure must show in one .onnx file by itself",
        )
    model = _read(source)
    with (
        reading(output.parent),
        tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder,
    ):
        files = Files(source, Path(folder))
        search = _search(model, files, test, limit, step)
        try:
            _cut(search, files, first.said)
        except KeyboardInterrupt:
            # What was found so far is not lost, where it is small.
            if files.size(search.best) <= SMALL and search.best != model:
                _write(output, files.whole(search.best))
            raise
        whole = files.whole(search.best)
        path = files.folder / "candidate.onnx"
        path.write_bytes(whole)
        said = test.outcome(path).said
        _write(output, whole)
    return Reduction(
        source=source,
        output=output,
        before=node_count(model),
        after=node_count(search.best),
        tries=search.tries,
        said=said.replace(str(path), output.name).replace(path.name, output.name),
        nbytes=len(whole),
    )


def _write(output: Path, whole: bytes) -> None:
    with atomic_output(output) as out:
        out.write(whole)


def _search(
    model: ModelProto, files: Files, test: Test, limit: int, step: Callable[[str], None]
) -> Search:
    valid = _is_valid(files.source)

    def shows(candidate: ModelProto) -> bool:
        path = files.write(candidate)
        return (not valid or _is_valid(path)) and test.outcome(path).failed

    types = more_types(model, files.source, value_types(model))
    return Search(model, shows, types, step, limit)


def _cut(search: Search, files: Files, said: str) -> None:
    """Makes the model of a search as small as it gets.

    Args:
        search: A search that has not begun.
        files: Where the bytes of weights lie.
        said: What the failure said; often it names the node.
    """
    named = cuts.only_named(search.best, said, search.types)
    search.accept(named, "all but the node that the failure names")
    search.take_away(Strategy("weights", files.large, files.filled))
    if search.accept(simplify.inlined(search.best), "functions"):
        search.types |= value_types(search.best)
    search.accept(cuts.trimmed(search.best), "what no output needs")
    search.bisect()
    search.settle()
    search.accept(simplify.plain(search.best), "texts")


def _read(source: Path) -> ModelProto:
    try:
        return ModelProto.FromString(without_tensors(source))
    except DecodeError as error:
        raise CompileError(
            "MLC-I001",
            "not an ONNX protobuf",
            location=str(source),
            remedy="give an .onnx file",
        ) from error


def _is_valid(path: Path) -> bool:
    """Whether the standard's checker accepts a file."""
    try:
        checker.check_model(str(path))
    except (checker.ValidationError, ValueError, RuntimeError):
        return False
    return True
