"""Long runs in plain C, over small bundles: built here, and what they print."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from runtime_stub import library_path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "c"


def soak(folder: Path, name: str, *arguments: str | Path) -> dict[str, int]:
    """Builds a program beside the installed library, runs it, and gives its figures.

    Raises:
        AssertionError: What it holds does not hold; it says what.
    """
    library, program = library_path(), folder / name
    command = ["cc", "-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", "-o", str(program)]
    command += [f"-I{ROOT}/runtime_stub/{part}" for part in ("include", "tools")]
    command += [str(SOURCES / source) for source in (f"{name}.c", "soak.c")]
    command += [f"{ROOT}/runtime_stub/tools/allocations.c"]
    command += [str(library), f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    figures: dict[str, int] = json.loads(done.stdout)
    return figures
