"""Text of quantised language models by the C runtime: token by token that of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from runtime_stub import Model
from tests.bundle.small_bundle import KEY
from tests.runtime.answer_test import PROMPTS, tokens
from tests.runtime.onnx_answers import OnnxModel
from tests.runtime.quantised_folders import dynamic, folder_with, weights_only

FORMS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "4 bits": (partial(weights_only, bits=4, block_size=16), "ui4"),
    "8 bits": (partial(weights_only, bits=8, block_size=32), "ui8"),
    "dynamic": (dynamic, "i8"),
}
"""What makes the codes, and their type."""


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_language_model_speaks(form: str, tmp_path: Path, trust: Path) -> None:
    recipe, (quantise, element) = build_recipe("tiny-llama", lambda line: None), FORMS[form]
    file = folder_with(recipe, tmp_path / "model")
    quantise(recipe / "model.onnx", file)
    bundle = tmp_path / "quantised.mllm_bundle"
    compile_model(Request(model=file.parent, output=bundle, key=KEY))
    onnx, model = OnnxModel(file.parent), Model.open(bundle, trust=trust, threads=2)
    for seed, prompt in enumerate(PROMPTS):
        expected = onnx.text(prompt, 20, onnx.sampler(0.0, seed))
        assert tokens(model, prompt, max_new_tokens=20) == expected
    held = open_bundle(bundle, LOOK).manifest.weights
    products = [w for w in held if w.layout == "quads16" and w.dtype == element]
    assert len(products) >= 11
    bits = 4 if element == "ui4" else 8
    assert all(w.size == -(-w.shape[0] // 16) * 16 * w.shape[1] * bits // 8 for w in products)
