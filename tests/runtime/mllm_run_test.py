"""The plain C program: the same answers as the binding, one-line errors, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runtime_stub import Model, library_path, library_version
from tests.bundle.small_bundle import write_small
from tests.runtime.library import ROOT

PROMPT = "the meeting is on"


def mllm_run(
    *arguments: str | Path, home: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {"HOME": str(home)} if home is not None else {}
    program = library_path().with_name("mllm-run")
    command: Sequence[str | Path] = [program, *arguments]
    return subprocess.run(command, check=False, capture_output=True, env=environment)


def answer(model: Model, **options: object) -> bytes:
    return "".join(p.text for p in model.generate(PROMPT, **options)).encode()  # type: ignore[arg-type]


SAMPLED = ("--temperature", "3", "--top-p", "0.9", "--seed", "5", "--max-new-tokens", "12")
OPTIONS = {"temperature": 3.0, "top_p": 0.9, "seed": 5, "max_new_tokens": 12}


def test_streams_the_same_answer(language_bundle: Path, trust: Path, language: Model) -> None:
    done = mllm_run(language_bundle, "--trust", trust, "--prompt", PROMPT, *SAMPLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == answer(language, **OPTIONS) + b"\n"
    assert b"tokens (" in done.stderr
    assert b"peak memory" in done.stderr


def test_figures_stand_below_the_text(language_bundle: Path, trust: Path) -> None:
    command = [library_path().with_name("mllm-run"), language_bundle, "--trust", trust]
    command += ["--prompt", PROMPT, *SAMPLED]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert b"prompt tokens (" in done.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[-1][:1].isdigit()


@pytest.mark.parametrize("suffix", ["ppm", "npy"])
def test_sees_an_image(
    tmp_path: Path, vision_bundle: Path, trust: Path, vision: Model, suffix: str
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    out = io.BytesIO()
    if suffix == "npy":
        np.save(out, pixels)
    else:
        Image.fromarray(pixels).save(out, "ppm")
    path = tmp_path / f"image.{suffix}"
    path.write_bytes(out.getvalue())
    arguments = ("--trust", trust, "--prompt", PROMPT, "--image", path, "--threads", "1")
    done = mllm_run(vision_bundle, *arguments, *SAMPLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == answer(vision, image=pixels, **OPTIONS) + b"\n"


def test_json_is_one_object(language_bundle: Path, trust: Path, language: Model) -> None:
    done = mllm_run(language_bundle, "--trust", trust, "--prompt", PROMPT, "--json", *SAMPLED)
    told = json.loads(done.stdout)
    assert told["text"].encode() == answer(language, **OPTIONS)
    assert told["new_tokens"] == language.statistics.new_tokens
    assert told["finish"] == language.statistics.finish
    assert told["peak_bytes"] > 0
    assert done.stderr == b""


def test_trusts_the_users_own_file(tmp_path: Path, language_bundle: Path, trust: Path) -> None:
    arguments = (language_bundle, "--prompt", PROMPT, "--max-new-tokens", "1")
    assert mllm_run(*arguments, home=tmp_path).returncode == 1
    own = tmp_path / ".config/mllm-compiler/trust"
    own.parent.mkdir(parents=True)
    own.write_bytes(trust.read_bytes())
    assert mllm_run(*arguments, home=tmp_path).returncode == 0


def line(done: subprocess.CompletedProcess[bytes]) -> str:
    text = done.stderr.decode()
    assert text.count("\n") == 1, text
    assert done.stdout == b""
    return text.rstrip("\n")


def test_faults_are_one_line(tmp_path: Path, language_bundle: Path, trust: Path) -> None:
    text = tmp_path / "text"
    text.write_text("hello")
    small = write_small(tmp_path / "small")
    trusted = ("--trust", trust)
    cases: list[tuple[tuple[str | Path, ...], str, str]] = [
        ((tmp_path / "absent", *trusted), "MLC-U005", "(check the path)"),
        ((text, *trusted), "MLC-B001", "error: not a bundle"),
        ((language_bundle,), "MLC-B006", "add it to the trust file if you know whose it is"),
        ((language_bundle, "--trust", text), "MLC-B012", "text:1: error: not a public key"),
        ((small, *trusted), "MLC-X002", ""),
        ((language_bundle, *trusted, "--image", text), "MLC-X023", "text: error: neither"),
        ((language_bundle, *trusted, "--audio", text), "MLC-X024", "text: error: not a WAV"),
        ((language_bundle, *trusted, "--prompt", "a " * 99), "MLC-X022", "tokens"),
    ]
    for arguments, code, words in cases:
        done = mllm_run(*arguments)
        assert done.returncode == 1, arguments
        told = line(done)
        assert f"[{code}]" in told, told
        assert words in told, told


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a", "b"),
        ("a", "--nothing"),
        ("a", "--prompt"),
        ("a", "--seed", "-1"),
        ("a", "--seed", "1x"),
        ("a", "--top-p", "2"),
        ("a", "--temperature", "nan"),
        ("a", "--threads", "65"),
        ("a", "--max-new-tokens", ""),
    ],
)
def test_wrong_usage_is_two(arguments: Sequence[str]) -> None:
    done = mllm_run(*arguments)
    assert done.returncode == 2
    assert "[MLC-U001] (mllm-run --help)" in line(done)


def test_version() -> None:
    done = mllm_run("--version")
    assert (done.returncode, done.stdout) == (
        0,
        f"mllm-run, version {library_version()}\n".encode(),
    )


def test_help() -> None:
    done = mllm_run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith(b"usage: mllm-run BUNDLE")


def test_no_token_takes_memory(language_bundle: Path, trust: Path, language: Model) -> None:
    words = ("--trust", trust, "--prompt", PROMPT, "--forbid-allocations", *SAMPLED)
    for more in ((), ("--json",), ("--speculate", "lookup")):
        done = mllm_run(language_bundle, *words, *more)
        assert (done.returncode, b"error" in done.stderr) == (0, False)


def test_an_allocation_ends_the_process(tmp_path: Path) -> None:
    """The guard of --forbid-allocations, in a program that allocates."""
    program, tools = tmp_path / "late", ROOT / "runtime_stub/tools"
    sources = [ROOT / "tests/runtime/c/late_allocation.c", tools / "allocations.c"]
    command = ["cc", "-std=gnu11", "-pthread", f"-I{tools}", *sources, "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program, "late"], check=False, capture_output=True)
    assert (done.returncode, done.stderr.count(b"MLC-X067")) == (70, 1)
    assert subprocess.run([program, "early"], check=False).returncode == 3
