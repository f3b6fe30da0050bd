"""The pool in C, under sanitizers, and slowly under valgrind and the thread sanitizer.

The programs in `c/pool_*_test.c` hold a shadow model of buffers, pages as the kernel counts them,
all chains of three accesses on memory without coherent caches, 100,000 transfers between four
threads, a peer that is killed, and a stand-in for the kernel's heaps; each says what it checks.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.library import ROOT

SOURCES = Path(__file__).parent / "c"
RUNTIME = ROOT / "runtime_stub"
PROGRAMS = ("pool_test", "pool_pages_test", "pool_access_test", "pool_threads_test",
            "pool_share_test", "pool_heap_test")  # fmt: skip
FLAGS = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-D_POSIX_C_SOURCE=200809L")
VALGRIND = (
    "valgrind",
    "-q",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=all",
)


def build(folder: Path, name: str, *flags: str) -> Path:
    wraps = ["-Wl,--wrap=open,--wrap=ioctl"] if name == "pool_heap_test" else []
    files = [SOURCES / f"{name}.c", RUNTIME / "src/status.c", *sorted(RUNTIME.glob("pool/*.c"))]
    command = ["cc", *FLAGS, *flags, f"-I{RUNTIME / 'include'}", "-o", str(folder / name)]
    subprocess.run([*command, *map(str, files), *wraps, "-pthread"], check=True)
    return folder / name


def run(*command: str | Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path, name: str) -> None:
    said = run(build(tmp_path, name, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    assert name != "pool_threads_test" or " 0 errors" in said


@pytest.mark.slow
def test_threads_under_the_thread_sanitizer(tmp_path: Path) -> None:
    run(build(tmp_path, "pool_threads_test", "-fsanitize=thread"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind: apt install valgrind")
@pytest.mark.parametrize("name", PROGRAMS)
def test_under_valgrind(tmp_path: Path, name: str) -> None:
    run(*VALGRIND, build(tmp_path, name))
