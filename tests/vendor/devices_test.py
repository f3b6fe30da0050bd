"""An encoder in LiteRT and its language model in C kernels, of one bundle, through the C runtime.

The truth is ONNX Runtime on the model's own files; that all of it runs in C kernels as well is the
second one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from numpy.typing import NDArray

from mllm_compiler.bundle.verify import Bundle, Policy, open_bundle
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from mllm_compiler.sessions.devices import devices_of
from runtime_stub import Counters, Model
from runtime_stub.tensors import Array
from tests.bundle.small_bundle import KEY
from tests.runtime.onnx_answers import Graph, OnnxModel

pytestmark = pytest.mark.vendor
UNSIGNED = Policy(allow_unsigned=True)
ROOT = Path(__file__).parents[2]
PLACES = {"tiny-vlm": "vision", "tiny-whisper": "encoder", "meeting-vlm": "vision"}


@cache
def folder(name: str) -> Path:
    return build_recipe(name, lambda line: None)


@cache
def bundle(name: str, *, placed: bool) -> Bundle:
    """A recipe, all on `c` or with its encoder on `tflite`."""
    path = Path(mkdtemp()) / "out.mllm_bundle"
    places = {PLACES[name]: "tflite"} if placed else {}
    validate = placed and name.startswith("tiny")
    request = Request(model=folder(name), places=places, output=path, validate=validate)
    compiled = compile_model(request)
    if validate:
        assert compiled.proofs["outline-devices"].error == 0
        assert compiled.proofs["lower-to-tfl"].runs > 0
    return open_bundle(path, UNSIGNED)


def model_of(opened: Bundle) -> Model:
    devices = devices_of(opened, 1)
    return Model.open(opened.path, allow_unsigned=True, threads=1, devices=devices)


def results(opened: Bundle, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    with model_of(opened) as model:
        return model.run(entry, inputs)


def picture(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (56, 56, 3), np.uint8)


def test_a_bundle_says_what_runs_where() -> None:
    opened = bundle("tiny-vlm", placed=True)
    assert opened.manifest.targets == ("c", "tflite")
    block = json.loads(bytes(opened.member("targets/tflite/device.json")))
    assert block["graphs"] == {"vision": {"calls": ["vision_tflite"], "fallback": {}, "plan": {}}}
    assert block["members"] == ["targets/tflite/model.tflite"]
    assert block["sdk"] == {"name": "ai-edge-litert", "version": "2.3"}
    assert opened.manifest.topology["vision"].ops == {"device_call": 1}
    assert opened.manifest.topology["vision_tflite"].ops["FULLY_CONNECTED"] > 3


@pytest.mark.parametrize("name", ["tiny-vlm", "tiny-whisper"])
def test_an_encoder_gives_what_onnx_runtime_gives(name: str) -> None:
    entry = PLACES[name]
    onnx = OnnxModel(folder(name)).graphs[entry]
    given = onnx.session.get_inputs()[0]
    shape = tuple(n if isinstance(n, int) else 1 for n in given.shape)
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    (expected,) = onnx.run({given.name: x}).values()
    for placed in (True, False):
        found = results(bundle(name, placed=placed), entry, {given.name: x})
        np.testing.assert_allclose(found[onnx.outputs[0]], expected, rtol=1e-4, atol=2e-5)


def test_a_picture_is_answered_as_by_onnx_runtime() -> None:
    """The decoder reads what the device wrote: no tensor passes through the caller."""
    onnx = OnnxModel(folder("tiny-vlm"))
    for seed in range(3):
        expected = onnx.picture(picture(seed), "what is it?", 12, onnx.sampler(1.5, seed))
        for placed in (True, False):
            with model_of(bundle("tiny-vlm", placed=placed)) as model:
                options = {"max_new_tokens": 12, "temperature": 1.5, "seed": seed}
                pieces = model.generate("what is it?", image=picture(seed), **options)  # type: ignore[arg-type]
                assert [p.token for p in pieces if p.token is not None] == expected
                assert model.counters == Counters(int(placed), 0)


def test_only_what_a_device_runs_gets_static_shapes(tmp_path: Path) -> None:
    """The batch is fixed on the device; the decoder's symbols stay symbols."""
    places = {"projector": "tflite"}
    request = Request(model=folder("tiny-vlm"), places=places, output=tmp_path / "o")
    compile_model(request)
    opened = open_bundle(tmp_path / "o", UNSIGNED)
    assert "sequence_length" in str(opened.manifest.entries["decoder"].inputs)
    onnx = OnnxModel(folder("tiny-vlm"))
    expected = onnx.picture(picture(5), "what?", 8, onnx.sampler(0.0, 0))
    with model_of(opened) as model:
        pieces = model.generate("what?", image=picture(5), max_new_tokens=8)
        assert [p.token for p in pieces if p.token is not None] == expected
        assert model.counters.device_calls == 1


def test_what_the_device_refuses_runs_between_its_calls(tmp_path: Path) -> None:
    """TFLite has no cubic resize: the positions of tiny-dinov2 are resized by C kernels.

    It reads no pixels, so that all of the device is one call behind it. By the tables some ops
    before and behind it save less than what is carried between them.
    """
    model, path = folder("tiny-dinov2"), tmp_path / "out"
    words = ["compile", str(model), "--place", "vision=tflite", "-o", str(path), "--unsigned"]
    assert run(words) == 3
    assert not path.exists()
    onnx = Graph(model / "model.onnx")
    x = np.random.default_rng(3).standard_normal((1, 3, 56, 56)).astype(np.float32)
    (expected,) = onnx.run({"pixel_values": x}).values()
    for partition in ("cost", "most"):
        assert run([*words, "--fallback", "c", "--partition", partition]) == 0
        opened = open_bundle(path, UNSIGNED)
        block = json.loads(bytes(opened.member("targets/tflite/device.json")))
        (plan,) = block["graphs"].values()
        assert len(plan["calls"]) == 1
        assert plan["fallback"].pop("/embeddings/Resize") == "tflite: no kernel"
        assert all("saves less than" in why for why in plan["fallback"].values())
        assert (plan["fallback"] == {}) is (partition == "most")
        with model_of(opened) as loaded:
            (found,) = loaded.run("vision", {"pixel_values": x}).values()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
            assert loaded.counters.device_calls == 1
            assert loaded.counters.fallback_stages > 0


def test_a_target_beside_a_fallback_is_a_device_for_all_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The decoder stays where its cache is; what `explain` says is what the bundle holds."""
    words = ["--target", "tflite", "--fallback", "c", "--partition", "most"]
    path, model = tmp_path / "out", str(folder("tiny-vlm"))
    assert run(["compile", model, *words, "-o", str(path), "--unsigned"]) == 0
    capsys.readouterr()
    opened = open_bundle(path, UNSIGNED)
    assert opened.manifest.targets == ("c", "tflite")
    block = json.loads(bytes(opened.member("targets/tflite/device.json")))["graphs"]
    assert {name: len(plan["calls"]) for name, plan in block.items()} == {
        "vision": 1,
        "projector": 1,
    }
    assert run(["explain", model, *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    for plan in facts["plans"]:
        told = block[plan["graph"]]["plan"]
        assert {key: plan[key] for key in told} == told
        assert told["device_flops"] == told["flops"] > 0
    onnx = OnnxModel(folder("tiny-vlm"))
    expected = onnx.picture(picture(5), "what?", 8, onnx.sampler(0.0, 0))
    with model_of(opened) as loaded:
        pieces = loaded.generate("what?", image=picture(5), max_new_tokens=8)
        assert [p.token for p in pieces if p.token is not None] == expected
        assert loaded.counters == Counters(device_calls=2, fallback_stages=0)


def test_a_device_that_nothing_pays_on_gets_nothing(tmp_path: Path) -> None:
    """By the tables LiteRT multiplies as fast as the C kernels: a projector is no call worth."""
    path, model = tmp_path / "out", str(folder("tiny-vlm"))
    words = ["--place", "projector=tflite", "--fallback", "c", "-o", str(path), "--unsigned"]
    assert run(["compile", model, *words]) == 0
    opened = open_bundle(path, UNSIGNED)
    assert opened.manifest.targets == ("c",)
    with model_of(opened) as loaded:
        assert list(loaded.generate("what?", image=picture(5), max_new_tokens=2))
        assert loaded.counters.device_calls == 0


def test_mllmc_run_counts_calls_and_refuses_another_litert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = bundle("tiny-vlm", placed=True)
    np.savez(tmp_path / "in.npz", pixel_values=np.zeros((1, 3, 56, 56), np.float32))
    words = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    words += ["--entry", "vision", "--allow-unsigned", "--json"]
    assert run(["run", str(opened.path), *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["device_calls"], facts["fallback_stages"]) == (1, 0)

    block = json.loads(bytes(opened.member("targets/tflite/device.json")))
    block["sdk"]["version"] = "99.1"
    held = {name: bytes(opened.member(name)) for name in opened.manifest.members}
    held["targets/tflite/device.json"] = json.dumps(block).encode()
    contents = [content_of_bytes(name, raw) for name, raw in held.items()]
    write_bundle(tmp_path / "other", opened.manifest.with_members({}), contents, key=KEY)
    assert run(["run", str(tmp_path / "other"), *words]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "needs ai-edge-litert 99.1 or newer, the device 'tflite' has 2." in line
    assert "MLC-B009" in line

    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.setattr("mllm_compiler.backends.tflite.sdk.litert_version", lambda: None)
    assert run(["run", str(opened.path), *words]) == 4
    line = capsys.readouterr().err.splitlines()[-1]
    assert "LiteRT is not installed [MLC-V001] (pip install 'mllm-compiler[tflite]')" in line


@pytest.mark.slow
def test_meeting_vlm_sees_all_six_facts_of_a_frame_that_it_never_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real model: DINOv2-S on the device, SmolLM2's decoder on the CPU."""
    monkeypatch.syspath_prepend(str(ROOT / "models" / "meeting-vlm"))
    frames = import_module("frames")
    onnx = OnnxModel(folder("meeting-vlm"))
    pixels = np.asarray(frames.frame(frames.HELD_OUT), np.uint8)
    expected = onnx.picture(pixels, onnx.spec["text"]["prompt"], 40, onnx.sampler(0.0, 0))
    with model_of(bundle("meeting-vlm", placed=True)) as model:
        pieces = list(model.generate(image=pixels, max_new_tokens=40))
        assert [p.token for p in pieces if p.token is not None] == expected
        shown = frames.meeting(frames.HELD_OUT)
        assert shown.agreement("".join(p.text for p in pieces)) == (True,) * 6
        assert model.counters == Counters(device_calls=1, fallback_stages=0)
