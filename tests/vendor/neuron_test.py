"""Models in LiteRT's plugin for MediaTek: one network a signature, whose values are the model's.

The plugin is the vendor's own; it builds networks in a recording stand-in for MediaTek's library.
They are read back, compared with what `lower-to-neuron` expects, run by the reference, and their
values compared with those of LiteRT on the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.backends.tflite.sdk import Interpreter
from mllm_compiler.dialects import make_context, tfl
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.tfl import GatherOp, TflOp
from mllm_compiler.dialects.types import element_of, is_float
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import block_of, graphs, pipeline_of
from mllm_compiler.passes.lower_to_neuron import LowerToNeuron
from mllm_compiler.pipelines import QUANTISE, pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore
from tests.vendor.neuron_networks import answers, listing, record

pytestmark = pytest.mark.vendor
SIZES = {
    "sequence_length": DimSpec(max=32, buckets=(1, 32)),
    "past_sequence_length": DimSpec(max=64),
}
MODELS = {
    "tiny-llama": SIZES,
    "tiny-gemma3": SIZES,
    "tiny-vit": {},
    "tiny-convnext": {},
    "tiny-whisper": {
        "decoder_sequence_length": DimSpec(max=4, buckets=(1, 4)),
        "past_decoder_sequence_length": DimSpec(max=16),
    },
}
EIGHT_REAL = '[linears]\nbits = 8\nactivations = "float"\n'
BLOCKS = '[linears]\nbits = 4\nblock_size = 32\nactivations = "dynamic"\n'
VERSIONS = ("8.2.24", "9.0.3")


@dataclass(frozen=True)
class Made:
    """A model as operators of TFLite, and its file."""

    module: ModuleOp
    store: WeightStore
    file: bytes


@lru_cache(maxsize=4)
def made(name: str, recipe: str = "") -> Made:
    imported = import_model(build_recipe(name, lambda line: None), dims=MODELS[name])
    options = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": "neuron"},
        "lower-to-tfl": {"target": "neuron"},
        **{p: {"recipe": recipe} for p in QUANTISE.passes},
    }
    module, context = imported.module, make_context(imported.store)
    names = pass_names("neuron", quantised=bool(recipe))
    at = names.index("lower-to-tfl")
    run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[:at]], context)
    with TemporaryDirectory() as data:
        for graph in graphs(module):
            (Path(data) / graph.sym_name.data).mkdir()
            inputs = seeded_inputs(graph, pipeline_of(module))
            np.savez(Path(data) / graph.sym_name.data / "0.npz", **inputs)
        options["encode-tfl"] = {"recipe": recipe, "data": data, "target": "neuron"}
        run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[at:]], context)
    module.verify()
    pieces = emit(module, imported.store).stream(imported.store)
    return Made(module, imported.store, b"".join(bytes(piece) for piece in pieces))


def check(
    model: Made, version: str, stand_in: Path, folder: Path, patch: pytest.MonkeyPatch, bound: float
) -> None:
    """Every signature is one network, the one that is expected, with the values of LiteRT."""
    applied, networks = record(model.file, stand_in, folder, version, patch)
    expected = model.module.clone()
    run_passes(expected, [LowerToNeuron(adapter=version)], make_context(model.store))
    expected.verify()
    interpreter = Interpreter(memoryview(model.file))
    for graph, share, network in zip(graphs(expected), applied.shares, networks, strict=True):
        assert share.networks == 1
        left = [op for op in block_of(graph).ops if isinstance(op, TflOp)]
        assert share.total - share.taken == len(left)
        assert all(map(is_host_work, left))
        assert listing(network.graph, network.store) == listing(graph, model.store)
        inputs = seeded_inputs(graph, pipeline_of(expected))
        got = answers(expected, graph, model.store, network, inputs)
        want = interpreter.run(graph.sym_name.data, inputs)
        assert got.keys() == want.keys()
        for key, array in want.items():
            assert distance(got[key], array) < bound


def is_host_work(op: TflOp) -> bool:
    """A look-up in constants, or of whole numbers alone: no arithmetic on what a model computes."""
    looked_up = op.name == "tfl.gather" and isinstance(op.operands[0].owner, WeightOp | ConstantOp)
    codes = op.name == "tfl.cast" and isinstance(op.operands[0].owner, GatherOp)
    whole = not any(is_float(element_of(v)) for v in (*op.operands, *op.results))
    return looked_up or codes or whole


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_signature_is_one_network_of_the_models_values(
    name: str, version: str, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(made(name), version, stand_in, tmp_path / "recorded", monkeypatch, 5e-6)


@pytest.mark.parametrize("version", VERSIONS)
def test_weights_of_codes_are_recorded_with_their_scales(
    version: str, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LiteRT quantises rows that meet codes to 8 bits; the network computes on reals."""
    model = made("tiny-llama", "w8a8")
    check(model, version, stand_in, tmp_path / "recorded", monkeypatch, 0.05)


def test_weights_of_codes_beside_reals_are_exact(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "eight.toml"
    recipe.write_text(EIGHT_REAL)
    model = made("tiny-llama", str(recipe))
    check(model, "8.2.24", stand_in, tmp_path / "recorded", monkeypatch, 5e-6)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "recipe", "bound"),
    [
        ("tiny-vit", "w8a8-npu", 0.03),
        ("tiny-vit", "w8a16-npu", 5e-4),
        ("tiny-llama", "w8a8-npu", 5e-6),
        ("tiny-convnext", "w8a8-npu", 5e-6),
        ("tiny-whisper", "w8a8-npu", 5e-6),
    ],
)
def test_codes_of_values_are_recorded_with_what_they_mean(
    name: str,
    recipe: str,
    bound: float,
    version: str,
    stand_in: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LiteRT's kernels of 8 bits round once, as the reference does, but for a GELU's table."""
    model = made(name, recipe)
    check(model, version, stand_in, tmp_path / "recorded", monkeypatch, bound)
    islands = (tfl.MulOp, tfl.AddOp, tfl.FullyConnectedOp, tfl.BatchMatmulOp, tfl.SoftmaxOp)
    for op in model.module.walk():
        around = any(isinstance(v.owner, tfl.DequantizeOp) for v in op.operands)
        assert not (isinstance(op, islands) and around), "no product computes on reals of codes"


def test_the_file_computes_what_the_model_does() -> None:
    """With GELU by a hyperbolic tangent, and masks that a half can hold."""
    model = made("tiny-vit")
    exact = import_model(build_recipe("tiny-vit", lambda line: None))
    (graph,) = graphs(model.module)
    inputs = seeded_inputs(graph, pipeline_of(model.module))
    want = run_function(exact.module, graph.sym_name.data, inputs, exact.store)
    got = Interpreter(memoryview(model.file)).run(graph.sym_name.data, inputs)
    for key, array in want.items():
        assert 0 < distance(got[key], array) < 1e-3


def test_blocks_are_refused_before_the_plugin_stops(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `lower-to-neuron` with the reason, and by the plugin in its words."""
    recipe = tmp_path / "blocks.toml"
    recipe.write_text(BLOCKS)
    model = made("tiny-llama", str(recipe))
    with pytest.raises(CompileError, match="stops at scales of blocks"):
        run_passes(
            model.module.clone(), [LowerToNeuron(adapter="9.0.3")], make_context(model.store)
        )
    with pytest.raises(CompileError) as caught:
        record(model.file, stand_in, tmp_path / "recorded", "9.0.3", monkeypatch)
    assert caught.value.code == "MLC-V002"
    assert "Doesn't support BlockWise quantize now" in caught.value.message


def test_an_operation_that_the_library_refuses_cuts_the_graph(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The softmax of each layer on the CPU: the shares say so."""
    monkeypatch.setenv("STAND_IN_REFUSED", ",25,")
    applied, _ = record(made("tiny-vit").file, stand_in, tmp_path / "out", "8.2.24", monkeypatch)
    (share,) = applied.shares
    assert share.total - share.taken == share.networks - 1 > 0


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference as a part of the largest magnitude."""
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())
