"""Running a model allocates nothing: a program with a malloc of its own counts the calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

from runtime_stub.library import library_path
from tests.runtime.library import ROOT
from tests.runtime.write_cases import main as write_cases

SOURCES = Path(__file__).parent / "c"


def test_no_allocation_after_start(tmp_path: Path) -> None:
    library = library_path()
    program, cases = tmp_path / "no_malloc", tmp_path / "cases.bin"
    command = ["cc", "-std=c11", "-O1", "-o", str(program)]
    command += [f"-I{ROOT}/runtime_stub/{part}" for part in ("include", "tools")]
    command += [str(SOURCES / name) for name in ("no_malloc.c", "cases.c")]
    command += [f"{ROOT}/runtime_stub/tools/allocations.c"]
    command += [str(library), f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run(command, check=True)
    write_cases(cases)
    done = subprocess.run([program, cases], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("cases, no allocation\n")
