"""Hostile files against a build with the address and undefined-behaviour sanitizers.

Whatever a file holds, `mllm-run` answers or refuses with one line; it never reads past an end.
"""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.manifest import Manifest
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.importer import read_dims
from tests.bundle.small_bundle import KEY
from tests.cli.recipes import tiny
from tests.runtime.audio_test import wav

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MUTANTS = 150
REPORTS = (b"Sanitizer", b"runtime error")


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mllm-run`, built with sanitizers, or the one that MLLM_SANITIZED names."""
    if "MLLM_SANITIZED" in os.environ:
        return Path(os.environ["MLLM_SANITIZED"])
    build = tmp_path_factory.mktemp("sanitized")
    tools = Path(sys.executable).parent
    cmake = tools / "cmake" if (tools / "cmake").exists() else Path("cmake")
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DMLLM_SANITIZE=address,undefined"]
    subprocess.run([cmake, "-S", ROOT, "-B", build, *options], check=True)
    subprocess.run([cmake, "--build", build, "-j2", "--target", "mllm-run"], check=True)
    return next(build.rglob("mllm-run"))


class Runner:
    """Runs the program and looks for reports."""

    def __init__(self, program: Path, trust: Path) -> None:
        self.program, self.trust = program, trust
        self.refused = self.answered = 0

    def run(self, bundle: Path, *arguments: str | Path) -> int:
        command = [self.program, bundle, "--trust", self.trust, "--threads", "1", *arguments]
        environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}
        done = subprocess.run(
            [*command, "--max-new-tokens", "3"],
            check=False,
            capture_output=True,
            env=environment,
            timeout=60,
        )
        assert not any(report in done.stderr for report in REPORTS), done.stderr.decode()
        assert done.returncode in (0, 1), done.stderr.decode()
        assert done.returncode == 0 or done.stderr.count(b"\n") == 1
        self.answered += done.returncode == 0
        self.refused += done.returncode == 1
        return done.returncode


@pytest.fixture
def runner(sanitized: Path, trust: Path) -> Runner:
    return Runner(sanitized, trust)


def mutants(raw: bytes, seed: int) -> Iterator[bytes]:
    """Bytes changed, words set to extremes, pieces cut out, the end cut off."""
    rng = random.Random(seed)
    for _ in range(MUTANTS):
        out = bytearray(raw)
        for _ in range(rng.choice([1, 1, 1, 3])):
            at, kind = rng.randrange(len(out)), rng.randrange(5)
            if kind == 0:
                out[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                out[at] = rng.choice(b'\x00\xff\x7f\x80"{}[],:0-9')
            elif kind == 2:
                word = rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(out)])
                out[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, "little")
            elif kind == 3:
                del out[at : at + rng.randrange(1, 9)]
            else:
                del out[at:]
        if out != raw:
            yield bytes(out)


def members(path: Path) -> Mapping[str, bytes]:
    bundle = open_bundle(path, LOOK)
    return {name: bytes(bundle.member(name)) for name in bundle.names()}


def signed(path: Path, held: Mapping[str, bytes]) -> Path:
    """A bundle of these members under the tests' own key."""
    contents = [content_of_bytes(name, raw) for name, raw in held.items()]
    write_bundle(path, Manifest(name="small", targets=("c",), entries={}), contents, key=KEY)
    return path


def test_good_files_are_answered(
    runner: Runner, language_bundle: Path, vision_bundle: Path, tmp_path: Path
) -> None:
    image = tmp_path / "image.npy"
    np.save(image, np.zeros((9, 7, 3), np.uint8))
    assert runner.run(language_bundle, "--prompt", "the meeting") == 0
    assert runner.run(language_bundle, "--prompt", "é\xff" * 10, "--temperature", "2") == 0
    assert runner.run(vision_bundle, "--prompt", "the meeting", "--image", image) == 0


def test_changed_bundles_are_refused(runner: Runner, language_bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    for mutant in mutants(language_bundle.read_bytes(), 0):
        path.write_bytes(mutant)
        assert runner.run(path, "--prompt", "the") == 1


@pytest.mark.parametrize("name", ["config.json", "text/tokenizer.bin", "targets/c/program.bin"])
def test_a_trusted_key_may_sign_nonsense(
    runner: Runner, language_bundle: Path, tmp_path: Path, name: str
) -> None:
    """Behind the signature, members are still checked."""
    path = tmp_path / "signed"
    held = members(language_bundle)
    for mutant in mutants(held[name], len(name)):
        runner.run(signed(path, {**held, name: mutant}), "--prompt", "the meeting is on")
    assert runner.refused > 10


def test_nonsense_around_an_image(runner: Runner, vision_bundle: Path, tmp_path: Path) -> None:
    path, image = tmp_path / "signed", tmp_path / "image.npy"
    np.save(image, np.zeros((9, 7, 3), np.uint8))
    held = members(vision_bundle)
    for name in ("config.json", "targets/c/program.bin"):
        for mutant in mutants(held[name], 3):
            runner.run(signed(path, {**held, name: mutant}), "--prompt", "the", "--image", image)
    assert runner.refused > 10


def test_nonsense_as_image_and_sound(runner: Runner, vision_bundle: Path, tmp_path: Path) -> None:
    out = io.BytesIO()
    np.save(out, np.full((9, 7, 3), 200, np.uint8))
    sound = wav(np.ones((50, 2), np.int16), 44100)
    ppm = b"P6 9 7 255\n" + bytes(9 * 7 * 3)
    for seed, (option, raw) in enumerate(
        [("--image", out.getvalue()), ("--image", ppm), ("--audio", sound)]
    ):
        path = tmp_path / f"media{seed}"
        for mutant in list(mutants(raw, seed))[:60]:
            path.write_bytes(mutant)
            runner.run(vision_bundle, "--prompt", "the", option, path)


def test_nonsense_in_a_table_of_buckets(runner: Runner, tmp_path: Path) -> None:
    """Each word of the table is set to extremes; most are refused when the bundle is loaded."""
    path, dims = tmp_path / "padded", ["sequence_length=1,8", "past_sequence_length=8,32"]
    compile_model(Request(model=tiny("tiny-llama"), dims=read_dims(dims), output=path))
    held = members(path)
    assert runner.run(signed(path, held), "--prompt", "the meeting is on") == 0
    program = held["targets/c/program.bin"]
    params, _ = struct.unpack_from("<II", program, 12 + 8 * 6)
    entries, _ = struct.unpack_from("<II", program, 12 + 8 * 10)
    (buckets,) = struct.unpack_from("<I", program, entries + 36)
    table = params + 8 * (buckets - 1)
    symbols, variants = struct.unpack_from("<qq", program, table)
    assert (symbols, variants) == (3, 4)
    for word in range(2 + symbols * (2 + variants)):
        for value in (-1, 0, 2, 9, 1 << 40, -(1 << 63)):
            changed = bytearray(program)
            struct.pack_into("<q", changed, table + 8 * word, value)
            mutant = {**held, "targets/c/program.bin": bytes(changed)}
            runner.run(signed(path, mutant), "--prompt", "the meeting is on")
    assert runner.refused > 60


def test_nonsense_in_the_formats_of_a_cache(runner: Runner, tmp_path: Path) -> None:
    """Each word of the table of a cache of codes is set to extremes, and so is where it stands."""
    path = tmp_path / "coded"
    compile_model(Request(model=tiny("tiny-llama"), output=path, quant="kv8"))
    held = members(path)
    assert runner.run(signed(path, held), "--prompt", "the meeting is on") == 0
    program = held["targets/c/program.bin"]
    params, count = struct.unpack_from("<II", program, 12 + 8 * 6)
    caches, _ = struct.unpack_from("<II", program, 12 + 8 * 11)
    (layers,) = struct.unpack_from("<I", program, caches + 4)
    (formats,) = struct.unpack_from("<I", program, caches + 24)
    for word in range(1 + 2 * layers):
        for value in (-2, 1, 3, 9, 256, 1 << 31, 1 << 40, -(1 << 63)):
            changed = bytearray(program)
            struct.pack_into("<q", changed, params + 8 * (formats - 1 + word), value)
            mutant = {**held, "targets/c/program.bin": bytes(changed)}
            runner.run(signed(path, mutant), "--prompt", "the meeting is on")
    for place in (0, 1, formats - 1, count, count + 1, 0xFFFFFFFF):
        changed = bytearray(program)
        struct.pack_into("<I", changed, caches + 24, place)
        mutant = {**held, "targets/c/program.bin": bytes(changed)}
        runner.run(signed(path, mutant), "--prompt", "the meeting is on")
    assert runner.refused > 20
