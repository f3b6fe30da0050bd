"""Target `rknn`: the files for the toolkit and, where it is installed, what it builds of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.rknn.emit import WEIGHTS, RknnArtifact, emit
from mllm_compiler.backends.rknn.placement import check_placement
from mllm_compiler.backends.rknn.read import read_rknn
from mllm_compiler.backends.rknn.sdk import FOLDER, PACKAGE, find_toolkit
from mllm_compiler.hal import target
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True, kw_only=True)
class Built:
    """What the toolkit made.

    Attributes:
        artifact: The files that it read.
        files: The `.rknn` of each graph by name; none where the toolkit is not here.
        sdk: The toolkit's version, by its package's name.
    """

    artifact: RknnArtifact
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    sdk: Mapping[str, str] = field(default_factory=dict[str, str])


def compile_module(
    module: ModuleOp, store: WeightStore, samples: str, warn: Callable[[str], None]
) -> Built:
    """Emits the files of a module of rknn ops, and has them built where the toolkit is here.

    Raises:
        CompileError: `MLC-Q002`, codes need samples and there are none; `MLC-V002` to `MLC-V004`,
            the toolkit refuses a graph, crashes, or places an operator against the table.
    """
    artifact = emit(module, store, samples)
    toolkit = find_toolkit()
    if toolkit is None:
        warn(f"no .rknn is in the bundle: Rockchip's toolkit is not installed (make {FOLDER})")
        return Built(artifact=artifact)
    soc = target("rknn").soc(artifact.plan.soc)
    with TemporaryDirectory(prefix="mllm-rknn-") as folder:
        write_files(artifact, store, Path(folder))
        toolkit.build(Path(folder), artifact.graphs)
        files = {name: (Path(folder) / f"{name}.rknn").read_bytes() for name in artifact.graphs}
    for name, raw in files.items():
        check_placement(read_rknn(raw, name), soc, name)
    return Built(artifact=artifact, files=files, sdk={PACKAGE: toolkit.version})


def write_files(artifact: RknnArtifact, store: WeightStore, folder: Path) -> None:
    """Writes what the toolkit reads."""
    for name, raw in artifact.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    with (folder / WEIGHTS).open("wb") as out:
        for piece in artifact.program.stream(store):
            out.write(piece)
