"""Greedy tokens of models that no text goes into by itself: those of ONNX Runtime, on both targets.

The encoder's text of T5, the image of the Flamingo and the states of the Mamba are tensors here. No
token is said twice, since models of random weights would repeat the first one for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime
import pytest

from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.numpy.runner import NumpyRunner
from tests.backends.recipes_test import recipe

Tensors = Mapping[str, np.ndarray]
Run = Callable[[str, Tensors], Tensors]
COUNT = 12


def past_of(made: Tensors) -> dict[str, np.ndarray]:
    """What a step gives to the next one."""
    return {
        name.replace("present.", "past_key_values." if "cache" not in name else "past."): array
        for name, array in made.items()
        if "present" in name
    }


def spoken(first: Tensors, later: Callable[[np.ndarray, int], Tensors]) -> list[int]:
    """The likeliest tokens that were not said yet, one by one."""
    made, said = first, list[int]()
    while len(said) < COUNT:
        logits = made["logits"][0, -1].copy()
        logits[said] = -np.inf
        said.append(int(np.argmax(logits)))
        made = later(np.array([said[-1:]], np.int64), len(said))
    return said


def t5(run: Run, seed: int) -> list[int]:
    text = np.random.default_rng(seed).integers(0, 200, (1, 9))
    mask = {"encoder_attention_mask": np.ones_like(text)}
    heard = run("encoder", {"input_ids": text, "attention_mask": np.ones_like(text)})
    states = {"encoder_hidden_states": heard["last_hidden_state"]}
    first = run("decoder", {"input_ids": np.zeros((1, 1), np.int64), **mask, **states})
    past = past_of(first)

    def later(token: np.ndarray, count: int) -> Tensors:
        made = run("decoder_with_past", {"input_ids": token, **mask, **past})
        past.update(past_of(made))
        return made

    return spoken(first, later)


def flamingo(run: Run, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    pixels = rng.standard_normal((1, 3, 56, 56)).astype(np.float32)
    image = {"image_features": run("vision", {"pixel_values": pixels})["last_hidden_state"]}
    empty = np.zeros((1, 2, 0, 8), np.float32)
    kinds = [f"{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    past = {f"past_key_values.{kind}": empty for kind in kinds}

    def step(tokens: np.ndarray, before: int) -> Tensors:
        count = tokens.shape[1]
        places = np.arange(before, before + count, dtype=np.int64)[None]
        mask = {"attention_mask": np.ones((1, before + count), np.int64), "position_ids": places}
        made = run("decoder", {"input_ids": tokens, **mask, **image, **past})
        past.update(past_of(made))
        return made

    prompt = rng.integers(0, 200, (1, 6))
    return spoken(step(prompt, 0), lambda token, count: step(token, 5 + count))


def mamba(run: Run, seed: int) -> list[int]:
    sizes = {"conv": 4, "ssm": 8}
    names = [f"cache_params.past.{kind}.{layer}" for layer in range(2) for kind in sizes]
    past = {n: np.zeros((1, 64, sizes[n.split(".")[2]]), np.float32) for n in names}

    def step(tokens: np.ndarray, count: int) -> Tensors:
        made = run("decoder", {"input_ids": tokens, **past})
        past.update(past_of(made))
        return made

    return spoken(step(np.random.default_rng(seed).integers(0, 200, (1, 7)), 0), step)


TALKS = {"tiny-t5": t5, "tiny-flamingo": flamingo, "tiny-mamba": mamba}


@pytest.mark.parametrize("name", TALKS)
def test_greedy_tokens_are_those_of_onnx_runtime(name: str) -> None:
    made, talk = recipe(name), TALKS[name]
    sessions = {
        graph: onnxruntime.InferenceSession(made.folder / spec.file)
        for graph, spec in made.imported.spec.graphs.items()
    }

    def plain(graph: str, inputs: Tensors) -> Tensors:
        outputs = [output.name for output in sessions[graph].get_outputs()]
        return dict(zip(outputs, sessions[graph].run(None, dict(inputs)), strict=True))

    on_numpy = NumpyRunner(made.lifted, made.imported.store)
    for seed in range(3):
        expected = talk(plain, seed)
        assert talk(on_numpy.run, seed) == expected
        with CRunner(made.artifact, made.imported.store, threads=2) as on_c:
            assert talk(on_c.run, seed) == expected
