"""Conversations in files: equal to the bit, refused when anything of them is not what it was."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from runtime_stub.failure import RuntimeFailure
from tests.runtime.kv_bench import (
    DIM,
    HEADS,
    LAYERS,
    MOST,
    PAGE,
    PAGE_BYTES,
    Bench,
    Talk,
    expected,
    fallen,
    largest_file,
    rows_of,
    taken,
)

KEY = bytes(range(32))
HEAD, SEAL, PAGE_HEAD = 168, 28, 36


def filled(bench: Bench) -> Talk:
    """300 tokens: three pages of 4 bits, one native and a part of one."""
    talk = bench.start()
    bench.append(talk, rows_of(300, 1))
    talk.cache.demote(recent=100)
    talk.rows = fallen(talk.rows, 0, 3)
    return talk


def restored(bench: Bench, path: Path, talk: Talk) -> Talk:
    made = Talk(bench.pool.restore(path, KEY), talk.rows)
    bench.talks.append(made)
    return made


def test_a_conversation_goes_on_where_it_was_saved(bench: Bench, tmp_path: Path) -> None:
    talk = filled(bench)
    path = tmp_path / "talk.kv"
    talk.cache.save(path, KEY)
    before = bench.pool.statistics
    made = restored(bench, path, talk)
    found = bench.pool.statistics
    assert (found.demoted, found.native_pages) == (2 * before.demoted, 2 * before.native_pages)
    np.testing.assert_array_equal(bench.held(made), talk.rows)
    new = rows_of(70, 2)
    ys = bench.append(talk, new)
    for a, b, want in zip(bench.append(made, new), ys, expected(talk.rows, 70), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(bench.held(made), talk.rows)
    assert os.listdir(tmp_path) == ["talk.kv"]
    assert path.stat().st_mode & 0o77 == 0


def test_a_conversation_without_tokens_is_one_too(bench: Bench, tmp_path: Path) -> None:
    talk = bench.start()
    talk.cache.save(tmp_path / "talk.kv", KEY)
    assert restored(bench, tmp_path / "talk.kv", talk).cache.length == 0


def test_a_file_is_what_another_cipher_reads(bench: Bench, tmp_path: Path) -> None:
    """And holds zeros where a page of the pool still has what another conversation left."""
    old = bench.start()
    bench.append(old, rows_of(PAGE, 1))
    old.cache.close()
    bench.talks.remove(old)
    talk = bench.start()
    bench.append(talk, rows_of(3, 2))
    talk.cache.save(tmp_path / "talk.kv", KEY)
    data, cipher, first = (tmp_path / "talk.kv").read_bytes(), AESGCM(KEY), HEAD + SEAL
    head, seal = data[:HEAD], data[HEAD:first]
    assert struct.unpack("<8s8I", head[:40]) == (
        b"MLLMTALK",
        1,
        3,
        MOST,
        1,
        LAYERS,
        HEADS,
        DIM,
        PAGE,
    )
    assert cipher.decrypt(seal[:12], seal[12:], head) == b""
    state, rounded, nonce, tag = struct.unpack("<II12s16s", data[first : first + PAGE_HEAD])
    place = struct.pack("<32sIII", head[40:72], 0, state, rounded)
    plain = cipher.decrypt(nonce, data[first + PAGE_HEAD :] + tag, place)
    page = np.frombuffer(plain, np.float32).reshape(2 * LAYERS, HEADS, PAGE, DIM)
    rows = page.transpose(0, 2, 1, 3).reshape(2 * LAYERS, PAGE, HEADS * DIM)
    np.testing.assert_array_equal(rows[:, :3], talk.rows)
    assert not rows[:, 3:].any()


def test_every_byte_counts(bench: Bench, tmp_path: Path) -> None:
    talk = filled(bench)
    path = tmp_path / "talk.kv"
    talk.cache.save(path, KEY)
    whole = path.read_bytes()
    before = taken(bench)
    first = HEAD + SEAL
    places = [*range(first + PAGE_HEAD + 4), *range(first, len(whole), 997), len(whole) - 1]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(RuntimeFailure, match=r"\[MLC-X05[01]\]") as fault:
            bench.pool.restore(path, KEY)
        assert str(path)[-100:] in str(fault.value)
    for size in (0, 7, HEAD, first, first + PAGE_HEAD, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RuntimeFailure, match="changed or cut"):
            bench.pool.restore(path, KEY)
    path.write_bytes(whole + b"\0")
    with pytest.raises(RuntimeFailure, match="changed or cut"):
        bench.pool.restore(path, KEY)
    assert taken(bench) == before


def test_pages_cannot_change_places(bench: Bench, tmp_path: Path) -> None:
    """Neither within a file nor from another one of the same key."""
    talk = bench.start()
    bench.append(talk, rows_of(2 * PAGE, 1))
    path = tmp_path / "talk.kv"
    step, first = PAGE_HEAD + PAGE_BYTES, HEAD + SEAL
    talk.cache.save(path, KEY)
    a = path.read_bytes()
    talk.cache.save(path, KEY)
    b = path.read_bytes()
    assert len(a) == first + 2 * step
    assert a[first:] != b[first:]
    pages = [a[first + i * step : first + (i + 1) * step] for i in range(2)]
    for mixed in (a[:first] + pages[1] + pages[0], b[: first + step] + pages[1]):
        path.write_bytes(mixed)
        with pytest.raises(RuntimeFailure, match="MLC-X050"):
            bench.pool.restore(path, KEY)


def test_another_key_another_model_and_a_full_pool_are_refused(
    bench: Bench, tmp_path: Path
) -> None:
    talk = filled(bench)
    path = tmp_path / "talk.kv"
    talk.cache.save(path, KEY)
    with pytest.raises(RuntimeFailure, match="another key") as fault:
        bench.pool.restore(path, bytes(32))
    assert fault.value.code == "MLC-X050"
    other = Bench(name="other")
    with pytest.raises(RuntimeFailure, match=r"another model's cache 'kv', 2 layers .* 'other'"):
        other.pool.restore(path, KEY)
    other.close()
    weighed = Bench(weights=True)
    with pytest.raises(RuntimeFailure, match="MLC-X051"):
        weighed.pool.restore(path, KEY)
    weighed.close()
    with pytest.raises(RuntimeFailure, match="a key has 32 bytes"):
        talk.cache.save(path, b"short")
    full = bench.start()
    bench.append(full, rows_of(4 * PAGE, 3))
    before = taken(bench)
    with pytest.raises(RuntimeFailure, match="no room for the 300 tokens") as fault:
        bench.pool.restore(path, KEY)
    assert fault.value.code == "MLC-X006"
    assert taken(bench) == before
    np.testing.assert_array_equal(bench.held(talk), talk.rows)


def test_a_full_disk_leaves_what_stood_there(bench: Bench, tmp_path: Path) -> None:
    talk = filled(bench)
    path = tmp_path / "talk.kv"
    path.write_bytes(b"old")
    for most in (0, HEAD, HEAD + SEAL + PAGE_HEAD, 2 * PAGE_BYTES):
        with largest_file(most), pytest.raises(RuntimeFailure, match="cannot be stored") as fault:
            talk.cache.save(path, KEY)
        assert fault.value.code == "MLC-X052"
        assert os.listdir(tmp_path) == ["talk.kv"]
        assert path.read_bytes() == b"old"
    for name in ("none/talk.kv", "."):
        with pytest.raises(RuntimeFailure, match="MLC-X052"):
            talk.cache.save(tmp_path / name, KEY)
    with pytest.raises(RuntimeFailure, match="cannot be read: No such file"):
        bench.pool.restore(tmp_path / "none", KEY)
    np.testing.assert_array_equal(bench.held(talk), talk.rows)


SAVES = f"""
import resource, signal, sys
from pathlib import Path
from tests.runtime.kv_bench import Bench, rows_of
bench = Bench()
talk = bench.start()
bench.append(talk, rows_of(250, int(sys.argv[2])))
if int(sys.argv[3]):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
print("saves", flush=True)
while True:
    talk.cache.save(Path(sys.argv[1]), {KEY!r})
"""


def killed_while_saving(path: Path, seed: int, most: int = 0) -> None:
    """A process that saves again and again: it ends at a byte of the file, or by a kill."""
    command = [sys.executable, "-c", SAVES, str(path), str(seed), str(most)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        saving.stdout.readline()
        if not most:
            time.sleep(0.02 + 0.013 * seed)
            saving.kill()
        assert saving.wait() == -(signal.SIGXFSZ if most else signal.SIGKILL)


def test_a_killed_process_leaves_the_old_file_or_a_whole_one(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "talk.kv"
    killed_while_saving(path, 1, most=HEAD + 9)
    assert not path.exists()
    talk = bench.start()
    bench.append(talk, rows_of(250, 0))
    talk.cache.save(path, KEY)
    old = path.read_bytes()
    killed_while_saving(path, 1, most=3 * PAGE_BYTES)
    assert path.read_bytes() == old
    for seed in range(2, 5):
        killed_while_saving(path, seed)
        made = Talk(bench.pool.restore(path, KEY))
        found = bench.held(made)
        made.cache.close()
        whole = any(np.array_equal(found, rows_of(250, each)) for each in (0, *range(2, seed + 1)))
        assert whole, "a file that is neither the old one nor a new one"
    talk.cache.save(path, KEY)
    assert os.listdir(tmp_path) == ["talk.kv"], "what a killed process left is written over"
