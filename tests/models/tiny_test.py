"""The tiny recipes: valid, fast, the same bytes every time, and they run."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from models.build import built, recipes
from models.recipe.session import Session, empty_cache, generate_step
from models.recipe.tiny import TINY_LLAMA, TINY_PROJECTOR, TINY_VIT, TINY_WHISPER

TINY = [name for name in recipes() if name.startswith("tiny-")]
Build = Callable[[str], Path]


def near(left: object, right: object) -> None:
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_two_builds_give_the_same_bytes(name: str, tiny: Build, tmp_path: Path) -> None:
    start = time.process_time()
    again = built(name, tmp_path / "again")
    assert time.process_time() - start < 1
    first = tiny(name)
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted(p.name for p in again.iterdir())
    for file in names:
        assert (first / file).read_bytes() == (again / file).read_bytes(), file


@pytest.mark.parametrize("name", TINY)
def test_the_checker_accepts_every_graph(name: str, tiny: Build) -> None:
    folder = tiny(name)
    table = tomllib.loads((folder / "model.toml").read_text())
    assert table["name"] == name
    for graph in table["graphs"].values():
        onnx.checker.check_model(str(folder / graph["file"]), full_check=True)
    names = {file.name for file in folder.glob("*.onnx")}
    assert names == {graph["file"] for graph in table["graphs"].values()}


def test_llama_in_two_steps_equals_one(tiny: Build) -> None:
    session = Session(tiny("tiny-llama") / "model.onnx", threads=1)
    none = empty_cache(session, 2, TINY_LLAMA.kv_heads, TINY_LLAMA.head)
    ids = np.arange(14, dtype=np.int64).reshape(2, 7)
    whole, cache = generate_step(session, "input_ids", ids, none)
    _, before = generate_step(session, "input_ids", ids[:, :4], none)
    split, grown = generate_step(session, "input_ids", ids[:, 4:], before)
    assert whole.shape == (2, TINY_LLAMA.vocab)
    near(whole, split)
    for name, value in cache.items():
        near(value, grown[name])


def test_llama_ignores_what_the_mask_hides(tiny: Build) -> None:
    session = Session(tiny("tiny-llama") / "model.onnx", threads=1)
    none = empty_cache(session, 1, TINY_LLAMA.kv_heads, TINY_LLAMA.head)
    tail = np.array([[5, 6, 7]], np.int64)
    alone, _ = generate_step(session, "input_ids", tail, none)
    padded = session.run(
        none
        | {
            "input_ids": np.array([[9, 5, 6, 7]], np.int64),
            "attention_mask": np.array([[0, 1, 1, 1]], np.int64),
            "position_ids": np.array([[0, 0, 1, 2]], np.int64),
        }
    )
    near(alone, padded["logits"][:, -1])


def test_vit_sees_every_image_of_a_batch_alike(tiny: Build) -> None:
    session = Session(tiny("tiny-vit") / "vision_encoder.onnx", threads=1)
    side = TINY_VIT.size
    pixels = np.random.default_rng(0).standard_normal((3, 3, side, side)).astype(np.float32)
    together = session.run({"pixel_values": pixels})["last_hidden_state"]
    assert together.shape == (3, TINY_VIT.tokens, TINY_VIT.hidden)
    near(together[1:2], session.run({"pixel_values": pixels[1:2]})["last_hidden_state"])


def test_whisper_with_a_cache_equals_whisper_without(tiny: Build) -> None:
    folder = tiny("tiny-whisper")
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    ears, first, later = (Session(folder / f"{name}.onnx", threads=1) for name in names)
    shape = (1, TINY_WHISPER.mels, 2 * TINY_WHISPER.frames)
    sound = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    heard = ears.run({"input_features": sound})["last_hidden_state"]
    assert heard.shape == (1, TINY_WHISPER.frames, TINY_WHISPER.hidden)
    ids = np.array([[1, 5, 6, 9, 12]], np.int64)
    whole = first.run({"input_ids": ids, "encoder_hidden_states": heard})
    begun = first.run({"input_ids": ids[:, :3], "encoder_hidden_states": heard})
    cache = {name.replace("present", "past_key_values"): begun[name] for name in begun}
    del cache["logits"]
    ended = later.run({"input_ids": ids[:, 3:]} | cache)
    near(whole["logits"][:, 3:], ended["logits"])
    near(whole["present.1.decoder.key"], ended["present.1.decoder.key"])


def test_the_parts_of_the_vlm_fit(tiny: Build) -> None:
    folder = tiny("tiny-vlm")
    eyes = Session(folder / "vision_encoder.onnx", threads=1)
    between = Session(folder / "projector.onnx", threads=1)
    voice = Session(folder / "decoder.onnx", threads=1)
    pixels = np.zeros((1, 3, TINY_VIT.size, TINY_VIT.size), np.float32)
    seen = eyes.run({"pixel_values": pixels})["last_hidden_state"]
    tokens = between.run({"features": seen})["image_features"]
    assert tokens.shape == (1, TINY_PROJECTOR.tokens, TINY_PROJECTOR.hidden)
    none = empty_cache(voice, 1, TINY_LLAMA.kv_heads, TINY_LLAMA.head)
    logits, _ = generate_step(voice, "inputs_embeds", tokens, none)
    assert logits.shape == (1, TINY_LLAMA.vocab)


def test_the_projector_folds_two_by_two(tiny: Build) -> None:
    between = Session(tiny("tiny-vlm") / "projector.onnx", threads=1)
    grid, width = TINY_PROJECTOR.grid, TINY_PROJECTOR.width
    features = np.random.default_rng(0).standard_normal((1, 1 + grid * grid, width))
    plain = features.astype(np.float32)
    changed = plain.copy()
    changed[:, 1 + grid] += 1  # second row, first column: the first token's third patch
    moved = [between.run({"features": value})["image_features"] for value in (plain, changed)]
    differs = np.abs(moved[0] - moved[1]).max(-1)[0] > 1e-6
    assert differs.tolist() == [True] + [False] * (TINY_PROJECTOR.tokens - 1)


def test_the_tokenizer_brings_every_text_back(tiny: Build) -> None:
    tokenizer = Tokenizer.from_file(str(tiny("tiny-vlm") / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == TINY_LLAMA.vocab
    for text in ("the meeting of 2026", "naïve — 会議 🙂", "\n\t\0"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text
    marked = tokenizer.encode("<|im_start|>user\n<image>", add_special_tokens=False).tokens
    assert marked == ["<|im_start|>", "user", "Ċ", "<image>"]
