"""Entries as functions over arrays, past and present tensors included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.reference.executor import run_function
from runtime_stub import Model, RuntimeFailure, library_version
from runtime_stub.library import ffi
from runtime_stub.tensors import empty_like
from tests.backends.small_models import llama_inputs
from tests.runtime.text_models import language_module


def test_the_version_is_the_librarys() -> None:
    assert library_version().count(".") == 2


def test_entries_say_what_they_take(language: Model) -> None:
    entries = language.entries
    assert set(entries) == {"decoder", "prefill", "decode"}
    mask = next(t for t in entries["decoder"].inputs if t.name == "attention_mask")
    assert mask.dtype == "int64"
    assert mask.shape == ("batch_size", "past_sequence_length + sequence_length")
    assert entries["prefill"].outputs[0].shape == ("batch_size", 1, 274)
    assert entries["decode"].role == "decode"
    assert entries["decode"].cache


@pytest.mark.parametrize(("past", "tokens"), [(0, 5), (3, 1), (7, 4)])
def test_a_run_is_what_the_reference_computes(language: Model, past: int, tokens: int) -> None:
    module, store = language_module()
    inputs = llama_inputs(module, past=past, tokens=tokens)
    expected = run_function(module, "decoder", inputs, store)
    results = language.run("decoder", inputs)
    assert set(results) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=2e-5, atol=2e-5)


def test_a_run_leaves_nothing_behind(language: Model) -> None:
    module, _ = language_module()
    inputs = llama_inputs(module, past=4, tokens=2)
    first = language.run("decoder", inputs)
    language.run("decoder", llama_inputs(module, past=0, tokens=9, seed=3))
    again = language.run("decoder", inputs)
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_linked_entries(vision: Model) -> None:
    pixels = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    hidden = vision.run("vision", {"pixel_values": pixels})["last_hidden_state"]
    tokens = vision.run("projector", {"features": hidden})["tokens"]
    assert tokens.shape == (1, 4, 16)


def test_faults_are_told(language: Model) -> None:
    module, _ = language_module()
    inputs = llama_inputs(module, past=0, tokens=2)
    ids = inputs["input_ids"]
    faults: list[tuple[str, dict[str, object], str]] = [
        ("nothing", {}, "no entry 'nothing'; there are"),
        ("prefill", {}, "'input_ids' is missing"),
        ("prefill", {"input_ids": ids.astype(np.float32)}, "is int64, not float32"),
        ("prefill", {"input_ids": np.zeros((1,) * 9, np.int64)}, "rank 9, at most 8"),
        ("prefill", {"input_ids": ids[0]}, "rank"),
        ("prefill", {"input_ids": ids, "else": ids}, "no input 'else'"),
        ("prefill", {"input_ids": np.zeros((1, 99), np.int64)}, "sequence_length"),
        ("prefill", {"input_ids": ids.astype(np.complex64)}, "complex64"),
    ]
    for entry, given, words in faults:
        with pytest.raises(RuntimeFailure, match=words) as caught:
            language.run(entry, given)  # type: ignore[arg-type]
        assert caught.value.code.startswith("MLC-X")
        assert caught.value.remedy


def test_a_closed_model_stays_closed(language_bundle: Path, trust: Path) -> None:
    with Model.open(language_bundle, trust=trust) as model:
        assert model.tokenize("a") == [model.tokenize("a")[0]]
    model.close()
    with pytest.raises(RuntimeFailure, match="closed"):
        model.run("prefill", {})
    with pytest.raises(RuntimeFailure, match="closed"):
        model.tokenize("a")


@pytest.mark.parametrize("extent", [1 << 46, 1 << 62])
def test_an_output_for_which_there_is_no_memory_is_told(extent: int) -> None:
    fields = {"dtype": 1, "rank": 2, "dims": [extent, 1] + [0] * 6}
    with pytest.raises(RuntimeFailure, match="no memory for an output of shape") as caught:
        empty_like(ffi.new("mllm_tensor *", fields))
    assert caught.value.code == "MLC-X004"
    assert caught.value.remedy


def test_a_surrogate_is_read_as_no_character(language: Model) -> None:
    assert language.tokenize("a\udcff\ud800") == language.tokenize("a\ufffd\ufffd")


def test_a_failure_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "no.mllm_bundle"
    path.write_bytes(b"hello")
    with pytest.raises(RuntimeFailure) as caught:
        Model.open(path, allow_unsigned=True)
    line = str(caught.value)
    assert line.endswith("error: not a bundle [MLC-B001] (copy or compile the bundle again)")
