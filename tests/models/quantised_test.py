"""SmolLM2-135M with 4-bit weights, as ONNX Runtime's quantizer makes it, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.dialects.mllm import DequantizeOp, WeightOp
from mllm_compiler.dialects.types import bits_of
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from models.build import built
from runtime_stub import Model
from tests.bundle.small_bundle import KEY
from tests.passes.exports_test import lifted
from tests.runtime.onnx_answers import OnnxModel
from tests.runtime.quantised_folders import folder_with, weights_only

pytestmark = pytest.mark.slow

TOKENS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's folder with codes in blocks of 32."""
    source = built("smollm2-135m")
    file = folder_with(source, tmp_path_factory.mktemp("smollm2") / "4-bits")
    weights_only(source / "model.onnx", file, bits=4, block_size=32)
    return file.parent


def prompt(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(7).integers(0, 49152, (1, TOKENS))
    made = {"input_ids": ids, "attention_mask": np.ones((1, TOKENS), np.int64)}
    made["position_ids"] = np.arange(TOKENS)[None]
    for given in session.get_inputs():
        if given.name not in made:
            made[given.name] = np.zeros((1, given.shape[1], 0, given.shape[3]), np.float32)
    return made


def test_smollm2_in_4_bits_answers_as_onnx_runtime_does(folder: Path) -> None:
    file = folder / "model.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(file, options)
    given = prompt(session)
    want = session.run(["logits"], given)[0]
    module, store = lifted(file)
    counts = Counter(op.name for op in module.walk())
    assert counts["mllm.attention"] == counts["mllm.gated_mlp"] == 30
    assert counts["mllm.linear"] == 121
    weights = [op.x.owner for op in module.walk() if isinstance(op, DequantizeOp)]
    assert len(weights) == 121 + 3 * 30
    for weight in weights:
        assert isinstance(weight, WeightOp)
        assert bits_of(weight.value.element) == 4
        count = int(np.prod(weight.value.dims))
        assert len(store.raw(weight.value.digest.data)) == count // 2
    got = run_function(module, graphs(module)[0].sym_name.data, given, store)["logits"]
    np.testing.assert_array_equal(got.argmax(-1), want.argmax(-1))
    # 30 layers of real arithmetic in another order; measured 5e-6.
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


def test_smollm2_in_4_bits_speaks_in_c_as_in_onnx_runtime(
    folder: Path, tmp_path: Path, trust: Path
) -> None:
    """Its codes are 4 bits each in the bundle too; q, k and v of 30 blocks are one product each."""
    bundle = tmp_path / "smollm2.mllm_bundle"
    compile_model(Request(model=folder, output=bundle, key=KEY))
    onnx, model = OnnxModel(folder), Model.open(bundle, trust=trust, threads=2)
    for question in ("What is photosynthesis?", "List three uses of a paper clip."):
        said = model.generate(question, max_new_tokens=24)
        got = [piece.token for piece in said if piece.token is not None]
        assert got == onnx.text(question, 24, onnx.sampler(0.0, 0))
    held = [w for w in open_bundle(bundle, LOOK).manifest.weights if w.layout == "quads16"]
    codes = [w for w in held if w.dtype == "ui4"]
    assert len(codes) == 211 - 2 * 30
    assert sum(w.size for w in codes) * 2 == sum(w.shape[0] * w.shape[1] for w in codes)
