"""Target `neuron`: a `.tflite`, its network and, with MediaTek's library, what that makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.neuron.sdk import LIBRARY, VARIABLE, adapter_folder, apply, command
from mllm_compiler.backends.tflite.emit import TfliteArtifact
from mllm_compiler.backends.tflite.emit import emit as emit_tflite
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.printing import text_of
from mllm_compiler.hal import Soc, target
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.lower_to_neuron import LowerToNeuron
from mllm_compiler.weights import WeightStore

ADAPTERS: Final = {"version8": "8.2.24", "version9": "9.0.3"}
"""The version of MediaTek's library that each kit is taken to have: the oldest measured."""

SCRIPT: Final = """#!/bin/sh
# Compiles model.tflite for MediaTek's {soc} ahead of time. The plugin and its tool come with LiteRT
# (pip install 'ai-edge-litert>=2.3,<3'), {library} with NeuroPilot's SDK.
#   NEURON=folder of {library}  sh compile.sh
set -e
LITERT=$(python3 -c 'import ai_edge_litert as a; print(a.__path__[0])')
LD_LIBRARY_PATH="$NEURON" "$LITERT/tools/"{command} \\
  --libs="$LITERT/vendors/mediatek/compiler"
# A graph that has nothing for the CPU can go to NeuroPilot's own compiler too:
#   ncc-tflite --arch=ARCHITECTURE --relax-fp32 --opt-accuracy model.tflite -o model.dla
"""


@dataclass(frozen=True, kw_only=True)
class Built:
    """What goes into a bundle.

    Attributes:
        artifact: The `.tflite`, its constants still in the store.
        soc: The chip.
        files: The other files by name; `compiled.tflite` where MediaTek's library is here.
        sdk: The kit that compiled it.
    """

    artifact: TfliteArtifact
    soc: str
    files: Mapping[str, bytes]
    sdk: Mapping[str, str] = field(default_factory=dict[str, str])


def compile_module(
    module: ModuleOp, store: WeightStore, chip: str | None, warn: Callable[[str], None]
) -> Built:
    """Emits the file of a module of tfl ops, and has it compiled where MediaTek's library is here.

    Raises:
        CompileError: `MLC-R001`, the plugin would refuse or change an operator; `MLC-R007`, no such
            chip; `MLC-V001` and `MLC-V002`, a library is missing, or refuses the file.
    """
    soc = target("neuron").soc(chip)
    network = module.clone()
    LowerToNeuron(adapter=ADAPTERS[soc.sdk]).apply(make_context(store), network)
    network.verify()
    artifact = emit_tflite(module, store)
    words = " ".join(command("model.tflite", "compiled.tflite", soc))
    script = SCRIPT.format(soc=soc.name, library=LIBRARY, command=words)
    files = {"network.mlir": f"{text_of(network)}\n".encode(), "compile.sh": script.encode()}
    folder = adapter_folder()
    if folder is None:
        warn(f"no compiled.tflite is in the bundle: {LIBRARY} is not installed ({VARIABLE})")
        return Built(artifact=artifact, soc=soc.name, files=files)
    files["compiled.tflite"] = _compiled(artifact, store, module, soc, folder, warn)
    return Built(artifact=artifact, soc=soc.name, files=files, sdk={"neuropilot": soc.sdk})


def _compiled(
    artifact: TfliteArtifact,
    store: WeightStore,
    module: ModuleOp,
    soc: Soc,
    folder: Path,
    warn: Callable[[str], None],
) -> bytes:
    """The file with its networks compiled; a signature that is cut into several is named."""
    with TemporaryDirectory(prefix="mllm-neuron-") as scratch:
        path = Path(scratch) / "model.tflite"
        with path.open("wb") as out:
            for piece in artifact.stream(store):
                out.write(piece)
        applied = apply(path, soc, folder)
    for graph, share in zip(graphs(module), applied.shares, strict=True):
        if share.networks != 1:
            name = graph.sym_name.data
            warn(f"{name} is cut into {share.networks} networks: MediaTek's library refuses a part")
    return applied.file
