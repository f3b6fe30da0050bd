"""Once a prompt is read, nothing allocates."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from runtime_stub import library_path

SOURCE = Path(__file__).with_name("count_allocations.c")
INCLUDE = Path(__file__).parents[2] / "runtime_stub" / "include"


def test_no_step_allocates(tmp_path: Path, vision_bundle: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None
    program, library = tmp_path / "count", library_path()
    flags = ["-std=c11", f"-I{INCLUDE}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run([compiler, *flags, "-o", program, SOURCE, library], check=True)
    command = [program, vision_bundle, "the meeting", "20"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    reading, steps, tokens = map(int, done.stdout.split())
    assert tokens > 3
    assert reading > 0  # the counter counts
    assert steps == 0
