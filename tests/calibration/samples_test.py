"""Files become inputs of graphs: tokens are the tokenizer's, features the model's own, and graphs
behind others get what ONNX Runtime says that those give."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from tokenizers import Tokenizer

from mllm_compiler.calibration import Model, write_samples
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.calibration_data import graph_inputs
from mllm_compiler.quantisation.recipe import Limits
from tests.backends.onnx_export.roundtrip import lifted
from tests.cli.recipes import tiny

TEXT = "The meeting starts at nine, and nobody is late. " * 40
RNG = np.random.default_rng(5)


def model(name: str) -> Model:
    imported = lifted(tiny(name))
    return Model(imported.module, imported.spec, imported.store)


def samples(name: str, data: Path | None, folder: Path, limits: Limits | None = None):
    """The samples of each graph of a tiny model, and the warnings."""
    warnings: list[str] = []
    made = model(name)
    write_samples(made, data, folder, limits or Limits(), warnings.append)
    graphs = [path.name for path in folder.iterdir()]
    return {graph: graph_inputs(str(folder), graph) for graph in graphs}, warnings


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def picture(path: Path) -> None:
    Image.fromarray(RNG.integers(0, 256, (40, 50, 3), np.uint8)).save(path)


def sound(path: Path) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes((RNG.standard_normal(16000) * 3000).astype("<i2").tobytes())


def test_texts_are_windows_of_the_models_own_tokens(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    (data / "a.txt").write_text(TEXT)
    (data / "b.md").write_text("The end.")
    found, warnings = samples(
        "tiny-llama", data, folder(tmp_path / "o"), Limits(tokens=60, window=20)
    )
    ids = (
        Tokenizer.from_file(str(tiny("tiny-llama") / "tokenizer.json"))
        .encode(f"{TEXT}\n\nThe end.", add_special_tokens=False)
        .ids
    )
    assert not warnings
    assert len(found["decoder"]) == 3
    for sample, start in zip(found["decoder"], np.linspace(0, len(ids) - 20, 3), strict=True):
        assert sample["input_ids"].tolist() == [ids[int(start) : int(start) + 20]]
        np.testing.assert_array_equal(sample["attention_mask"], np.ones((1, 20)))
        np.testing.assert_array_equal(sample["position_ids"], [np.arange(20)])
        assert sample["past_key_values.0.key"].shape[2] == 0


def test_a_short_text_is_one_short_window(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    (data / "a.txt").write_text("Good morning.")
    found, _ = samples("tiny-llama", data, folder(tmp_path / "o"))
    assert len(found["decoder"]) == 1
    assert 1 < found["decoder"][0]["input_ids"].size < 20


def test_a_graph_behind_another_gets_what_that_gives(tmp_path: Path) -> None:
    """The projector of a vision-language model, and the rows in the prompt of its decoder."""
    data = folder(tmp_path / "data")
    for name in ("a.png", "b.jpg"):
        picture(data / name)
    (data / "a.txt").write_text("A red square.")
    found, warnings = samples("tiny-vlm", data, folder(tmp_path / "o"))
    assert not warnings
    assert {graph: len(s) for graph, s in found.items()} == {
        "vision": 2,
        "projector": 2,
        "decoder": 2,
    }
    given = found["vision"][0]
    session = onnxruntime.InferenceSession(tiny("tiny-vlm") / "vision_encoder.onnx")
    features = session.run(["last_hidden_state"], given)[0]
    np.testing.assert_allclose(found["projector"][0]["features"], features, rtol=1e-4, atol=1e-5)
    session = onnxruntime.InferenceSession(tiny("tiny-vlm") / "projector.onnx")
    rows = session.run(None, {"features": features})[0].reshape(-1, features.shape[-1])
    with_words, without = (s["inputs_embeds"][0] for s in found["decoder"])
    assert len(with_words) > len(without)
    assert any(np.allclose(r, rows[0], rtol=1e-3, atol=1e-4) for r in with_words)


def test_a_decoder_over_sound_reads_the_words_beside_it_or_its_own(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    for name in ("a.wav", "b.wav"):
        sound(data / name)
    (data / "a.txt").write_text("good morning")
    found, warnings = samples("tiny-whisper", data, folder(tmp_path / "o"))
    assert not warnings
    tokenizer = Tokenizer.from_file(str(tiny("tiny-whisper") / "tokenizer.json"))
    said = tokenizer.encode(" good morning", add_special_tokens=False).ids
    heard = found["decoder"][0]["input_ids"][0].tolist()
    last = int(found["decoder_with_past"][0]["input_ids"][0, 0])
    assert [*heard, last][-len(said) :] == said
    keys = found["decoder_with_past"][0]["past_key_values.0.decoder.key"]
    assert keys.shape[2] == len(heard)
    session = onnxruntime.InferenceSession(tiny("tiny-whisper") / "decoder_model.onnx")
    results = dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, found["decoder"][0]),
            strict=True,
        )
    )
    np.testing.assert_allclose(keys, results["present.0.decoder.key"], rtol=1e-4, atol=1e-5)


def test_tensors_are_taken_as_they_are(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    pixels = RNG.standard_normal((1, 3, 56, 56)).astype(np.float32)
    np.savez(data / "one.npz", pixel_values=pixels)
    found, warnings = samples("tiny-vit", data, folder(tmp_path / "o"))
    assert not warnings
    (only,) = found.values()
    np.testing.assert_array_equal(only[0]["pixel_values"], pixels)


def test_without_data_inputs_are_random_and_that_is_said(tmp_path: Path) -> None:
    found, warnings = samples("tiny-llama", None, folder(tmp_path / "o"))
    assert len(found["decoder"]) == 1
    assert warnings == ["decoder: calibrated on RANDOM inputs, which say nothing of real ones"]


def test_data_of_another_kind_is_said_too(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    picture(data / "a.png")
    _, warnings = samples("tiny-llama", data, folder(tmp_path / "o"))
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("prepare", "line"),
    [
        (lambda data: None, "error: there is no such folder [MLC-U005]"),
        (lambda data: data.write_text("x"), "error: not a folder [MLC-U005]"),
        (lambda data: data.mkdir(), "error: no calibration data in it [MLC-Q003]"),
        (
            lambda data: (data.mkdir(), (data / "a.doc").write_text("x")),
            "error: no calibration data in it, only a.doc [MLC-Q003] (files end in .txt",
        ),
        (
            lambda data: (data.mkdir(), (data / "a.txt").write_bytes(b"\xff")),
            "a.txt: error: byte 0 is not UTF-8 text [MLC-Q003]",
        ),
        (
            lambda data: (data.mkdir(), (data / "a.npz").write_bytes(b"x")),
            "a.npz: error: not an .npz file of plain arrays [MLC-Q003]",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(prepare, line: str, tmp_path: Path) -> None:
    prepare(tmp_path / "data")
    with pytest.raises(CompileError) as fault:
        samples("tiny-llama", tmp_path / "data", folder(tmp_path / "o"))
    assert line in str(fault.value)
