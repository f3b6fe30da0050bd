"""`mllmc check accuracy`: what passes, what fails, and how each is told."""

from __future__ import annotations

import json
import re
import wave
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mllm_compiler.cli.main import run
from tests.cli.recipes import tiny

Captured = pytest.CaptureFixture[str]
TEXT = "The quick brown fox jumps over the lazy dog, and over the hedge behind the house."


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("tiny-llama")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def encoder(path: str, *, noise: float) -> None:
    """Two products; the second one's weight is off by so much noise."""
    random = np.random.default_rng(7)
    first, second, off = random.standard_normal((3, 8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="/first"),
        helper.make_node("MatMul", ["h", "b"], ["y"], name="/second"),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8]) for n in ("x", "y")]
    weights = {"a": first, "b": second + np.float32(noise) * off}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "encoder", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def samples() -> None:
    for graph in ("plain", "noisy"):
        Path("data", graph).mkdir(parents=True, exist_ok=True)
        x = np.random.default_rng(8).standard_normal((1, 4, 8)).astype(np.float32)
        np.savez(Path("data", graph, "1.npz"), allow_pickle=False, x=x)


def checked(noise: float, *words: str) -> int:
    """The status of a check of an encoder against the same one with noise."""
    Path("a").mkdir(exist_ok=True)
    encoder("plain.onnx", noise=0.0)
    encoder("a/plain.onnx", noise=noise)
    samples()
    assert run(["compile", "a/plain.onnx", "--target", "numpy", "-o", "a.mllm_bundle"]) == 0
    options = ["--baseline", "plain.onnx", "--data", "data"]
    return run(["check", "accuracy", "a.mllm_bundle", *options, *words])


def test_speech_is_held_to_its_transcript(capsys: Captured) -> None:
    Path("speech").mkdir()
    Path("speech", "a.txt").write_text("Hello.")
    noise = np.random.default_rng(3).normal(0, 3000, 16000).astype("<i2")
    with wave.open("speech/a.wav", "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", ""))
        out.writeframes(noise.tobytes())
    model = str(tiny("tiny-whisper"))
    assert run(["compile", model, "--target", "c", "-o", "c.mllm_bundle"]) == 0
    capsys.readouterr()
    words = ["--baseline", model, "--data", "speech", "--json"]
    assert run(["check", "accuracy", "c.mllm_bundle", *words]) == 0
    gates = {gate["name"]: gate for gate in json.loads(capsys.readouterr().out)["gates"]}
    assert gates["wer_increase"]["value"] == 0
    assert gates["speech_loss"]["value"] == pytest.approx(gates["speech_loss_float"]["value"])


def test_a_language_model_is_held_to_its_reference_and_to_float(capsys: Captured) -> None:
    Path("texts").mkdir()
    Path("texts", "a.txt").write_text(TEXT)
    for target in ("c", "numpy"):
        model = str(tiny("tiny-llama"))
        assert run(["compile", model, "--target", target, "-o", f"{target}.mllm_bundle"]) == 0
    capsys.readouterr()
    words = ["--baseline", str(tiny("tiny-llama")), "--reference", "numpy.mllm_bundle"]
    words += ["--data", "texts", "--window", "32", "--junit", "j.xml", "--html", "h.html"]
    assert run(["check", "accuracy", "c.mllm_bundle", *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    gates = {gate["name"]: gate for gate in facts["gates"]}
    fidelity = [gate for gate in facts["gates"] if gate["group"] == "fidelity"]
    assert {gate["name"] for gate in fidelity} >= {"decoder/logits", "decoder/present.1.key"}
    assert [g["value"] for g in fidelity] == sorted(g["value"] for g in fidelity)
    assert all(gate["value"] > 0.999999 for gate in fidelity)
    assert gates["kl"]["value"] < 1e-9
    assert gates["nan_values"]["verdict"] == "passed"
    assert gates["perplexity"]["value"] == pytest.approx(gates["perplexity_float"]["value"])
    names = " ".join(layer["name"] for layer in facts["layers"])
    for block in range(2):
        for node in ("self_attn/o_proj", "mlp/down_proj"):
            assert f"decoder//model/layers.{block}/{node}" in names
    assert ElementTree.parse("j.xml").getroot().get("failures") == "0"
    page = Path("h.html").read_text()
    assert "<svg" in page
    assert "color-scheme: light dark" in page
    assert not re.search(r'(src|href)="http', page)


def test_values_within_are_held_to_the_reference_where_both_bundles_keep_them(
    capsys: Captured,
) -> None:
    Path("texts").mkdir()
    Path("texts", "a.txt").write_text(TEXT)
    model = str(tiny("tiny-llama"))
    for target in ("c", "numpy"):
        words = ["--quant", "w8a8", "--keep-values", "*", "-o", f"{target}.mllm_bundle"]
        assert run(["compile", model, "--target", target, *words]) == 0
    capsys.readouterr()
    words = ["--baseline", model, "--reference", "numpy.mllm_bundle", "--data", "texts", "--json"]
    run(["check", "accuracy", "c.mllm_bundle", *words])
    facts = json.loads(capsys.readouterr().out)
    gates = {g["name"]: g["value"] for g in facts["gates"] if g["group"] == "fidelity"}
    for block in range(2):
        for node in ("self_attn/q_proj", "mlp/down_proj", "self_attn/o_proj"):
            assert gates[f"decoder//model/layers.{block}/{node}/MatMul"] > 0.999
    assert len(gates) > 20
    assert run(["run", "c.mllm_bundle", "--prompt", "hello", "--max-new-tokens", "2"]) == 0


def test_the_layer_in_which_a_target_deviates_is_seen(capsys: Captured) -> None:
    Path("b").mkdir()
    encoder("b/plain.onnx", noise=0.0)
    words = ["--target", "numpy", "--keep-values", "/first", "-o", "b.mllm_bundle"]
    assert run(["compile", "b/plain.onnx", *words]) == 0
    Path("a").mkdir()
    encoder("a/plain.onnx", noise=0.3)
    assert run(["compile", "a/plain.onnx", "--keep-values", "*", "-o", "a.mllm_bundle"]) == 0
    samples()
    capsys.readouterr()
    words = ["--baseline", "a/plain.onnx", "--reference", "b.mllm_bundle", "--data", "data"]
    assert run(["check", "accuracy", "a.mllm_bundle", *words, "--json"]) == 3
    gates = [g for g in json.loads(capsys.readouterr().out)["gates"] if g["group"] == "fidelity"]
    assert [gate["name"] for gate in gates] == ["plain/y", "plain//first"]
    assert [gate["verdict"] for gate in gates] == ["failed", "passed"]


def test_noise_fails_and_names_the_layer(capsys: Captured) -> None:
    assert checked(0.3, "--junit", "j.xml") == 3
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if line.startswith("output_cosine")]
    assert row.split()[2:] == [">=", "0.999", "failed"]
    at = next(i for i, line in enumerate(lines) if line.startswith("layer, worst first"))
    assert lines[at + 1].startswith("plain//second")
    assert lines[at + 2].split()[-1] == "0.00e+00"
    failures = [f.get("message") for f in ElementTree.parse("j.xml").getroot().iter("failure")]
    assert len(failures) == 1
    assert "output_cosine" in str(failures[0])


def test_thresholds_decide(capsys: Captured) -> None:
    Path("loose.toml").write_text("[quality]\noutput_cosine = 0.5\n")
    assert checked(0.3, "--thresholds", "loose.toml") == 0
    Path("strict.toml").write_text("[quality]\noutput_cosine = 0.5\n[layers]\ncosine = 0.999\n")
    assert checked(0.3, "--thresholds", "strict.toml") == 3
    assert "plain//second" in capsys.readouterr().out


def test_no_noise_passes() -> None:
    assert checked(0.0) == 0


def test_not_a_number_fails_whatever_is_asked(capsys: Captured) -> None:
    Path("nothing.toml").write_text("[quality]\n")
    assert checked(float("nan"), "--thresholds", "nothing.toml", "--json") == 3
    gates = {g["name"]: g for g in json.loads(capsys.readouterr().out.splitlines()[-1])["gates"]}
    assert gates["nan_values"]["value"] == 32.0
    assert gates["output_cosine"] == gates["output_cosine"] | {"value": "nan", "verdict": "failed"}


@pytest.mark.parametrize(
    ("files", "words", "status", "told"),
    [
        ({"x/a.txt": TEXT}, ["--data", "x"], 1, "the data has nothing that its entries take"),
        ({"x/a.md": TEXT}, ["--data", "x"], 1, "x: error: no text, sound, picture or file"),
        ({}, ["--data", "absent"], 1, "absent: error: No such file or directory [MLC-U005]"),
        ({"t.toml": "[quality]\nk = 1\n"}, ["--thresholds", "t.toml"], 1, "did you mean 'kl'?"),
        ({}, ["--html", "no/such.html"], 1, "[MLC-U005]"),
        ({}, ["--baseline", "plian.onnx"], 2, "[MLC-U003]"),
        ({}, ["--baseline", "no.mllm_bundle"], 1, "no.mllm_bundle: error: No such file"),
    ],
)
def test_what_is_wrong_is_one_located_line(
    files: dict[str, str], words: list[str], status: int, told: str, capsys: Captured
) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    assert checked(0.0, *words) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
