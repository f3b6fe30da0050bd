"""Rockchip's toolkit: the one place that touches it, in a process of its own.

The toolkit pins packages that the compiler cannot share, so it lives in an environment of its own:
the folder that `MLLM_RKNN` names, or `.venv-rknn` in the working directory. It may crash, and says
some faults only in what it prints.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.backends.rknn.emit import SCRIPT
from mllm_compiler.errors import CompileError

Array = NDArray[np.generic]

VARIABLE: Final = "MLLM_RKNN"
FOLDER: Final = ".venv-rknn"
PACKAGE: Final = "rknn-toolkit2"
VERSION: Final = "2.5.0"
"""Whose behaviour the support table has."""

STAND_IN: Final = Path(__file__).resolve().parent / "stand_in"
"""Takes the place of torch, where the environment has none."""

CUSTOM: Final = "unsupport Operator"
"""What the toolkit prints of an operator that it takes and never runs."""

BUILDING: Final = "building "
"""What the script prints before it builds a graph."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Toolkit:
    """An environment with the toolkit.

    Attributes:
        folder: The environment.
        version: The toolkit's version.
    """

    folder: Path
    version: str

    def build(self, folder: Path, graphs: Sequence[str]) -> None:
        """Builds `GRAPH.rknn` of graphs of a folder that `emit` filled, in one process.

        Raises:
            CompileError: `MLC-V002`, the toolkit refuses one; `MLC-V003`, it crashes.
        """
        with (folder / "build.log").open("w+b") as log:
            status = subprocess.run(
                self._command(folder, graphs),
                env=self._environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            ).returncode
            check(status, _printed(log))

    def simulator(self, folder: Path, graph: str) -> Simulator:
        """The toolkit's simulator over one graph of a folder; it is built there first."""
        log = (folder / f"{graph}.simulator.log").open("w+b")
        process = subprocess.Popen(
            [*self._command(folder, [graph]), "--simulate"],
            env=self._environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        return Simulator(folder, graph, process, log)

    def _command(self, folder: Path, graphs: Sequence[str]) -> list[str]:
        return [str(self.folder / "bin" / "python"), str(folder / SCRIPT), *graphs]

    def _environment(self, folder: Path) -> dict[str, str]:
        has_torch = any(self.folder.glob("lib/python*/site-packages/torch"))
        # The toolkit leaves files in the working directory and in the folder of temporary ones.
        given = {**os.environ, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        given.pop("PYTHONHOME", None)
        return given | ({} if has_torch else {"PYTHONPATH": str(STAND_IN)})


@dataclass
class Simulator:
    """A graph in the simulator; ends with its process."""

    folder: Path
    graph: str
    _process: subprocess.Popen[str]
    _log: IO[bytes]
    _runs: int = field(default=0, init=False)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            CompileError: `MLC-V002`, the toolkit refuses the graph or the inputs; `MLC-V003`, it
                crashes.
        """
        self._runs += 1
        given, made = (self.folder / f"{self.graph}.{side}.npz" for side in ("in", "out"))
        np.savez(given, allow_pickle=False, **inputs)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{given}\t{made}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        if self._process.stdout.readline() != "done\n":
            check(self._process.wait() or 1, _printed(self._log))
        with np.load(made, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


def find_toolkit() -> Toolkit | None:
    """The environment with the toolkit; None where there is none."""
    folder = Path(os.environ.get(VARIABLE) or FOLDER).absolute()
    found = next(folder.glob("lib/python*/site-packages/rknn_toolkit2-*.dist-info"), None)
    if found is None or not (folder / "bin" / "python").exists():
        return None
    return Toolkit(folder, found.name.removesuffix(".dist-info").partition("-")[2])


def need_toolkit() -> Toolkit:
    """The environment with the toolkit.

    Raises:
        CompileError: `MLC-V001`, there is none.
    """
    toolkit = find_toolkit()
    if toolkit is None:
        raise CompileError(
            "MLC-V001",
            f"Rockchip's toolkit is not installed: no {PACKAGE} in {FOLDER}",
            location="rknn",
            remedy=f"make {FOLDER}, or name its environment in {VARIABLE}",
        )
    return toolkit


def check(status: int, printed: str) -> None:
    """Refuses what the toolkit said it would not do, whatever its status.

    The line names the graph that was being built.

    Raises:
        CompileError: `MLC-V002`, it failed or left an operator to nobody; `MLC-V003`, it crashed.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    custom = next((at for at, line in enumerate(lines) if CUSTOM in line), None)
    if status == 0 and custom is None:
        return
    begun = [line for line in lines[:custom] if line.startswith(BUILDING)]
    graph = begun[-1].removeprefix(BUILDING) if begun else "rknn"
    if status < 0:
        raise CompileError(
            "MLC-V003",
            f"Rockchip's toolkit crashed ({signal.Signals(-status).name}) after: {_last(lines)}",
            location=graph,
            remedy="change the model where the toolkit stopped, or use another --soc or recipe",
        )
    faults = [line for line in lines if re.match(r"\w*(Error|Exception)\b|\w+ answers", line)]
    words = (faults or lines or ["nothing was printed"])[-1]
    if custom is not None:
        words = lines[custom]
    raise CompileError(
        "MLC-V002",
        f"Rockchip's toolkit refuses it: {words}",
        location=graph,
        remedy="mllmc explain MODEL --target rknn; the support table may be wrong",
    )


def _last(lines: list[str]) -> str:
    return lines[-1] if lines else "nothing"


def _printed(log: IO[bytes]) -> str:
    """What the toolkit printed, without colours."""
    log.seek(0)
    return _COLOURS.sub("", log.read().decode("utf-8", "replace"))
