"""Models as `.tflite` files: what is in them, and who takes them; `table_test.py` runs them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from mllm_compiler.backends.tflite.emit import TfliteArtifact, emit
from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.pipelines import QUANTISE, pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.weights import WeightStore
from tests.vendor.table_test import SIZES

pytestmark = pytest.mark.vendor


@dataclass(frozen=True)
class Made:
    """What is emitted of a model, and the file."""

    store: WeightStore
    artifact: TfliteArtifact

    @property
    def file(self) -> bytes:
        return b"".join(bytes(piece) for piece in self.artifact.stream(self.store))


@lru_cache(maxsize=2)
def made(name: str, recipe: str = "") -> Made:
    imported = import_model(build_recipe(name, lambda line: None), dims=SIZES[name])
    options = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": "tflite"},
        **{p: {"recipe": recipe} for p in QUANTISE.passes},
    }
    module, context = imported.module, make_context(imported.store)
    names = pass_names("tflite", quantised=bool(recipe))
    run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names], context)
    module.verify()
    return Made(imported.store, emit(module, imported.store))


def test_entries_share_their_weights() -> None:
    """Read back by LiteRT's own schema: a buffer of the file serves both signatures."""
    from ai_edge_litert.schema_py_generated import ModelT

    model = made("tiny-llama")
    file = ModelT.InitFromPackedBuf(model.file, 0)
    keys = [s.signatureKey.decode() for s in file.signatureDefs]
    assert keys == ["decoder_1", "decoder_32"]
    assert [list(s.inputs) != [] for s in file.signatureDefs] == [True, True]
    table = [
        next(t.buffer for t in graph.tensors if t.name == b"model.embed_tokens.weight")
        for graph in file.subgraphs
    ]
    assert table[0] == table[1]
    assert file.buffers[table[0]].size == 274 * 32 * 4
    digests = [weight.digest for weight in model.artifact.weights]
    assert len(digests) == len(set(digests)) == len(file.buffers) - 2
    assert file.version == 3
    assert all(b.offset % 64 == 0 for b in file.buffers if b.size)


@pytest.mark.parametrize("recipe", ["", "w8a8"])
def test_xnnpack_takes_a_whole_encoder(recipe: str, tmp_path: Path) -> None:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator

    path = tmp_path / "model.tflite"
    path.write_bytes(made("tiny-vit", recipe).file)
    model = CompiledModel.from_file(str(path), hardware_accel=HardwareAccelerator.CPU)
    assert model.is_fully_accelerated()


def test_a_broken_file_is_refused_in_the_vendors_words() -> None:
    from mllm_compiler.backends.tflite.sdk import Interpreter

    file = bytearray(made("tiny-vit").file)
    file[:4] = b"\xff\xff\xff\x7f"
    with pytest.raises(CompileError) as caught:
        Interpreter(memoryview(bytes(file)))
    assert caught.value.code == "MLC-V002"
    assert "LiteRT refuses it" in caught.value.message


def test_without_litert_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from mllm_compiler.backends.tflite.sdk import Interpreter

    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(CompileError) as caught:
        Interpreter(memoryview(b""))
    assert caught.value.code == "MLC-V001"
    assert "mllm-compiler[tflite]" in caught.value.remedy
