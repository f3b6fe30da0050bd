"""LiteRT's compiler plugin for MediaTek: the one place that touches the vendor's library.

The plugin comes with LiteRT and runs as a process of its own; it loads MediaTek's library, which
comes with NeuroPilot, and builds a network in it for each part of a file that it takes.
"""

from __future__ import annotations

import os
import re
import subprocess
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mllm_compiler.errors import CompileError
from mllm_compiler.hal import Soc

LIBRARY: Final = "libneuron_adapter.so"
VARIABLE: Final = "MLLM_NEURON_ADAPTER"
"""Names the folder of MediaTek's library, where the loader does not find it by itself."""

PARTITIONED: Final = re.compile(
    r"Partitioned subgraph<(\d+)>, selected (\d+) ops, from a total of (\d+) ops\. "
    r"resulted in (\d+) partitions"
)


@dataclass(frozen=True)
class Share:
    """How much of a signature's graph the plugin takes.

    Attributes:
        taken: Operators that are in a network.
        total: All of them.
        networks: How many networks they are in.
    """

    taken: int
    total: int
    networks: int


@dataclass(frozen=True)
class Applied:
    """A file whose networks are compiled.

    Attributes:
        file: The bytes of the `.tflite`.
        shares: What was taken of each signature.
    """

    file: bytes
    shares: tuple[Share, ...]


def adapter_folder() -> Path | None:
    """The folder of MediaTek's library; None where it is not installed.

    Raises:
        CompileError: `MLC-V001`, the variable names a folder without it.
    """
    named = os.environ.get(VARIABLE)
    if named is None:
        found = find_library("neuron_adapter")
        return None if found is None else Path(found).parent
    folder = Path(named)
    if (folder / LIBRARY).is_file():
        return folder
    raise CompileError(
        "MLC-V001",
        f"MediaTek's library {LIBRARY} is not there",
        location=f"{VARIABLE}={named}",
        remedy=f"name the folder of NeuroPilot's host libraries, or leave {VARIABLE} out",
    )


def command(model: str, output: str, soc: Soc) -> list[str]:
    """The command that compiles a file ahead of time; its program comes with LiteRT."""
    return [
        "apply_plugin_main",
        "--cmd=apply",
        f"--model={model}",
        f"--o={output}",
        "--soc_manufacturer=MediaTek",
        f"--soc_model={soc.name}",
        f"--mediatek_sdk_version_type={soc.sdk}",
    ]


def apply(file: Path, soc: Soc, folder: Path) -> Applied:
    """Compiles a `.tflite` for a chip.

    Args:
        file: The file.
        soc: The chip.
        folder: Where MediaTek's library lies.

    Raises:
        CompileError: `MLC-V001`, LiteRT is not installed; `MLC-V002`, the plugin refuses the file.
    """
    package = _package()
    with TemporaryDirectory(prefix="mllm-neuron-") as scratch:
        output = Path(scratch) / "model.tflite"
        program, *options = command(str(file), str(output), soc)
        libraries = f"--libs={package / 'vendors' / 'mediatek' / 'compiler'}"
        paths = (str(folder), os.environ.get("LD_LIBRARY_PATH", ""))
        done = subprocess.run(
            [str(package / "tools" / program), libraries, *options],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        said = done.stdout + done.stderr
        # The file is there, empty, after a failure too.
        if done.returncode != 0:
            raise _refused(said, done.returncode)
        shares = (Share(*map(int, m.groups()[1:])) for m in PARTITIONED.finditer(said))
        return Applied(output.read_bytes(), tuple(shares))


def _package() -> Path:
    spec = find_spec("ai_edge_litert")
    if spec is None or not spec.submodule_search_locations:
        raise CompileError(
            "MLC-V001",
            "LiteRT is not installed",
            location="neuron",
            remedy="pip install 'mllm-compiler[neuron]'",
        )
    return Path(spec.submodule_search_locations[0])


def _refused(said: str, status: int) -> CompileError:
    """The innermost of what the plugin says; that no library was found is another fault."""
    lines = [line.strip() for line in said.splitlines()]
    inner = [line.removeprefix("└").strip() for line in lines if line.startswith("└")]
    outer = [line.partition("] ")[2] for line in lines if line.startswith("ERROR: [")]
    words = next((w for w in (*inner, *outer) if w), f"it ended with {status}")
    if any("Failed to load NeuronAdapter" in line for line in lines):
        return CompileError(
            "MLC-V001",
            "MediaTek's library is not installed: Failed to load NeuronAdapter shared library",
            location="neuron",
            remedy=f"name the folder of NeuroPilot's host libraries in {VARIABLE}",
        )
    return CompileError(
        "MLC-V002",
        f"MediaTek's plugin refuses it: {words}",
        location="neuron",
        remedy="mllmc explain MODEL --target neuron; or use the target tflite",
    )
