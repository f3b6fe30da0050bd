"""SmolLM2-135M with 4-bit weights, as ONNX Runtime's quantizer makes it, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from mllm_compiler.dialects.mllm import DequantizeOp, WeightOp
from mllm_compiler.dialects.types import bits_of
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from models.build import built
from tests.passes.exports_test import lifted

pytestmark = pytest.mark.slow

TOKENS = 8


def with_columns(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its weights as [K, N]: the quantizer looks for constants there."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == "Transpose" and n.input[0] in held]:
        matrix = np.ascontiguousarray(numpy_helper.to_array(held[node.input[0]]).T)
        model.graph.initializer.append(numpy_helper.from_array(matrix, node.output[0]))
        model.graph.node.remove(node)
    return model


def prompt(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(7).integers(0, 49152, (1, TOKENS))
    made = {"input_ids": ids, "attention_mask": np.ones((1, TOKENS), np.int64)}
    made["position_ids"] = np.arange(TOKENS)[None]
    for given in session.get_inputs():
        if given.name not in made:
            made[given.name] = np.zeros((1, given.shape[1], 0, given.shape[3]), np.float32)
    return made


def test_smollm2_in_4_bits_answers_as_onnx_runtime_does(tmp_path: Path) -> None:
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=False, bits=4)
    model = with_columns(onnx.load(built("smollm2-135m") / "model.onnx"))
    quantizer = MatMulNBitsQuantizer(model, algo_config=config)
    quantizer.process()
    file = tmp_path / "model.onnx"
    onnx.save(quantizer.model.model, file)
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
