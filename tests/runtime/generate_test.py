"""Generation in C against a loop over the reference executor, which knows no cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.generation.sampling import Sampler
from mllm_compiler.reference.executor import run_function
from mllm_compiler.weights import WeightStore
from runtime_stub import Model, RuntimeFailure
from tests.runtime.text_models import (
    IMAGE,
    SIDE,
    WIDTH,
    language_module,
    rendered,
    tokenizer,
    vision_module,
    weight,
    write_text_bundle,
)

PROMPT = "the meeting is on <|im_end|> at 12:30, naïve user!"
STOP = {0, 2}
Logits = NDArray[np.float32]


class Plain:
    """All tokens through the decoder at every step, without past.

    Attributes:
        table: The embedding, for a decoder that takes embeddings.
    """

    def __init__(self, module: ModuleOp, store: WeightStore, *, embeds: bool) -> None:
        self.module, self.store, self.embeds = module, store, embeds
        self.table = weight(module, store, "decoder", "model.embed_tokens.weight")

    def logits(self, rows: NDArray[np.generic]) -> Logits:
        count = rows.shape[0]
        past = np.zeros((1, 2, 0, 4), np.float32)
        inputs = {
            "inputs_embeds" if self.embeds else "input_ids": rows[None],
            "attention_mask": np.ones((1, count), np.int64),
            "position_ids": np.arange(count, dtype=np.int64)[None],
        }
        inputs |= {f"past_key_values.{i}.{k}": past for i in range(2) for k in ("key", "value")}
        results = run_function(self.module, "decoder", inputs, self.store)
        return np.asarray(results["logits"][0, -1], np.float32)

    def generate(self, rows: NDArray[np.generic], count: int, sampler: Sampler) -> list[int]:
        made: list[int] = []
        while len(made) < count:
            token = sampler.choose(self.logits(rows), first=not made)
            if token in STOP:
                break
            made.append(token)
            new = self.table[token] if self.embeds else np.int64(token)
            rows = np.concatenate([rows, np.asarray(new, rows.dtype)[None]])
        return made


def encode(prompt: str, *, image: bool = False) -> list[int]:
    """The prompt's ids; what the user wrote is never a marker."""
    library = tokenizer()
    text = rendered("\x01", image=image)
    before, after = text.split("\x01")
    plain = prompt.replace("<|im_end|>", "")
    ids = library.encode(f"{before}{plain}{after}", add_special_tokens=False).ids
    if plain == prompt:
        return ids
    left, right = (library.encode(part, add_special_tokens=False).ids for part in (before, after))
    marker = [library.encode(c).ids[0] for c in "<|im_end|>"]
    first, second = (library.encode(part).ids for part in prompt.split("<|im_end|>"))
    return [*left, *first, *marker, *second, *right]


def tokens(model: Model, *, prompt: str = PROMPT, **options: object) -> list[int]:
    pieces = model.generate(prompt, **options)  # type: ignore[arg-type]
    return [piece.token for piece in pieces if piece.token is not None]


@pytest.mark.parametrize("temperature", [0.0, 3.0])
@pytest.mark.parametrize("seed", [0, 7])
def test_text_is_what_the_plain_loop_makes(language: Model, temperature: float, seed: int) -> None:
    prompt = "the meeting is on at 12:30, naïve user!"
    plain = Plain(*language_module(), embeds=False)
    sampler = Sampler(temperature=temperature, top_p=0.9, seed=seed)
    ids = np.array(encode(prompt), np.int64)
    assert 32 < len(ids) <= 48  # two chunks
    expected = plain.generate(ids, 16, sampler)
    made = tokens(
        language, prompt=prompt, max_new_tokens=16, temperature=temperature, top_p=0.9, seed=seed
    )
    assert made == expected
    assert language.statistics.prompt_tokens == len(ids)


def test_the_users_words_are_no_markers(language: Model) -> None:
    tokens(language, max_new_tokens=1)
    ids = encode(PROMPT)
    assert ids.count(2) == 1
    assert language.statistics.prompt_tokens == len(ids)


def pixels(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_image_stands_where_the_template_says(vision: Model, seed: int) -> None:
    module, store = vision_module()
    plain = Plain(module, store, embeds=True)
    image = pixels(seed)
    mean, std = np.float32(IMAGE["mean"]), np.float32(IMAGE["std"])
    values = ((image.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]
    hidden = run_function(module, "vision", {"pixel_values": values}, store)["last_hidden_state"]
    features = run_function(module, "projector", {"features": hidden}, store)["tokens"][0]
    ids = encode("the meeting is on", image=True)
    at = ids.index(tokenizer().token_to_id("<image>"))
    rows = np.concatenate([plain.table[ids[:at]], features, plain.table[ids[at + 1 :]]])
    expected = plain.generate(rows.astype(np.float32), 12, Sampler(temperature=3.0, seed=seed))
    made = tokens(
        vision,
        prompt="the meeting is on",
        image=image,
        max_new_tokens=12,
        temperature=3.0,
        seed=seed,
    )
    assert made == expected
    assert vision.statistics.prompt_tokens == len(ids) - 1 + 4


def test_a_vision_model_answers_without_an_image(vision: Model) -> None:
    plain = Plain(*vision_module(), embeds=True)
    rows = plain.table[encode("the user")]
    assert rows.shape[1] == WIDTH
    expected = plain.generate(rows, 8, Sampler(temperature=2.0, seed=3))
    made = tokens(vision, prompt="the user", max_new_tokens=8, temperature=2.0, seed=3)
    assert made == expected


def test_a_second_answer_starts_afresh(language: Model) -> None:
    first = tokens(language, max_new_tokens=6, temperature=2.0, seed=4)
    tokens(language, prompt="something else", max_new_tokens=3)
    assert tokens(language, max_new_tokens=6, temperature=2.0, seed=4) == first


def test_the_text_is_the_tokens_text(language: Model) -> None:
    for seed in range(8):
        pieces = list(language.generate(PROMPT, max_new_tokens=30, temperature=4.0, seed=seed))
        ids = [piece.token for piece in pieces if piece.token is not None]
        assert "".join(piece.text for piece in pieces) == tokenizer().decode(ids)


def finish(model: Model, **options: object) -> tuple[str, int]:
    count = len(tokens(model, **options))
    return model.statistics.finish, count


def test_why_it_ends(language: Model) -> None:
    assert finish(language, max_new_tokens=5) == ("length", 5)
    reason, count = finish(language, prompt="a", max_new_tokens=1000)
    assert reason == "full"
    assert language.statistics.prompt_tokens + count == 64 + 1  # the last one is not fed


def config_with(**parts: object) -> dict[str, object]:
    return dict(parts)


@pytest.fixture
def remade(tmp_path: Path, trust: Path) -> Callable[..., Model]:
    def make(**config: object) -> Model:
        path = tmp_path / "remade"
        write_text_bundle(path, *language_module(), config=config)
        return Model.open(path, trust=trust, threads=1)

    return make


def test_suppressed_tokens_never_come(remade: Callable[..., Model]) -> None:
    greedy = tokens(remade(), max_new_tokens=4)
    generation = {"suppress": [greedy[0]]}
    assert greedy[0] not in tokens(remade(generation=generation), max_new_tokens=4)
    generation = {"begin_suppress": [greedy[0]], "max_new_tokens": 3}
    made = tokens(remade(generation=generation))
    assert made[0] != greedy[0]
    assert len(made) == 3


def test_a_stop_token_ends_the_answer(remade: Callable[..., Model]) -> None:
    model = remade()
    made = tokens(model, max_new_tokens=12, temperature=3.0, seed=2)
    stop = made[5]
    text = {"stop": [stop], "prompt": PROMPT, "template": {"plain": template()}}
    stopping = remade(text=text)
    assert tokens(stopping, max_new_tokens=12, temperature=3.0, seed=2) == made[: made.index(stop)]
    assert stopping.statistics.finish == "stop"


def template() -> Sequence[dict[str, object]]:
    before, after = rendered("\x01").split("\x01")
    return [{"literal": before}, {"prompt": True}, {"literal": after}]


def test_what_does_not_fit_is_told(language: Model, vision: Model) -> None:
    image, sound = pixels(0), np.zeros(10, np.float32)
    refusals: list[tuple[Model, dict[str, object], str, str]] = [
        (language, {"prompt": "word " * 500}, "MLC-X022", "tokens, the model's cache holds"),
        (language, {"prompt": "a", "image": image}, "MLC-X025", "takes no image"),
        (vision, {"prompt": "a", "audio": sound}, "MLC-X025", "takes no sound"),
        (vision, {"prompt": "a", "image": image[..., 0]}, "MLC-X023", "uint8"),
        (vision, {"prompt": "a", "image": image[:0]}, "MLC-X025", "out of range"),
    ]
    for model, options, code, words in refusals:
        with pytest.raises(RuntimeFailure, match=words) as caught:
            tokens(model, **options)  # type: ignore[arg-type]
        assert caught.value.code == code


def test_a_broken_config_is_told(remade: Callable[..., Model]) -> None:
    broken: list[tuple[dict[str, object], str]] = [
        ({"image": {"size": [8], "mean": [0, 0, 0], "std": [1, 1, 1]}}, "lacks size"),
        ({"image": {**IMAGE, "std": [1, 0, 1]}}, "not positive"),
        ({"audio": {"rate": 0}}, "out of range"),
        ({"text": {"template": {"plain": [{"literal": "x"}] * 40}}}, "too many segments"),
        ({"text": {"template": {}}}, "no form 'plain'"),
    ]
    for config, words in broken:
        with pytest.raises(RuntimeFailure, match=words):
            tokens(remade(**config))
