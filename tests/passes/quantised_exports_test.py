"""Models that ONNX Runtime's quantizers made lift whole, keep their codes and answer as it does.

So they do on the reference and on the C runtime.

ONNX Runtime runs each without rewriting it: its rewritten forms differ by a step of a code, from
themselves too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects.mllm import BlobAttr, DequantizeOp, QuantizedLinearOp, WeightOp
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from models.build import built
from tests.passes.exports_test import inputs_of, lifted, run_in_c

Quantise = Callable[[Path, Path], None]


class Readings(CalibrationDataReader):
    def __init__(self, file: Path) -> None:
        self.given: Iterator[dict[str, np.ndarray]] = iter([inputs_of(plain_session(file))])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.given, None)


def options(level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.graph_optimization_level, made.log_severity_level = level, 3
    return made


def plain_session(file: Path) -> ort.InferenceSession:
    return ort.InferenceSession(file, options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL))


def static(form: QuantFormat) -> Quantise:
    return lambda source, out: quantize_static(source, out, Readings(source), quant_format=form)


def dynamic(source: Path, out: Path) -> None:
    quantize_dynamic(source, out)


def weights_only(bits: int, form: QuantFormat, *, symmetric: bool) -> Quantise:
    def quantise(source: Path, out: Path) -> None:
        config = DefaultWeightOnlyQuantConfig(
            block_size=16, is_symmetric=symmetric, bits=bits, quant_format=form
        )
        made = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        made.process()
        onnx.save(made.model.model, out)

    return quantise


FORMS: dict[str, Quantise] = {
    "static, pairs": static(QuantFormat.QDQ),
    "static, operators": static(QuantFormat.QOperator),
    "dynamic": dynamic,
    "4 bits": weights_only(4, QuantFormat.QOperator, symmetric=False),
    "4 bits, pairs": weights_only(4, QuantFormat.QDQ, symmetric=True),
    "8 bits": weights_only(8, QuantFormat.QOperator, symmetric=False),
}
ATTENTION = {"attention": 2, "layer_norm": 5}
OPS: dict[str, dict[str, int]] = {
    "static, pairs": {"quantized_linear": 12, "linear": 0},
    "static, operators": {"quantized_linear": 12, "linear": 0, "integer_conv": 1},
    "dynamic": {**ATTENTION, "quantized_linear": 12, "linear": 0},
    "4 bits": {**ATTENTION, "linear": 8, "mlp": 2, "dequantize": 12, "patch_embed": 1},
    "4 bits, pairs": {**ATTENTION, "linear": 8, "mlp": 2, "dequantize": 12},
    "8 bits": {**ATTENTION, "linear": 8, "mlp": 2, "dequantize": 12},
}
"""How many of which ops a vision transformer of two layers becomes."""


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with its weights as [K, N]: the quantizers look for constants there."""
    source = next(iter(sorted(built("tiny-vit").glob("*.onnx"))))
    basic = options(ort.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    out = tmp_path_factory.mktemp("folded") / "model.onnx"
    basic.optimized_model_filepath = str(out)
    ort.InferenceSession(source, basic)
    return out


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_lifts_whole(form: str, folded: Path, tmp_path: Path) -> None:
    file = tmp_path / "quantised.onnx"
    FORMS[form](folded, file)
    session = plain_session(file)
    given = inputs_of(session)
    wanted = zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True)
    module, store = lifted(file)
    counts = Counter(op.name.removeprefix("mllm.") for op in module.walk())
    assert {name: counts[name] for name in OPS[form]} == OPS[form]
    results = run_function(module, next(iter(graphs(module))).sym_name.data, given, store)
    for name, want in wanted:
        # Codes are equal; sums of real numbers between them are taken in another order.
        np.testing.assert_allclose(results[name], want, rtol=0, atol=2e-6 * np.abs(want).max())
    bits = 4 if "4 bits" in form else 8
    for blob in matrices(module):
        assert len(store.raw(blob.digest.data)) * 8 == np.prod(blob.dims) * bits


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_runs_in_c(form: str, folded: Path, tmp_path: Path) -> None:
    """Its matrices stay codes: no kernel multiplies them out."""
    file = tmp_path / "quantised.onnx"
    FORMS[form](folded, file)
    session = plain_session(file)
    given = inputs_of(session)
    module, results = run_in_c(session, given, file, tmp_path)
    for output, want in zip(session.get_outputs(), session.run(None, given), strict=True):
        error = np.abs(results[output.name] - want).max() / np.abs(want).max()
        assert error < 2e-6, output.name
    counts = Counter(op.name.removeprefix("cpu.") for op in module.walk())
    products = "f32_dequantized_linear" if "bits" in form else "quantized_linear"
    # Codes without activations' codes are joined: queries, keys and values are one product.
    made = 8 if "bits" in form else 12
    assert (counts[products], counts["f32_linear"], counts["unpack"]) == (made, 0, 0)


def matrices(module: ModuleOp) -> list[BlobAttr]:
    """The handles of the twelve matrices that tokens are multiplied by."""
    found = [op.weight for op in module.walk() if isinstance(op, QuantizedLinearOp)]
    found += [op.x for op in module.walk() if isinstance(op, DequantizeOp)]
    weights = {v: v.owner.value for v in found if isinstance(v.owner, WeightOp)}
    made = [blob for blob in weights.values() if len(blob.dims) == 2]
    assert len(made) == 12
    return made
