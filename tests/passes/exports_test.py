"""One model from several exporters lifts to one module, and optimised models lift whole.

`exports/` holds one small decoder as torch 2.13 wrote it: by its legacy exporter (opset 17), by
its newer one (opset 18), and by that for opset 23, whose attention, rotary positions and
normalisations are operators. `exports/hugging_face/` holds random models of a layer or two, as
torch 2.13 and transformers 5.24 wrote them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import AttentionOp
from mllm_compiler.dialects.verify import verify
from mllm_compiler.flops import lifted_share
from mllm_compiler.importer.pipeline import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from models.build import built

EXPORTS = sorted((Path(__file__).parent / "exports").glob("*.onnx"))
FOLDER = Path(__file__).parent / "exports" / "hugging_face"
HUGGING_FACE = {
    "clip-legacy": {"patch_embed": 1, "attention": 2, "softmax": 0, "select": 0},
    "clip-dynamo": {"patch_embed": 1, "attention": 2, "softmax": 0},
    "siglip-dynamo": {"patch_embed": 1, "attention": 2, "cross_attn": 1, "mlp": 3, "select": 0},
    "dinov2-registers-dynamo": {"patch_embed": 1, "attention": 1, "mlp": 1, "select": 0},
    "convnext-legacy": {"conv": 4, "layer_norm": 5, "mlp": 2},
    "wav2vec2-legacy": {"conv": 3, "attention": 1, "mlp": 1, "softmax": 0},
    "wav2vec2-conformer-legacy": {"conv": 5, "attention": 1, "mlp": 2, "softmax": 0},
    "bert-legacy": {"attention": 1, "mlp": 1, "layer_norm": 3, "softmax": 0, "select": 0},
    "gpt2-legacy": {"attention": 1, "mlp": 1, "kv_append": 2, "softmax": 0, "select": 0},
    "gemma3-legacy": {"attention": 2, "gated_mlp": 2, "rms_norm": 13, "rope": 4, "select": 0},
}
"""How many ops of a kind each export becomes."""
B, T, P = 2, 3, 4
SAMPLES = 400


def lifted(file: Path) -> tuple[ModuleOp, WeightStore]:
    imported = import_model(file)
    context = make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, imported.module)
    verify(imported.module)
    assert lifted_share(imported.module) == 1.0
    assert not [op for op in imported.module.walk() if op.name.startswith("onnx.")]
    return imported.module, imported.store


def inputs_of(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    rng, made = np.random.default_rng(7), dict[str, np.ndarray]()
    past = P if any("past" in i.name for i in session.get_inputs()) else 0
    for given in session.get_inputs():
        name, rank = given.name, len(given.shape)
        if name == "attention_mask":
            made[name] = np.ones((B, past + T), np.int64)
        elif name == "position_ids":
            made[name] = np.tile(np.arange(past, past + T), (B, 1))
        elif "int64" in given.type:
            largest = 2 if name == "token_type_ids" else 20
            made[name] = rng.integers(0, largest, filled(given.shape, [B, T]))
        else:
            second = {2: SAMPLES, 3: T, 4: 2}[rank]
            shape = filled(given.shape, [B, second, P, 4])
            made[name] = rng.standard_normal(shape).astype(np.float32)
    return made


def filled(shape: list[int | str], sizes: list[int]) -> list[int]:
    """A shape with sizes in place of its symbols."""
    pairs = zip(shape, sizes, strict=False)
    return [d if isinstance(d, int) else size for d, size in pairs]


def compare(file: Path) -> ModuleOp:
    """Lifts a model whole, and holds it to ONNX Runtime."""
    session = onnxruntime.InferenceSession(file)
    given = inputs_of(session)
    wanted = zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True)
    module, store = lifted(file)
    results = run_function(module, next(iter(graphs(module))).sym_name.data, given, store)
    for name, want in wanted:
        np.testing.assert_allclose(
            results[name], want, rtol=1e-5, atol=1e-5 * np.abs(want).max(), err_msg=name
        )
    return module


def structure(module: ModuleOp) -> Counter[str]:
    """The ops that compute, with their properties."""
    named = ("mllm.weight", "mllm.constant", "mllm.pipeline", "func.func")
    return Counter(
        f"{op.name} {sorted((k, str(v)) for k, v in op.properties.items())}"
        for op in module.walk()
        if op.name not in named
    )


@pytest.mark.parametrize("file", EXPORTS, ids=lambda f: f.stem)
def test_an_export_computes_what_onnx_runtime_computes(file: Path) -> None:
    compare(file)


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_an_export_of_hugging_face_lifts_whole(name: str) -> None:
    counts = Counter(op.name for op in compare(FOLDER / f"{name}.onnx").walk())
    expected = HUGGING_FACE[name]
    assert {kind: counts[f"mllm.{kind}"] for kind in expected} == expected


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_an_export_of_hugging_face_runs_in_c(name: str, tmp_path: Path) -> None:
    file = FOLDER / f"{name}.onnx"
    session = onnxruntime.InferenceSession(file)
    given = inputs_of(session)
    _, results = run_in_c(session, given, file, tmp_path)
    for output, want in zip(session.get_outputs(), session.run(None, given), strict=True):
        error = np.abs(results[output.name] - want).max() / np.abs(want).max()
        assert error < 1e-5, output.name


def run_in_c(
    session: onnxruntime.InferenceSession, given: dict[str, np.ndarray], file: Path, folder: Path
) -> tuple[ModuleOp, dict[str, np.ndarray]]:
    """The lowered module of a model, and what it answers."""
    imported = import_model(bounded(session, given, file, folder))
    passes = [pass_class(p)() for p in pass_names("c")]
    run_passes(imported.module, passes, make_context(imported.store))
    with CRunner(emit(imported.module), imported.store, threads=2) as runner:
        return imported.module, runner.run("model", given)


def bounded(
    session: onnxruntime.InferenceSession, given: dict[str, np.ndarray], file: Path, folder: Path
) -> Path:
    """A folder with a model whose symbols are bounded by its inputs."""
    sizes = {
        symbol: size
        for value in session.get_inputs()
        for symbol, size in zip(value.shape, given[value.name].shape, strict=True)
        if isinstance(symbol, str) and symbol.isidentifier()
    }
    bounds = "\n".join(f"{symbol} = {{ max = {size} }}" for symbol, size in sizes.items())
    graph = '[graphs.model]\nfile = "model.onnx"\nrole = "encoder"'
    (folder / "model.toml").write_text(f'name = "export"\n{graph}\n[dims]\n{bounds}\n')
    (folder / "model.onnx").write_bytes(file.read_bytes())
    return folder


def test_masks_of_an_export_become_attributes_of_attention() -> None:
    for name in ("clip-legacy", "clip-dynamo"):
        module, _ = lifted(FOLDER / f"{name}.onnx")
        image, text = [str(op) for op in module.walk() if op.name == "mllm.attention"]
        assert "causal = true" in text
        assert "key_mask(" in text
        assert "bias(" not in text + image
        assert "key_mask(" not in image


MASKS = {
    "bert-legacy": ["key_mask"],
    "gpt2-legacy": ["causal key_mask"],
    "gemma3-legacy": ["causal key_mask window", "causal key_mask"],
}
"""What stands on the attentions of an export whose masks are indexed by batch and key."""


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_an_export_become_attributes(name: str) -> None:
    found: list[str] = []
    for op in lifted(FOLDER / f"{name}.onnx")[0].walk():
        if isinstance(op, AttentionOp):
            there = {"causal": bool(op.causal), "key_mask": op.key_mask, "window": op.window}
            assert op.bias is None
            found.append(" ".join(word for word, value in there.items() if value))
    assert found == MASKS[name]


def test_one_model_from_three_exporters_is_one_module() -> None:
    assert len(EXPORTS) == 3
    first, *others = [structure(lifted(file)[0]) for file in EXPORTS]
    assert first["builtin.module []"] == 1
    assert all(other == first for other in others)


@pytest.mark.parametrize("recipe", ["tiny-llama", "tiny-vit", "tiny-whisper"])
def test_what_onnx_runtime_optimises_lifts_whole(recipe: str, tmp_path: Path) -> None:
    for file in sorted(built(recipe).glob("*.onnx")):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(tmp_path / file.name)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(file, options)
        optimised = structure(compare(tmp_path / file.name))
        plain = structure(lifted(file)[0])
        kinds = ("attention", "cross_attn", "rope", "gated_mlp", "mlp", "rms_norm", "layer_norm")
        for kind in kinds:
            counts = [
                sum(n for op, n in found.items() if op.startswith(f"mllm.{kind} "))
                for found in (optimised, plain)
            ]
            assert counts[0] == counts[1], (file.name, kind)
