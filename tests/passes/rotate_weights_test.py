"""Turning a residual stream keeps the function and spreads what was loud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp, i64

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind
from mllm_compiler.passes.rotate_weights import RotateWeights
from mllm_compiler.quantisation.hadamard import rotation
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, llama_inputs, module_of
from tests.passes.quantise_linears_test import found, recipe_of, weight_of

WIDTH = 96
IDS = np.array([[4, 1, 7]])
TURN = "rotate = true\n[linears]\nbits = 32\n"


def rotate(module: ModuleOp, store: WeightStore, recipe: Path) -> None:
    RotateWeights(recipe=str(recipe)).apply(make_context(store), module)
    module.verify()


def stream(*, norm: str = "rms", returned: bool = False) -> tuple[ModuleOp, WeightStore]:
    """A look-up, a product that is added with a bias, and a head behind a norm."""
    store = WeightStore()
    g = Graph("f", "graph", store, {"ids": tensor_of(i64, (1, Dim.symbol("t")))})
    x = g.add(mllm.EmbeddingOp(g.weight("table", 9, WIDTH), g["ids"]))
    gain = g.tensor("gain", np.linspace(0.5, 2, WIDTH).astype(np.float32))
    n = g.add(mllm.RmsNormOp(x, gain, epsilon=1e-5))
    x = g.add(mllm.BinaryOp(BinaryKind.ADD, x, g.linear(n, "both", WIDTH, bias=True)))
    last = (
        mllm.RmsNormOp(x, gain, epsilon=1e-5)
        if norm == "rms"
        else mllm.LayerNormOp(x, gain, epsilon=1e-5)
    )
    outputs = {"y": g.linear(g.add(last), "head", 20)}
    return module_of(g.finish({**outputs, "x": x} if returned else outputs)), store


def test_the_function_stays_and_every_weight_is_turned(tmp_path: Path) -> None:
    module, store = stream()
    real = run_function(module, "f", {"ids": IDS}, store)["y"]
    names = ("table", "gain", "both.weight", "both.bias", "head.weight")
    table, gain, both, bias, head = (weight_of(module, store, n).astype(np.float64) for n in names)
    rotate(module, store, recipe_of(tmp_path, TURN))
    r = rotation(WIDTH, 0)
    expected = {
        "table": table @ r,
        "gain": np.ones(WIDTH),
        "both.weight": r.T @ (both * gain) @ r,
        "both.bias": bias @ r,
        "head.weight": (head * gain) @ r,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(weight_of(module, store, name), value, rtol=1e-4, atol=1e-5)
    got = run_function(module, "f", {"ids": IDS}, store)["y"]
    np.testing.assert_allclose(got, real, rtol=1e-4, atol=1e-4 * np.abs(real).max())


def test_a_decoder_keeps_its_function_and_its_head_is_no_embedding_any_more(
    tmp_path: Path,
) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=3, tokens=4)
    real = run_function(module, "decoder", inputs, store)
    rotate(module, store, recipe_of(tmp_path, TURN))
    got = run_function(module, "decoder", inputs, store)
    for name, value in real.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=1e-5 * np.abs(value).max())
    table = found(module, mllm.EmbeddingOp)[0].operands[0].owner
    head = found(module, mllm.LinearOp)[-1].operands[1].owner
    assert isinstance(table, mllm.WeightOp)
    assert isinstance(head, mllm.WeightOp)
    assert table.value != head.value
    assert len(found(module, mllm.GatedMlpOp)) == 2


def test_streams_that_something_else_reads_stay(tmp_path: Path) -> None:
    for options in ({"norm": "layer"}, {"returned": True}):
        module, store = stream(**options)
        before = str(module)
        rotate(module, store, recipe_of(tmp_path, TURN))
        assert str(module) == before


def test_a_stream_that_starts_at_an_input_stays(tmp_path: Path) -> None:
    module, store = llama(embeds=True)
    before = {w.value for w in found(module, mllm.WeightOp) if isinstance(w, mllm.WeightOp)}
    rotate(module, store, recipe_of(tmp_path, TURN))
    after = {w.value for w in found(module, mllm.WeightOp) if isinstance(w, mllm.WeightOp)}
    assert after == before


def test_without_it_in_the_recipe_nothing_happens(tmp_path: Path) -> None:
    module, store = stream()
    before = str(module)
    rotate(module, store, recipe_of(tmp_path, "[linears]\nbits = 8\n"))
    assert str(module) == before
