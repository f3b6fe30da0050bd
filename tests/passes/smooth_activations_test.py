"""Smoothing keeps the function, and its factors are those of plain NumPy on the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.quantise_linears import QuantiseLinears
from mllm_compiler.passes.smooth_activations import SmoothActivations
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Array, Graph, llama, llama_inputs, module_of
from tests.passes.quantise_linears_test import found, recipe_of, samples, weight_of

RNG = np.random.default_rng(9)
WIDTH = 96
"""More than a constant may hold."""
ROWS = tensor_of(f32, (1, Dim.symbol("tokens"), WIDTH))
W8A8 = "[linears]\nbits = 8\nactivations = 'dynamic'\n"


def normed(*, kind: str = "rms", also: bool = False) -> tuple[ModuleOp, WeightStore]:
    """Two products of a norm, whose result something else may read too."""
    store = WeightStore()
    g = Graph("f", "graph", store, {"x": ROWS})
    gain = g.tensor("gain", RNG.uniform(0.5, 30, WIDTH).astype(np.float32))
    if kind == "rms":
        n = g.add(mllm.RmsNormOp(g["x"], gain, epsilon=1e-5))
    else:
        shift = g.weight("shift", WIDTH)
        n = g.add(mllm.LayerNormOp(g["x"], gain, shift, epsilon=1e-5))
    outputs = {"y": g.linear(n, "first", 8, bias=True), "z": g.linear(n, "second", 12)}
    if also:
        outputs["n"] = g.add(mllm.BinaryOp(BinaryKind.ADD, n, g["x"]))
    return module_of(g.finish(outputs)), store


def smooth(module: ModuleOp, store: WeightStore, recipe: Path, data: str) -> None:
    SmoothActivations(recipe=str(recipe), data=data).apply(make_context(store), module)
    module.verify()


def rows(count: int) -> Array:
    return RNG.standard_normal((1, count, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_smoothquant_divides_the_norm_and_multiplies_the_columns(kind: str, tmp_path: Path) -> None:
    module, store = normed(kind=kind)
    inputs = [rows(5), rows(7)]
    real = run_function(module, "f", {"x": inputs[0]}, store)
    gain = weight_of(module, store, "gain")
    shift = 0 if kind == "rms" else weight_of(module, store, "shift")
    first, second = (weight_of(module, store, f"{n}.weight") for n in ("first", "second"))
    peaks = []
    for x in inputs:
        wide = x.astype(np.float64)
        centred = wide if kind == "rms" else wide - wide.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain
        peaks.append(np.abs(scaled + shift).max((0, 1)))
    columns = np.maximum(np.abs(first).max(0), np.abs(second).max(0))
    factors = np.max(peaks, 0) ** 0.75 / columns**0.25
    recipe = recipe_of(tmp_path, f"smooth = 'smoothquant'\nstrength = 0.75\n{W8A8}")
    smooth(module, store, recipe, samples(tmp_path, *inputs))
    np.testing.assert_allclose(weight_of(module, store, "gain"), gain / factors, rtol=1e-4)
    np.testing.assert_allclose(weight_of(module, store, "first.weight"), first * factors, rtol=1e-4)
    np.testing.assert_allclose(
        weight_of(module, store, "second.weight"), second * factors, rtol=1e-4
    )
    got = run_function(module, "f", {"x": inputs[0]}, store)
    for name, value in real.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())


def test_what_something_else_reads_stays(tmp_path: Path) -> None:
    module, store = normed(also=True)
    before = str(module)
    recipe = recipe_of(tmp_path, f"smooth = 'smoothquant'\n{W8A8}")
    smooth(module, store, recipe, samples(tmp_path, rows(4)))
    assert str(module) == before


def test_a_weight_of_two_graphs_stays(tmp_path: Path) -> None:
    store = WeightStore()
    functions = []
    for name in ("f", "g"):
        graph = Graph(name, "graph", store, {"x": ROWS})
        norm = graph.add(mllm.RmsNormOp(graph["x"], graph.weight("gain", WIDTH), epsilon=1e-5))
        functions.append(graph.finish({"y": graph.linear(norm, "w", 8)}))
    module = module_of(*functions)
    before = str(module)
    recipe = recipe_of(tmp_path, f"smooth = 'smoothquant'\n{W8A8}")
    smooth(module, store, recipe, samples(tmp_path, rows(4)))
    assert str(module) == before


def test_without_it_in_the_recipe_nothing_happens(tmp_path: Path) -> None:
    module, store = normed()
    before = str(module)
    smooth(module, store, recipe_of(tmp_path, W8A8), "")
    assert str(module) == before


def test_without_samples_it_is_refused(tmp_path: Path) -> None:
    module, store = normed()
    recipe = recipe_of(tmp_path, f"smooth = 'awq'\n{W8A8}")
    with pytest.raises(CompileError, match="MLC-Q002"):
        smooth(module, store, recipe, "")


@pytest.mark.parametrize("method", ["smoothquant", "awq"])
def test_a_decoder_keeps_its_function_and_both_places_of_a_block_are_scaled(
    method: str, tmp_path: Path
) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=0, tokens=6)
    (tmp_path / "decoder").mkdir()
    np.savez(tmp_path / "decoder" / "a.npz", **inputs)
    names = ["model.layers.0.q.weight", "model.layers.1.down", "model.layers.1.up"]
    before = {name: weight_of(module, store, name) for name in names}
    head = weight_of(module, store, "model.embed_tokens.weight")
    real = run_function(module, "decoder", inputs, store)
    text = f"smooth = '{method}'\n[linears]\nbits = 4\nblock_size = 8\n"
    smooth(module, store, recipe_of(tmp_path, text), str(tmp_path))
    assert all((weight_of(module, store, n) != before[n]).any() for n in names)
    np.testing.assert_array_equal(weight_of(module, store, "model.embed_tokens.weight"), head)
    assert len(found(module, mllm.GatedMlpOp)) == 2
    got = run_function(module, "decoder", inputs, store)
    for name, value in real.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5 * np.abs(value).max())


def test_a_channel_a_hundred_times_the_others_costs_less_with_it(tmp_path: Path) -> None:
    """Per-token 8 bits, as the paper has it."""
    errors: dict[bool, float] = {}
    x = rows(64)
    x[..., 3] *= 100
    data = samples(tmp_path, x)
    for smoothed in (False, True):
        store = WeightStore()
        g = Graph("f", "graph", store, {"x": ROWS}, seed=1)
        gain = g.tensor("gain", np.ones(WIDTH, np.float32))
        norm = g.add(mllm.RmsNormOp(g["x"], gain, epsilon=1e-5))
        module = module_of(g.finish({"y": g.linear(norm, "w", 32)}))
        real = run_function(module, "f", {"x": x}, store)["y"]
        text = ("smooth = 'smoothquant'\n" if smoothed else "") + W8A8
        recipe = recipe_of(tmp_path, text)
        smooth(module, store, recipe, data)
        QuantiseLinears(recipe=str(recipe), data=data).apply(make_context(store), module)
        got = run_function(module, "f", {"x": x}, store)["y"]
        errors[smoothed] = float(((got - real) ** 2).sum())
    assert errors[True] < 0.2 * errors[False]
