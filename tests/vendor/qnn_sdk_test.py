"""What goes wrong with QNN is one located line, with the library's own words where it has some."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.qnn import sdk
from mllm_compiler.backends.qnn.graph import Graph, Node, Soc, Tensor
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.bundle.manifest import parse_manifest
from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.model import open_model
from mllm_compiler.recipes import build_recipe

pytestmark = pytest.mark.vendor
SM8650 = Soc(name="sm8650", model=57, arch=75)


def graph(operator: str, element: str) -> Graph:
    """A graph of one node that a wrong table would let through."""
    tensors = [
        Tensor(name="x", element=element, dims=(2, 3), role="input"),
        Tensor(name="y", element=element, dims=(2, 3), role="output"),
    ]
    node = Node(
        name="n", operator=operator, inputs=("x",), outputs=("y",), parameters={}, location="/relu"
    )
    return Graph(name="f", tensors={t.name: t for t in tensors}, nodes=[node])


def test_a_refused_node_has_the_vendors_words_and_the_models_place() -> None:
    with Library(SM8650) as library, pytest.raises(CompileError) as caught:
        library.prepare([graph("Relu", "i32")])
    assert (caught.value.code, caught.value.exit_code) == ("MLC-V002", 4)
    assert caught.value.location == "/relu"
    assert "QNN refuses it: backendValidateOpConfig" in caught.value.message
    assert "Unsupported input/output datatypes" in caught.value.message


def test_an_unknown_operator_is_refused() -> None:
    with Library(SM8650) as library, pytest.raises(CompileError) as caught:
        library.prepare([graph("Rellu", "f16")])
    assert "Rellu" in caught.value.message


def test_a_crash_is_an_error_like_any_other() -> None:
    """The library follows a pointer that it is given where none lies."""
    broken = graph("Relu", "f16")
    del broken.tensors["y"]
    with Library(SM8650) as library, pytest.raises(CompileError) as caught:
        library.prepare([broken])
    assert caught.value.code == "MLC-V002"
    assert "the library ended with" in caught.value.message


def test_bytes_that_are_no_context_are_refused() -> None:
    with Library(SM8650) as library, pytest.raises(CompileError) as caught:
        library.load(b"not a context" * 100)
    assert caught.value.code == "MLC-V002"


def test_another_build_is_refused_by_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "BUILD", "v0.0.0")
    with pytest.raises(CompileError) as caught:
        Library(SM8650)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-V005", 4)
    assert "v2.51.0" in caught.value.message
    assert "v0.0.0 is needed" in caught.value.message


def test_without_the_library_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None if "qnn" in name else find_spec(name))
    with pytest.raises(CompileError) as caught:
        Library(SM8650)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-V001", 4)
    assert "mllm-compiler[qnn]" in caught.value.remedy


def test_a_bundle_says_whom_it_is_for_and_runs(tmp_path: Path) -> None:
    bundle = tmp_path / "vit.mllm_bundle"
    model = build_recipe("tiny-vit", lambda line: None)
    compile_model(Request(model=model, target="qnn", soc="sm8550", output=bundle))
    opened = open_bundle(bundle, Policy(allow_unsigned=True))
    raw = bytes(opened.manifest.to_bytes())
    made_for = parse_manifest(raw, "bundle").compatibility
    assert (made_for.soc, made_for.sdk) == (("sm8550",), {"qairt": sdk.BUILD})
    assert "targets/qnn/sm8550.context" in opened.manifest.members
    runner = open_model(opened).runner
    pixels = np.random.default_rng(1).standard_normal((1, 3, 56, 56)).astype(np.float32)
    (features,) = runner.run("vision", {"pixel_values": pixels}).values()
    assert features.shape == (1, 17, 32)
    with pytest.raises(CompileError) as caught:
        runner.run("vision", {"pixel_values": pixels[..., :8]})
    assert caught.value.code == "MLC-D001"
