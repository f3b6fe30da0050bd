"""Conversations are saved, restored, sleep and wake, or say that memory ended: the C program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from runtime_stub.library import library_path
from tests.runtime.kv_bench import decoder
from tests.runtime.library import ROOT

SOURCE = Path(__file__).parent / "c" / "kv_no_memory.c"


def test_where_memory_ends_nothing_else_does(tmp_path: Path) -> None:
    library, program, folder = library_path(), tmp_path / "kv_no_memory", tmp_path / "files"
    folder.mkdir()
    (tmp_path / "program.bin").write_bytes(decoder()[0])
    command = [
        "cc",
        "-std=c11",
        "-O1",
        "-g",
        f"-I{ROOT}/runtime_stub/include",
        "-o",
        program,
        SOURCE,
    ]
    subprocess.run([*command, library, f"-Wl,-rpath,{library.parent}"], check=True)
    done = subprocess.run(
        [program, tmp_path / "program.bin", folder], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("memory ended ")
    assert os.listdir(folder) == ["talk.kv"]
