"""What the pool of all buffers does: a part of `memory.py`.

`pool_ready_ms` is the time in which 6 GiB are reserved and a buffer of every size class is served
and touched, `warm_ratio` the time in which the pages of 2 GiB are provided beside that of a
memset of as much fresh memory. `alloc_success` and `external_waste` are of a meeting that
`pool_replay.c` plays for 10 million steps at 95 % fill, bytes as rounded: it is generated, with a
fixed seed, from sizes of real buffers. The arenas are the plans of SmolLM2-135M (and the meeting
model), DINOv2-S and Whisper-base in `docs/figures/memory.json`, a page is that of SmolLM2-135M's
cache in f16. External waste is what is free but not for a page: runs of addresses too short for
it, and holes of slabs, as a part of the memory; `internal_waste` is what rounding up takes, as a
part of what is used, `pages_dropped` what free pages went back to the system so that others could
come, as a part of what was taken. `..._fixed` are of memory whose pages stay where they are, as
those of a heap of the kernel do. `refcount_errors` are of 100,000 transfers between four threads
(`tests/runtime/c/pool_threads_test.c`).
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

from runtime_stub.library import CData, check, ffi, library, new_error

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
REGION, STEPS = 6144 * MIB, 10_000_000
PAGE = 30 * 3 * 64 * 2 * 2 * 256
ARENAS = (4_327_400, 2_368_500, 48_832_500)


def figures() -> dict[str, float]:
    """Every figure of this area."""
    with tempfile.TemporaryDirectory() as scratch:
        replay = _built(Path(scratch) / "replay", "tests/benchmarks/pool_replay.c")
        threads = _built(Path(scratch) / "threads", "tests/runtime/c/pool_threads_test.c")
        found = _replayed(replay, 0)
        fixed = _replayed(replay, library().MLLM_POOL_HUGE_PAGES)
        errors = float(_said([str(threads)]).split()[2])
    return found | {
        "alloc_success_fixed": fixed["alloc_success"],
        "external_waste_fixed": fixed["external_waste"],
        "refcount_errors": errors,
        "pool_ready_ms": min(_ready() for _ in range(3)) * 1e3,
        "warm_ratio": _warm() / _memset(),
    }


def _replayed(program: Path, flags: int) -> dict[str, float]:
    lines = _said([str(program), *map(str, (REGION, STEPS, flags, PAGE, *ARENAS))]).splitlines()
    return {name: float(number) for name, number in (line.split() for line in lines)}


def _built(path: Path, source: str) -> Path:
    runtime = ROOT / "runtime_stub"
    files = [ROOT / source, runtime / "src/status.c", *sorted(runtime.glob("pool/*.c"))]
    flags = ["-std=c11", "-O2", "-D_POSIX_C_SOURCE=200809L", f"-I{runtime / 'include'}", "-pthread"]
    subprocess.run(["cc", *flags, "-o", str(path), *map(str, files)], check=True)
    return path


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _made(size: int) -> CData:
    error, pool = new_error(), ffi.new("mllm_pool **")
    options = ffi.new("mllm_pool_options *", {"bytes": size})
    check(library().mllm_pool_create(options, pool, error), error)
    return pool[0]


def _ready() -> float:
    small = [step * (1 << power) // 4 for power in range(6, 20) for step in (4, 5, 6, 7)]
    sizes = [*small, *(MIB << power for power in range(11))]
    error, buffer, data = new_error(), ffi.new("mllm_buffer *"), ffi.new("void **")
    start = time.perf_counter()
    pool = _made(REGION)
    for size in sizes:
        request = ffi.new("mllm_pool_request *", {"bytes": size})
        check(library().mllm_pool_take(pool, request, buffer, error), error)
        check(library().mllm_pool_access(pool, buffer[0], 0, 2, data, error), error)
        ffi.memmove(data[0], b"x", 1)
    elapsed = time.perf_counter() - start
    library().mllm_pool_destroy(pool)
    return elapsed


def _warm() -> float:
    pool, error = _made(2048 * MIB), new_error()
    start = time.perf_counter()
    check(library().mllm_pool_warm(pool, 2048 * MIB, error), error)
    elapsed = time.perf_counter() - start
    library().mllm_pool_destroy(pool)
    return elapsed


def _memset() -> float:
    pool, error = _made(2048 * MIB), new_error()
    buffer, data = ffi.new("mllm_buffer *"), ffi.new("void **")
    request = ffi.new("mllm_pool_request *", {"bytes": 2048 * MIB})
    check(library().mllm_pool_take(pool, request, buffer, error), error)
    check(library().mllm_pool_access(pool, buffer[0], 0, 2, data, error), error)
    start = time.perf_counter()
    ctypes.memset(int(ffi.cast("uintptr_t", data[0])), 0, 2048 * MIB)
    elapsed = time.perf_counter() - start
    library().mllm_pool_destroy(pool)
    return elapsed
