"""Graphs in HTP's emulator, and the rest in C kernels, of one bundle, through the C runtime.

The truth is ONNX Runtime on the model's own files, to what halves leave.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from mllm_compiler.backends.qnn import sdk
from mllm_compiler.bundle.verify import Bundle, Policy, open_bundle
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from mllm_compiler.sessions.devices import devices_of
from runtime_stub import Counters, Model, RuntimeFailure
from tests.bundle.small_bundle import KEY
from tests.runtime.onnx_answers import Graph, OnnxModel

pytestmark = pytest.mark.vendor
UNSIGNED = Policy(allow_unsigned=True)
ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@cache
def folder(name: str) -> Path:
    return build_recipe(name, lambda line: None)


@cache
def eyes() -> Bundle:
    """tiny-vlm with its vision encoder on QNN, each pass proven by the reference."""
    path = Path(mkdtemp()) / "eyes"
    request = Request(
        model=folder("tiny-vlm"), places={"vision": "qnn"}, output=path, validate=True
    )
    compiled = compile_model(request)
    assert compiled.proofs["lower-to-qnn"].runs > 0
    return open_bundle(path, UNSIGNED)


def model_of(opened: Bundle) -> Model:
    return Model.open(opened.path, allow_unsigned=True, threads=1, devices=devices_of(opened, 1))


def cosine(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    x, y = (v.astype(np.float64).ravel() for v in (a, b))
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def picture(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (56, 56, 3), np.uint8)


def test_a_bundle_says_what_the_chip_must_be() -> None:
    opened = eyes()
    assert opened.manifest.targets == ("c", "qnn")
    assert opened.manifest.topology["vision"].ops == {"device_call": 1}
    block = json.loads(bytes(opened.member("targets/qnn/device.json")))
    assert block["graphs"]["vision"]["calls"] == ["vision_qnn"]
    assert (block["soc"], block["members"]) == (["sm8650"], ["targets/qnn/sm8650.context"])
    assert block["sdk"] == {"name": "qairt", "version": sdk.BUILD.removeprefix("v")}


def test_a_picture_is_seen_by_htp_and_answered_by_the_cpu() -> None:
    truth = OnnxModel(folder("tiny-vlm"))
    x = np.random.default_rng(7).standard_normal((1, 3, 56, 56)).astype(np.float32)
    vision = truth.graphs["vision"]
    (expected,) = vision.run({"pixel_values": x}).values()
    with model_of(eyes()) as model:
        found = model.run("vision", {"pixel_values": x})[vision.outputs[0]]
        assert cosine(found, expected) > 0.99999
        assert model.counters == Counters(device_calls=1, fallback_stages=0)
        tokens = truth.picture(picture(5), "what is it?", 8, truth.sampler(0.0, 0))
        pieces = model.generate("what is it?", image=picture(5), max_new_tokens=8)
        assert [p.token for p in pieces if p.token is not None] == tokens
        assert model.counters == Counters(device_calls=2, fallback_stages=0)


def test_mllmc_run_answers_and_counts_and_misses_the_library(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "in.npz", pixel_values=np.zeros((1, 3, 56, 56), np.float32))
    words = ["run", str(eyes().path), "--inputs", str(tmp_path / "in.npz"), "--entry", "vision"]
    words += ["--outputs", str(tmp_path / "out.npz"), "--allow-unsigned", "--json"]
    assert run(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["device_calls"], facts["fallback_stages"]) == (1, 0)
    monkeypatch.setattr(sdk, "libraries", lambda: None)
    assert run(words) == 4
    assert "QNN is not installed [MLC-V001] (pip install 'mllm-compiler[qnn]')" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("soc", ["sm8750"], "is for the chip sm8750, the device 'qnn' is sm8650"),
        ("sdk", {"name": "qairt", "version": "3.1"}, "needs qairt 3.1 or newer, the device 'qnn'"),
    ],
)
def test_another_chip_or_library_is_refused_with_both(
    key: str, value: object, words: str, tmp_path: Path
) -> None:
    opened = eyes()
    held = {name: bytes(opened.member(name)) for name in opened.manifest.members}
    block = json.loads(held["targets/qnn/device.json"]) | {key: value}
    held["targets/qnn/device.json"] = json.dumps(block).encode()
    contents = [content_of_bytes(name, raw) for name, raw in held.items()]
    write_bundle(tmp_path / "other", opened.manifest.with_members({}), contents, key=KEY)
    with pytest.raises(RuntimeFailure, match=words):
        model_of(open_bundle(tmp_path / "other", UNSIGNED))


@pytest.mark.parametrize(("partition", "left"), [("cost", {"/b", "/n"}), ("most", set[str]())])
def test_what_htp_refuses_runs_between_its_calls(
    partition: str, left: set[str], tmp_path: Path
) -> None:
    """HTP has no cumulative sum. Whole numbers of 64 bits come back from its 32.

    By cost, a comparison is not worth its eight bytes for each of its results.
    """
    rng = np.random.default_rng(0)
    names = ("w", "v")
    weights = [
        numpy_helper.from_array((rng.standard_normal((512, 512)) / 23).astype(np.float32), name)
        for name in names
    ]
    weights.append(numpy_helper.from_array(np.array(1, np.int64), "axis"))
    weights.append(numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="/a"),
        helper.make_node("CumSum", ["a", "axis"], ["s"], name="/sum"),
        helper.make_node("Tanh", ["s"], ["t"], name="/t"),
        helper.make_node("MatMul", ["t", "v"], ["y"], name="/y"),
        helper.make_node("Greater", ["y", "half"], ["b"], name="/b"),
        helper.make_node("Cast", ["b"], ["n"], name="/n", to=TensorProto.INT64),
    ]
    shape = [1, 512, 512]
    outputs = {"y": TensorProto.FLOAT, "b": TensorProto.BOOL, "n": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind in outputs.items()],
        weights,
    )
    source, path = tmp_path / "wide.onnx", tmp_path / "out"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), source)
    words = ["compile", str(source), "--target", "qnn", "-o", str(path), "--unsigned"]
    assert run([*words, "--fallback", "none"]) == 3
    assert not path.exists()
    assert run([*words, "--fallback", "c", "--partition", partition]) == 0
    opened = open_bundle(path, UNSIGNED)
    (plan,) = json.loads(bytes(opened.member("targets/qnn/device.json")))["graphs"].values()
    assert len(plan["calls"]) == 2
    assert plan["fallback"].pop("/sum") == "qnn: no kernel"
    assert plan["fallback"].keys() == left
    assert all("its island of 2 operations saves less" in why for why in plan["fallback"].values())
    assert plan["plan"]["cost_ns"] < plan["plan"]["host_cost_ns"]
    x = (rng.standard_normal(shape) / 8).astype(np.float32)
    expected = Graph(source).run({"x": x})
    with model_of(opened) as model:
        found = model.run("wide", {"x": x})
        assert model.counters == Counters(device_calls=2, fallback_stages=1 + len(left))
    assert cosine(found["y"], expected["y"]) > 0.9999
    assert (found["n"].dtype, found["b"].dtype) == (np.int64, np.bool_)
    np.testing.assert_array_equal(found["n"], found["b"].astype(np.int64))
    assert np.mean(found["b"] == expected["b"]) > 0.99


def test_an_end_of_the_librarys_process_is_told_at_the_stage() -> None:
    devices = devices_of(eyes(), 1)
    with Model.open(eyes().path, allow_unsigned=True, threads=1, devices=devices) as model:
        made = devices["qnn"].prepare.__self__  # type: ignore[attr-defined]
        made._library._process.kill()
        with pytest.raises(RuntimeFailure) as caught:
            model.run("vision", {"pixel_values": np.zeros((1, 3, 56, 56), np.float32)})
    assert caught.value.code == "MLC-X029"
    assert "the device 'qnn' failed: QNN refuses it: the library ended with SIGKILL" in (
        caught.value.message
    )


@pytest.mark.slow
def test_meeting_vlm_sees_all_six_facts_through_htp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real model: DINOv2-S and most of the projector in halves, the decoder on the CPU."""
    monkeypatch.syspath_prepend(str(ROOT / "models" / "meeting-vlm"))
    frames = import_module("frames")
    path = tmp_path / "out"
    compile_model(Request(model=folder("meeting-vlm"), target="qnn", fallback="c", output=path))
    opened = open_bundle(path, UNSIGNED)
    plans = json.loads(bytes(opened.member("targets/qnn/device.json")))["graphs"]
    assert plans["vision"]["fallback"] == {}
    assert {plan["plan"]["device_flops"] / plan["plan"]["flops"] for plan in plans.values()} == {1}
    pixels = np.asarray(frames.frame(frames.HELD_OUT), np.uint8)
    with model_of(opened) as model:
        text = "".join(p.text for p in model.generate(image=pixels, max_new_tokens=40))
        assert model.counters.device_calls == 2
    assert frames.meeting(frames.HELD_OUT).agreement(text) == (True,) * 6
