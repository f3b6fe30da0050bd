"""Whole small models: reference, lowered module, C runtime and the target numpy agree."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c import compile as c
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.numpy import compile as numpy_target
from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.backends.runner import Session
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference import run_function
from mllm_compiler.reference.cpu import CacheState, run_lowered
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import llama, llama_inputs
from tests.backends.small_pipelines import eyes, features, whisper

Made = tuple[ModuleOp, WeightStore]
MODELS: dict[str, Callable[[], Made]] = {"llama": llama, "eyes": eyes, "whisper": whisper}


def close(got: np.ndarray, want: np.ndarray) -> None:
    scale = np.abs(want).max(initial=1e-30)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


def split_llama(*, embeds: bool = False) -> Made:
    module, store = llama(embeds=embeds)
    SplitLanguageModel("decoder:model.embed_tokens.weight").apply(Context(), module)
    return module, store


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("tokens", [1, 4])
def test_a_raw_run_takes_past_and_gives_present(past: int, tokens: int) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=past, tokens=tokens)
    want = run_function(module, "decoder", inputs, store)
    with CRunner(c.compile_module(module), store) as runner:
        got = runner.run("decoder", inputs)
    assert got.keys() == want.keys()
    for name, array in want.items():
        close(got[name], array)


def test_a_mask_leaves_keys_out() -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=6, tokens=3)
    inputs["attention_mask"][:, :4] = 0
    want = run_function(module, "decoder", inputs, store)["logits"]
    with CRunner(c.compile_module(module), store) as runner:
        close(runner.run("decoder", inputs)["logits"], want)


@pytest.mark.parametrize("embeds", [False, True])
def test_generation_equals_the_whole_sequence_at_once(embeds: bool) -> None:
    """Prefill of five tokens and ten steps give the logits that one run over all tokens gives."""
    module, store = llama(embeds=embeds)
    inputs = llama_inputs(module, past=0, tokens=15)
    want = run_function(module, "decoder", inputs, store)["logits"]
    name = "inputs_embeds" if embeds else "input_ids"
    SplitLanguageModel().apply(Context(), module)
    lowered, state = module.clone(), CacheState()
    artifact = c.compile_module(lowered)
    session = Session(NumpyRunner.of(numpy_target.compile_module(module), store))
    with CRunner(artifact, store) as runner:
        for start, end in ((0, 5), *((i, i + 1) for i in range(5, 15))):
            entry = "prefill" if start == 0 else "decode"
            given = {name: inputs[name][:, start:end]}
            got = runner.run(entry, given)["logits"]
            close(got, want[:, end - 1 : end])
            close(run_lowered(lowered, entry, given, store, state)["logits"], got)
            close(session.run(entry, given)["logits"], got)
        assert runner.cache_length("decoder") == state.length == 15


def test_a_cache_can_be_rewound() -> None:
    module, store = split_llama()
    ids = llama_inputs(module, past=0, tokens=6)["input_ids"]
    with CRunner(c.compile_module(module), store) as runner:
        first = runner.run("prefill", {"input_ids": ids})["logits"]
        runner.forget("decoder", 4)
        again = runner.run("prefill", {"input_ids": ids[:, 4:]})["logits"]
    close(again, first)


def test_the_encoder_hands_its_features_to_the_projector_without_a_copy() -> None:
    module, store = eyes()
    pixels = np.random.default_rng(3).standard_normal((2, 3, 12, 12)).astype(np.float32)
    hidden = run_function(module, "vision", {"pixel_values": pixels}, store)
    want = run_function(module, "projector", {"features": hidden["last_hidden_state"]}, store)
    artifact = c.compile_module(module)
    slots = [str(graph.attributes | graph.properties) for graph in graphs(module)]
    assert slots[0].count("cpu.slot") >= 1
    with CRunner(artifact, store) as runner:
        got = runner.run("vision", {"pixel_values": pixels})
        close(got["last_hidden_state"], hidden["last_hidden_state"])
        close(
            runner.run("projector", {"features": got["last_hidden_state"]})["tokens"],
            want["tokens"],
        )
        assert runner.run("vision", {"pixel_values": pixels}, only=()) == {}
        close(runner.run("projector", {})["tokens"], want["tokens"])


def test_whisper_keeps_its_own_cache_and_shares_the_encoders() -> None:
    module, store = whisper()
    session = Session(NumpyRunner.of(numpy_target.compile_module(module), store))
    ids = np.array([[3, 1, 4, 1, 5, 9, 2]])
    artifact = c.compile_module(module)
    assert [e.cache.cache if e.cache else None for e in artifact.entries] == [
        None,
        "decoder",
        "decoder",
    ]
    with CRunner(artifact, store) as runner:
        sound = {"input_features": features()}
        runner.run("encoder", sound, only=())
        session.run("encoder", sound)
        for start, end in ((0, 4), (4, 5), (5, 6), (6, 7)):
            entry = "decoder" if start == 0 else "decoder_with_past"
            given = {"input_ids": ids[:, start:end]}
            want = session.run(entry, given)["logits"]
            close(runner.run(entry, given, only=("logits",))["logits"], want)
        assert runner.cache_length("decoder") == 7


def test_equal_weights_of_two_graphs_are_one() -> None:
    module, _ = whisper()
    artifact = c.compile_module(module)
    keys = [(w.digest, w.layout) for w in artifact.weights]
    assert len(set(keys)) == len(keys)
    assert sum(w.name == "table" for w in artifact.weights) == 1


@pytest.mark.parametrize("model", MODELS)
def test_two_compiles_give_the_same_bytes(model: str) -> None:
    def compiled() -> tuple[bytes, bytes, bytes]:
        module, store = MODELS[model]()
        SplitLanguageModel().apply(Context(), module)
        text = numpy_target.compile_module(module).module
        artifact = c.compile_module(module)
        return artifact.program, b"".join(artifact.stream(store)), text

    assert compiled() == compiled()


@pytest.mark.parametrize("model", MODELS)
def test_lowering_keeps_what_a_module_computes_and_verifies(model: str) -> None:
    module, _ = MODELS[model]()
    artifact = c.compile_module(module)
    module.verify()
    assert artifact.plan.bound <= artifact.plan.plan
    assert artifact.weight_bytes == sum(map(len, artifact.stream(MODELS[model]()[1])))
    arena, weights = struct.unpack_from("<QQ", artifact.program, 108)
    assert (arena, weights) == (artifact.plan.plan, artifact.weight_bytes)
