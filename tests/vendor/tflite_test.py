"""Models as `.tflite` files: LiteRT computes what the tfl dialect and, in floats, mllm mean."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.tflite.emit import TfliteArtifact, emit
from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.pipelines import QUANTISE, pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore

pytestmark = pytest.mark.vendor
SIZES = {
    "sequence_length": DimSpec(max=32, buckets=(1, 32)),
    "past_sequence_length": DimSpec(max=64),
}
DECODERS = {
    "tiny-llama": SIZES,
    "tiny-gemma3": SIZES,
    "tiny-gpt2": SIZES,
    "tiny-vlm": SIZES,
    "tiny-bloom": SIZES,
}
OTHERS = {
    "tiny-vit": {},
    "tiny-convnext": {},
    "tiny-svtr": {},
    "tiny-siglip": {},
    "tiny-wav2vec2": {"sequence_length": DimSpec(min=800, max=800)},
    "tiny-bert": {"sequence_length": DimSpec(max=32)},
    "tiny-whisper": {
        "decoder_sequence_length": DimSpec(max=4, buckets=(1, 4)),
        "past_decoder_sequence_length": DimSpec(max=16),
    },
}
BLOCKS = '[linears]\nbits = 4\nblock_size = 32\nactivations = "dynamic"\n[embeddings]\nbits = 8\n'


@dataclass(frozen=True)
class Made:
    """A model as mllm and as tfl ops, and the file."""

    mllm: ModuleOp
    tfl: ModuleOp
    store: WeightStore
    artifact: TfliteArtifact

    @property
    def file(self) -> bytes:
        return b"".join(bytes(piece) for piece in self.artifact.stream(self.store))


@lru_cache(maxsize=2)
def made(name: str, recipe: str = "") -> Made:
    dims = {**DECODERS, **OTHERS}.get(name, {})
    imported = import_model(build_recipe(name, lambda line: None), dims=dims)
    options = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": "tflite"},
        **{p: {"recipe": recipe} for p in QUANTISE.passes},
    }
    module, context = imported.module, make_context(imported.store)
    names = pass_names("tflite", quantised=bool(recipe))
    run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[:-1]], context)
    before = module.clone()
    run_passes(module, [pass_class(names[-1])()], context)
    module.verify()
    return Made(before, module, imported.store, emit(module, imported.store))


@pytest.mark.parametrize("name", [*DECODERS, *OTHERS])
def test_litert_gives_what_the_model_gives(name: str) -> None:
    """Relative to the reference of the mllm dialect, which the tests hold to ONNX Runtime."""
    for want, meant, got in answers(made(name)):
        assert distance(got, want) < 5e-6
        assert distance(meant, want) < 5e-6


@pytest.mark.parametrize("form", ["w8a8", "w4a16-channel", "blocks"])
def test_litert_computes_codes_as_the_dialect_says(form: str, tmp_path: Path) -> None:
    """XNNPACK rounds rows and scales of blocks as the reference of the tfl dialect does."""
    recipe = tmp_path / "blocks.toml"
    recipe.write_text(BLOCKS)
    model = made("tiny-llama", str(recipe) if form == "blocks" else form)
    for want, meant, got in answers(model):
        assert distance(got, meant) < 2e-6
        assert cosine(got, want) > 0.999


@pytest.mark.slow
def test_a_real_encoder_gives_what_it_gave() -> None:
    for want, _, got in answers(made("dinov2-s14")):
        assert cosine(got, want) > 0.99999


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


def answers(model: Made) -> Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of every result: what mllm means, what tfl means, what LiteRT gives."""
    from mllm_compiler.backends.tflite.sdk import Interpreter

    interpreter, found = Interpreter(memoryview(model.file)), []
    for graph in graphs(model.mllm):
        name = graph.sym_name.data
        inputs = seeded_inputs(graph, pipeline_of(model.mllm))
        want = run_function(model.mllm, name, inputs, model.store)
        meant = run_function(model.tfl, name, inputs, model.store)
        got = interpreter.run(name, inputs)
        assert want.keys() == meant.keys() == got.keys()
        found += [(want[k], meant[k], got[k]) for k in want]
    return found


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference as a part of the largest magnitude."""
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))
