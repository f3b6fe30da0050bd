"""A decoder between a device and the host: attention and its cache in C kernels, the rest of each
block in LiteRT or HTP's emulator, in graphs of static sizes. The truth is ONNX Runtime.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from numpy.typing import NDArray

from mllm_compiler.bundle.verify import Bundle, Policy, open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.recipes import build_recipe
from mllm_compiler.sessions.devices import devices_of
from runtime_stub import Model
from tests.runtime.onnx_answers import OnnxModel

pytestmark = pytest.mark.vendor
SIZES = ["--dim", "sequence_length=1,32", "--dim", "past_sequence_length<=64"]
LEAST = {"tflite": 0.9999999, "qnn": 0.9999}
"""The cosine of logits: of f32, and of halves."""


@cache
def folder() -> Path:
    return build_recipe("tiny-vlm", lambda line: None)


@cache
def placed(device: str) -> Bundle:
    path = Path(mkdtemp()) / device
    words = ["compile", str(folder()), "--target", device, "--fallback", "c", *SIZES]
    assert run([*words, "--partition", "most", "-o", str(path), "--unsigned"]) == 0
    return open_bundle(path, Policy(allow_unsigned=True))


def model_of(opened: Bundle) -> Model:
    return Model.open(opened.path, allow_unsigned=True, threads=1, devices=devices_of(opened, 1))


def cosine(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    x, y = (v.astype(np.float64).ravel() for v in (a, b))
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


@pytest.mark.parametrize("device", ["tflite", "qnn"])
def test_each_block_is_a_call_up_to_attention_and_one_behind_it(device: str) -> None:
    opened = placed(device)
    block = json.loads(bytes(opened.member(f"targets/{device}/device.json")))["graphs"]
    for name in ("decoder_1", "decoder_32"):
        graph = block[name]
        assert len(graph["calls"]) == 3
        assert set(graph["fallback"].values()) == {
            f"{device}: it reads or appends to the KV cache, which the host keeps"
        }
        assert graph["plan"]["device_operations"] == graph["plan"]["operations"] - 2


@pytest.mark.parametrize("device", ["tflite", "qnn"])
def test_logits_of_a_prompt_and_of_tokens_behind_it_are_those_of_onnx_runtime(device: str) -> None:
    onnx = OnnxModel(folder()).graphs["decoder"]
    rng, inputs = np.random.default_rng(3), onnx.session.get_inputs()
    sizes = {v.name: v.shape for v in inputs if v.name.startswith("past")}
    past = {name: np.zeros((1, s[1], 0, s[3]), np.float32) for name, s in sizes.items()}
    with model_of(placed(device)) as model:
        for seen, new in ((0, 7), (7, 1), (8, 1), (9, 20)):
            given = {
                "inputs_embeds": rng.standard_normal((1, new, 32)).astype(np.float32),
                "attention_mask": np.ones((1, seen + new), np.int64),
                "position_ids": np.arange(seen, seen + new)[None],
            }
            expected = onnx.run({**given, **past})
            found = model.run("decoder", {**given, **past})
            past = {
                name.replace("present", "past_key_values"): value.astype(np.float32)
                for name, value in expected.items()
                if name.startswith("present")
            }
            assert cosine(found["logits"], expected["logits"]) > LEAST[device]
            for name in expected.keys() - {"logits"}:
                assert cosine(found[name], expected[name]) > LEAST[device]
        assert model.counters.device_calls == 4 * 3


@pytest.mark.parametrize("device", ["tflite", "qnn"])
def test_a_picture_is_answered_with_the_cache_between_calls(device: str) -> None:
    """By the session's own cache, token by token."""
    onnx = OnnxModel(folder())
    pixels = np.random.default_rng(4).integers(0, 256, (56, 56, 3), np.uint8)
    sampler = onnx.sampler(1.5, 4) if device == "tflite" else onnx.sampler(0.0, 0)
    temperature = 1.5 if device == "tflite" else 0.0
    expected = onnx.picture(pixels, "what is it?", 8, sampler)
    with model_of(placed(device)) as model:
        pieces = model.generate(
            "what is it?", image=pixels, max_new_tokens=8, temperature=temperature, seed=4
        )
        assert [p.token for p in pieces if p.token is not None] == expected
        assert model.counters.device_calls >= 8 * 3
