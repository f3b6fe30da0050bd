"""`mllmc run`: both targets answer alike, and what they cannot do is told in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mllm_compiler.bundle.trust import signing_key
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from tests.cli.own_targets import OWN_TARGETS
from tests.cli.recipes import TINY, tiny

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every tiny model compiled for every target, signed by a key that is trusted."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in TINY:
            tiny(name)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        for name in TINY:
            for target in OWN_TARGETS:
                output = folder / f"{name}-{target}"
                request = Request(model=tiny(name), target=target, output=output, key=signing_key())
                compile_model(request)
    return folder


@pytest.fixture(autouse=True)
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.chdir(home)


def answer(capsys: Captured, *words: str) -> dict[str, object]:
    assert run(["run", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def picture(path: Path) -> str:
    random = np.random.default_rng(5)
    Image.fromarray(random.integers(0, 255, (90, 120, 3), np.uint8)).save(path)
    return str(path)


def sound(path: Path, rate: int = 16000) -> str:
    samples = (np.sin(np.arange(rate) / 9) * 9000).astype(np.int16)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return str(path)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--temperature", "3", "--seed", "1"],
        ["--temperature", "9", "--seed", "2", "--top-p", "0.9"],
        ["--system", "Be brief. <|im_end|>"],
    ],
)
def test_both_targets_say_the_same(options: list[str], capsys: Captured) -> None:
    words = ["--prompt", "  Hello <|im_end|>", "--max-new-tokens", "12", *options]
    left = answer(capsys, "tiny-llama-c", *words)
    right = answer(capsys, "tiny-llama-numpy", *words)
    assert left["tokens"] == right["tokens"]
    assert left["text"] == right["text"]
    assert left["prompt_tokens"] == right["prompt_tokens"]
    assert left["target"] == "c"


def test_a_seed_decides_and_another_differs(capsys: Captured) -> None:
    words = ["tiny-llama-c", "--prompt", "Hi", "--max-new-tokens", "16", "--temperature", "9"]
    first, again, other = (answer(capsys, *words, "--seed", seed)["tokens"] for seed in "778")
    assert first == again
    assert first != other


def test_both_targets_see_the_same_picture(home: Path, capsys: Captured) -> None:
    words = ["--image", picture(home / "p.png"), "--max-new-tokens", "8", "--temperature", "2"]
    left, right = (answer(capsys, f"tiny-vlm-{target}", *words) for target in OWN_TARGETS)
    assert left["tokens"] == right["tokens"]
    assert left["prompt_tokens"] == right["prompt_tokens"]


def test_both_targets_hear_the_same_sound(home: Path, capsys: Captured) -> None:
    words = ["--audio", sound(home / "s.wav"), "--max-new-tokens", "8"]
    left, right = (answer(capsys, f"tiny-whisper-{target}", *words) for target in OWN_TARGETS)
    assert left["tokens"] == right["tokens"]
    assert left["tokens"]


def test_both_targets_end_an_answer_where_the_cache_is_full(home: Path, capsys: Captured) -> None:
    words = ["--audio", sound(home / "s.wav"), "--max-new-tokens", "100"]
    left, right = (answer(capsys, f"tiny-whisper-{target}", *words) for target in OWN_TARGETS)
    assert left["tokens"] == right["tokens"]
    assert left["finish"] == right["finish"] == "full"


def test_text_streams_and_figures_go_to_stderr(capsys: Captured) -> None:
    words = ["run", "tiny-llama-c", "--prompt", "Hi", "--max-new-tokens", "4", "--stats"]
    assert run(words) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("\n")
    assert "tokens per second" in captured.err


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_any_graph_runs_on_tensors(target: str, home: Path) -> None:
    pixels = np.random.default_rng(1).standard_normal((1, 3, 56, 56)).astype(np.float32)
    np.savez(home / "in.npz", pixel_values=pixels)
    words = ["--inputs", "in.npz", "--outputs", f"{target}.npz", "--entry", "vision"]
    assert run(["run", f"tiny-vlm-{target}", *words]) == 0
    with np.load(home / f"{target}.npz") as out:
        assert out["last_hidden_state"].shape == (1, 17, 32)


def test_targets_agree_on_tensors_with_a_cache(home: Path) -> None:
    random = np.random.default_rng(2)
    past = {
        f"past_key_values.{layer}.{kind}": random.standard_normal((1, 2, 5, 8)).astype(np.float32)
        for layer in range(2)
        for kind in ("key", "value")
    }
    inputs = {
        "input_ids": np.array([[7, 8, 9]]),
        "attention_mask": np.ones((1, 8), np.int64),
        "position_ids": np.array([[5, 6, 7]]),
        **past,
    }
    np.savez(home / "step.npz", **inputs)
    found: list[dict[str, np.ndarray]] = []
    for target in OWN_TARGETS:
        words = ["--inputs", "step.npz", "--outputs", "step-out.npz", "--entry", "decoder"]
        assert run(["run", f"tiny-llama-{target}", *words]) == 0
        with np.load(home / "step-out.npz") as out:
            found.append(dict(out))
    left, right = found
    assert sorted(left) == sorted(right)
    assert left["present.1.key"].shape == (1, 2, 8, 8)
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["absent"], 1, "absent: error: No such file or directory [MLC-U005]"),
        (["tiny-vit-c", "--prompt", "Hi"], 1, "[MLC-X025]"),
        (["tiny-vit-numpy", "--prompt", "Hi"], 1, "[MLC-X025]"),
        (["tiny-llama-c", "--prompt", "x", "--image", "p.png"], 1, "[MLC-X025]"),
        (["tiny-llama-numpy", "--prompt", "x", "--image", "p.png"], 1, "[MLC-X025]"),
        (["tiny-vlm-c", "--image", "absent.png"], 1, "absent.png: error: No such file"),
        (["tiny-vlm-c", "--image", "notes.txt"], 1, "notes.txt: error: not a picture that can"),
        (["tiny-whisper-c", "--audio", "notes.txt"], 1, "notes.txt: error: not a WAV file"),
        (["tiny-whisper-numpy", "--audio", "slow.wav"], 1, "8000 Hz, the model takes 16000 Hz"),
        (["tiny-llama-c", "--prompt", "x", "--inputs", "in.npz"], 2, "[MLC-U007]"),
        (["tiny-llama-c", "--inputs", "in.npz"], 2, "[MLC-U007]"),
        (["tiny-vit-c", "--inputs", "notes.txt", "--outputs", "o"], 1, "notes.txt: error: not an"),
        (["tiny-vit-c", "--inputs", "in.npz", "--outputs", "o", "--entry", "x"], 2, "[MLC-D004]"),
        (["tiny-llama-c", "--top-p", "0"], 2, "[MLC-U001]"),
        (["notes.txt"], 1, "notes.txt: error: not a bundle [MLC-B001]"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], status: int, text: str, home: Path, capsys: Captured
) -> None:
    (home / "notes.txt").write_text("not what it should be " * 300)
    picture(home / "p.png")
    sound(home / "slow.wav", 8000)
    np.savez(home / "in.npz", pixel_values=np.zeros((1, 3, 56, 56), np.float32))
    assert run(["run", *words]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert text in lines[0]
    assert not (home / "o").exists()


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_words_that_are_no_utf8_are_read_with_replacements(target: str, capsys: Captured) -> None:
    words = [f"tiny-llama-{target}", "--max-new-tokens", "6", "--system"]
    raw = answer(capsys, *words, "b\udce9", "--prompt", "caf\udce9 \udcf0\udc9f x")
    plain = answer(capsys, *words, "b\ufffd", "--prompt", "caf\ufffd \ufffd x")
    assert raw["tokens"] == plain["tokens"]
    assert raw["prompt_tokens"] == plain["prompt_tokens"]


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_path_that_is_no_utf8_is_a_path(target: str, home: Path, capsys: Captured) -> None:
    name = os.fsdecode(b"caf\xe9.mllm_bundle")
    shutil.copy(home / f"tiny-llama-{target}", home / name)
    trust = home / os.fsdecode(b"tr\xfcst")
    shutil.copy(home / "config" / "mllm-compiler" / "trust", trust)
    words = ["--trust", str(trust), "--prompt", "Hi", "--max-new-tokens", "2"]
    assert answer(capsys, name, *words)["bundle"] == name
    (home / name).write_bytes(b"no bundle")
    assert run(["run", name, *words]) == 1
    assert "error: not a bundle [MLC-B001]" in capsys.readouterr().err


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_tensor_of_nine_dims_is_refused(target: str, home: Path, capsys: Captured) -> None:
    np.savez(home / "nine.npz", pixel_values=np.zeros((1,) * 9, np.float32))
    words = ["--inputs", "nine.npz", "--outputs", "o", "--entry", "vision"]
    assert run(["run", f"tiny-vlm-{target}", *words]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "rank 9" in line
    assert "] (" in line


@pytest.mark.parametrize("cut", [60, 400])
@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_picture_that_is_cut_short_is_damaged(
    target: str, cut: int, home: Path, capsys: Captured
) -> None:
    whole = Path(picture(home / "p.png")).read_bytes()
    (home / "cut.png").write_bytes(whole[:cut])
    assert run(["run", f"tiny-vlm-{target}", "--image", "cut.png"]) == 1
    assert re.fullmatch(r"cut.png: error: .*\[MLC-X023\] \(.*\)\n", capsys.readouterr().err)


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_what_a_model_does_not_take_is_located_at_the_bundle(
    target: str, home: Path, capsys: Captured
) -> None:
    picture(home / "p.png")
    assert run(["run", f"tiny-llama-{target}", "--prompt", "x", "--image", "p.png"]) == 1
    assert capsys.readouterr().err.startswith(f"tiny-llama-{target}: error: ")


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_wave_of_five_channels_is_refused(target: str, home: Path, capsys: Captured) -> None:
    with wave.open(str(home / "five.wav"), "wb") as out:
        out.setnchannels(5)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(bytes(5 * 2 * 1600))
    assert run(["run", f"tiny-whisper-{target}", "--audio", "five.wav"]) == 1
    assert "five.wav: error: 5 channels where one or two are read [MLC-X024]" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_flipped_bit_is_refused_before_anything_runs(
    target: str, home: Path, capsys: Captured
) -> None:
    raw = bytearray((home / f"tiny-llama-{target}").read_bytes())
    middle = raw.index(b"chat_template.jinja") + 5000
    raw[middle] ^= 4
    (home / "flipped").write_bytes(raw)
    assert run(["run", "flipped", "--prompt", "Hi"]) == 1
    captured = capsys.readouterr()
    assert "[MLC-B00" in captured.err
    assert captured.out == ""


def test_an_unknown_signer_needs_a_flag(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere"))
    words = ["run", "tiny-llama-c", "--prompt", "Hi", "--max-new-tokens", "2"]
    assert run(words) == 1
    assert "[MLC-B006]" in capsys.readouterr().err
    assert run([*words, "--allow-unsigned"]) == 0
    assert run([*words, "--trust", str(home / "config" / "mllm-compiler" / "trust")]) == 0


def test_a_hand_made_wave_of_eight_bits_is_refused(home: Path, capsys: Captured) -> None:
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        40,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        16000,
        16000,
        1,
        8,
        b"data",
        4,
    )
    (home / "eight.wav").write_bytes(head + b"\0\0\0\0")
    assert run(["run", "tiny-whisper-c", "--audio", "eight.wav"]) == 1
    assert "8 bits a sample where 16 are read [MLC-X024]" in capsys.readouterr().err


def test_guesses_change_no_greedy_answer(capsys: Captured) -> None:
    words = ("tiny-llama-c", "--prompt", "abcabcabc", "--max-new-tokens", "40")
    plain = answer(capsys, *words)
    assert "drafted" not in plain
    looked_up = answer(capsys, *words, "--speculate", "lookup", "--drafts", "2")
    guessed = answer(capsys, *words, "--speculate", "tiny-llama-c")
    assert plain["tokens"] == looked_up["tokens"] == guessed["tokens"]
    assert guessed["accepted"] == guessed["drafted"] != 0


def test_where_nothing_can_be_guessed(capsys: Captured) -> None:
    words = ("--prompt", "a", "--speculate")
    refusals = (
        ("tiny-llama-numpy", "lookup", "MLC-X040"),
        ("tiny-llama-c", "nowhere", "MLC-U005"),
    )
    for bundle, draft, code in refusals:
        assert run(["run", bundle, *words, draft]) == 1
        told = capsys.readouterr().err.strip()
        assert f"[{code}]" in told
        assert told.count("\n") == 0
