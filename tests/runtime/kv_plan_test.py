"""Numbers of pages and plans of moves against a model of the table in Python.

The table is compiled alone, with its assertions and traps of undefined behaviour.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.library import ROOT

KV = ("layout", "page_rows", "row_codes", "demote", "pool", "prefix", "spill", "sealed_page",
      "defragment")  # fmt: skip
SRC = ("status", "kv_cache", "seal", "crypto", "replace_file")
NONE = 0xFFFFFFFF
PLACE = 0xFFFFFF
GRANULES = 200
DECLARED = """
typedef struct mllm_kv_pool mllm_kv_pool;
typedef struct mllm_kv_move { uint32_t page, from, to, granules; } mllm_kv_move;
mllm_kv_pool *table_new(uint32_t granules);
void table_free(mllm_kv_pool *pool);
uint32_t table_granule_bytes(const mllm_kv_pool *pool);
uint32_t table_granules(const mllm_kv_pool *pool, uint32_t state);
uint32_t table_take(mllm_kv_pool *pool, uint32_t state, int mark);
int table_holds(const mllm_kv_pool *pool, uint32_t page, int mark);
uint32_t table_granule(const mllm_kv_pool *pool, uint32_t page);
int table_retain(mllm_kv_pool *pool, uint32_t page);
int table_release(mllm_kv_pool *pool, uint32_t page);
uint32_t table_plan(const mllm_kv_pool *pool, mllm_kv_move *moves, uint32_t most, uint64_t bytes);
uint64_t table_step(mllm_kv_pool *pool, uint64_t bytes);
int mllm_kv_pool_set_spill(mllm_kv_pool *pool, const char *folder, uint64_t bytes, void *error);
"""
FFI_OF: FFI = FFI()
FFI_OF.cdef(DECLARED)


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path, stub = tmp_path_factory.mktemp("table") / "libtable.so", ROOT / "runtime_stub"
    sources = [stub / "kv" / f"{name}.c" for name in KV] + [stub / "src" / f"{n}.c" for n in SRC]
    flags = ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-D_POSIX_C_SOURCE=200809L",
             "-fsanitize=undefined", "-fno-sanitize-recover=all", "-ffp-contract=off"]  # fmt: skip
    compiler = shutil.which("cc")
    assert compiler is not None, "the tests of the runtime need a C compiler"
    files = [*sources, ROOT / "tests/runtime/c/kv_table.c"]
    subprocess.run(
        [compiler, *flags, f"-I{stub / 'include'}", "-o", path, *files, "-lm"], check=True
    )
    return FFI_OF.dlopen(str(path))


@dataclass
class Table:
    """A table, and what a model of it says: where each page lies, its granules and its mark."""

    lib: Any
    pages: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    marks: int = 0

    def __post_init__(self) -> None:
        self.pool = self.lib.table_new(GRANULES)
        self.granule = self.lib.table_granule_bytes(self.pool)

    def take(self, state: int) -> int:
        """The first run of free granules that is long enough."""
        self.marks += 1
        count = self.lib.table_granules(self.pool, state)
        taken = {g for start, size, _ in self.pages.values() for g in range(start, start + size)}
        fits = [g for g in range(GRANULES - count + 1) if not taken & {*range(g, g + count)}]
        page = self.lib.table_take(self.pool, state, self.marks % 251)
        assert (page == NONE) == (not fits)
        if fits:
            assert self.lib.table_granule(self.pool, page) == fits[0]
            assert page not in self.pages
            self.pages[page] = (fits[0], count, self.marks % 251)
        return int(page)

    def release(self, page: int) -> None:
        assert self.lib.table_release(self.pool, page)
        del self.pages[page]

    def plan(self, most: int, most_bytes: int) -> list[tuple[int, int, int, int]]:
        moves = FFI_OF.new("mllm_kv_move[64]")
        count = self.lib.table_plan(self.pool, moves, most, most_bytes)
        return [(m.page, getattr(m, "from"), m.to, m.granules) for m in moves[0:count]]

    def check_plan(self, most: int, most_bytes: int) -> None:
        """Made one after the other, the moves tread on nothing that lives, and are bounded."""
        moves = self.plan(most, most_bytes)
        assert len(moves) <= most
        assert sum(granules for *_, granules in moves) * self.granule <= most_bytes
        owner = {
            g: page & PLACE
            for page, (start, count, _) in self.pages.items()
            for g in range(start, start + count)
        }
        lies = {page & PLACE: place[:2] for page, place in self.pages.items()}
        for page, start, to, count in moves:
            assert lies[page] == (start, count), "a page moves once, from where it lies"
            assert to < start
            assert {owner.get(g, page) for g in range(to, to + count)} == {page}
            owner = {g: who for g, who in owner.items() if who != page}
            owner |= dict.fromkeys(range(to, to + count), page)
            lies[page] = (to, count)
        is_packed = sorted(owner) == [*range(len(owner))]
        left = sorted(start for start, _ in lies.values())
        next_one = next((s for s in left if s > 0 and s - 1 not in owner), None)
        if is_packed or len(moves) == most:
            return
        assert next_one is not None
        size = dict(lies.values())[next_one]
        total = sum(granules for *_, granules in moves) + size
        assert total * self.granule > most_bytes, "it stops early only where it must"

    def step(self, most_bytes: int) -> None:
        moved = self.lib.table_step(self.pool, most_bytes)
        assert moved <= most_bytes
        before = sorted((place[0], page) for page, place in self.pages.items())
        for page, (_, count, mark) in self.pages.items():
            assert self.lib.table_holds(self.pool, page, mark)
            self.pages[page] = (self.lib.table_granule(self.pool, page), count, mark)
        after = sorted((place[0], page) for page, place in self.pages.items())
        assert [page for _, page in after] == [page for _, page in before], "in the same order"
        if most_bytes >= GRANULES * self.granule:
            ends = [(place[0], place[0] + place[1]) for place in self.pages.values()]
            assert sum(end - start for start, end in ends) == max((e for _, e in ends), default=0)

    def close(self) -> None:
        self.lib.table_free(self.pool)


@pytest.mark.parametrize("states", [*itertools.product(range(3), repeat=4)])
def test_every_small_table_is_packed_by_bounded_moves(lib: Any, states: Sequence[int]) -> None:
    for kept in itertools.product((False, True), repeat=len(states)):
        table = Table(lib)
        pages = [table.take(state) for state in states]
        for page, stays in zip(pages, kept, strict=True):
            if not stays and page != NONE:
                table.release(page)
        sizes = [place[1] for place in table.pages.values()]
        for most_bytes in {0, *(s * table.granule for s in sizes), sum(sizes) * table.granule}:
            for most in (1, 2, 64):
                table.check_plan(most, most_bytes)
        table.step(10 * table.granule)
        table.step(GRANULES * table.granule)
        table.close()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 2)),
        st.tuples(st.just("release"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(0, GRANULES)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(events=EVENTS)
def test_pages_keep_their_bytes_and_numbers_while_they_move(
    lib: Any, events: list[tuple[str, int]]
) -> None:
    table = Table(lib)
    stale: list[int] = []
    for what, number in events:
        if what == "take":
            table.take(number)
        elif what == "step":
            table.check_plan(64, number * table.granule)
            table.step(number * table.granule)
        elif table.pages:
            page = list(table.pages)[number % len(table.pages)]
            table.release(page)
            stale.append(page)
        for page in stale:
            assert not lib.table_retain(table.pool, page)
            assert not lib.table_release(table.pool, page)
        for page, (start, _, mark) in table.pages.items():
            assert lib.table_granule(table.pool, page) == start
            assert lib.table_holds(table.pool, page, mark)
    table.close()


def test_a_number_that_is_looked_up_too_late_ends_a_debug_build(lib: Any) -> None:
    table = Table(lib)
    old = table.take(0)
    table.release(old)
    new = table.take(0)
    assert (old & PLACE, old != new) == (new & PLACE, True)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.close(2)
        lib.table_granule(table.pool, old)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGABRT
    assert lib.table_retain(table.pool, NONE) == 0
    table.close()


def test_a_build_without_libcrypto_has_no_file_for_pages(lib: Any, tmp_path: Path) -> None:
    table, unsupported = Table(lib), 3
    folder = str(tmp_path).encode()
    assert lib.mllm_kv_pool_set_spill(table.pool, folder, 1 << 20, FFI_OF.NULL) == unsupported
    assert lib.mllm_kv_pool_set_spill(table.pool, FFI_OF.NULL, 0, FFI_OF.NULL) == 0
    assert os.listdir(tmp_path) == []
    table.close()
