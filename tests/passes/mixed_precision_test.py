"""Sensitivities are measured on the whole graph, and bits go where they take away most."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.errors import CompileError
from mllm_compiler.passes import mixed_precision
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.mixed_precision import sensitivities
from mllm_compiler.passes.mlp_parts import take_mlps_apart
from mllm_compiler.passes.quantise_linears import QuantiseLinears
from mllm_compiler.passes.quantised_products import bits_per_weight, quantised_products
from mllm_compiler.passes.quantised_weights import WeightCodes
from mllm_compiler.passes.sites import sites_of
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Array, llama, llama_inputs

BASE = "[linears]\nbits = 4\nblock_size = 8\nmethod = 'clipped'\n"


def recipe_of(folder: Path, text: str) -> str:
    path = folder / "r.toml"
    path.write_text(text)
    return str(path)


def divergence(real: Array, got: Array) -> float:
    """The mean divergence of softmax(real) from softmax(got), written plainly."""
    total = 0.0
    for a, b in zip(real.reshape(-1, real.shape[-1]), got.reshape(-1, got.shape[-1]), strict=True):
        p, q = (np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum() for x in (a, b))
        total += float((p * np.log(p / q)).sum())
    return total / (real.size // real.shape[-1])


def test_a_sensitivity_is_that_of_the_graph_with_one_product_quantised(tmp_path: Path) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=0, tokens=6)
    real = run_function(module, "decoder", inputs, store)["logits"]
    graph = graphs(module)[0]
    take_mlps_apart(graph)
    weights = WeightCodes(store)
    sites = sites_of(graph, read_recipe(recipe_of(tmp_path, BASE)), weights)[:-1]
    found = sensitivities(graph, sites, [inputs], weights)
    assert len(found) == 14
    for site in (sites[0], sites[6], sites[13]):
        assert site.weight.weight_name is not None
        alone, alone_store = llama()
        rule = f"[[rules]]\nnames = ['*:{site.weight.weight_name.data}']\n"
        rule += BASE.split("\n", 1)[1]
        text = f"[linears]\nbits = 32\n{rule}"
        QuantiseLinears(recipe=recipe_of(tmp_path, text)).apply(make_context(alone_store), alone)
        got = run_function(alone, "decoder", inputs, alone_store)["logits"]
        np.testing.assert_allclose(found[site.op], divergence(real, got), rtol=1e-2, atol=1e-9)


def test_samples_from_all_parts_are_taken_until_their_results_have_rows_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, store = llama()
    samples = [llama_inputs(module, past=0, tokens=n, seed=n) for n in (6, 2, 5)]
    graph, weights = graphs(module)[0], WeightCodes(store)
    take_mlps_apart(graph)
    site = sites_of(graph, read_recipe(recipe_of(tmp_path, BASE)), weights)[0]
    (six, _, five) = (sensitivities(graph, [site], [s], weights)[site.op] for s in samples)
    monkeypatch.setattr(mixed_precision, "ROWS", 7)
    found = sensitivities(graph, [site], samples, weights)[site.op]
    assert np.isclose(found, (6 * six + 5 * five) / 11)
    assert six != five


def mixed(folder: Path, average: float) -> tuple[ModuleOp, WeightStore]:
    module, store = llama()
    (folder / "data" / "decoder").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data" / "decoder" / "a.npz", **llama_inputs(module, past=0, tokens=6))
    text = f"{BASE}[head]\nbits = 8\n[mixed]\naverage = {average}\n"
    made = QuantiseLinears(recipe=recipe_of(folder, text), data=str(folder / "data"))
    made.apply(make_context(store), module)
    module.verify()
    return module, store


@pytest.mark.parametrize("average", [6.25, 7.5, 9.0])
def test_bits_are_given_up_to_the_average(average: float, tmp_path: Path) -> None:
    module, _ = mixed(tmp_path, average)
    products = quantised_products(module)[:-1]
    raised = [p for p in products if p.bits == 8]
    assert 0 < len(raised) < len(products)
    assert bits_per_weight(products) <= average
    # The smallest of the others would not fit any more, or raising it is worth less.
    least = min(4 * p.weights for p in products if p.bits == 4)
    left = average * sum(p.weights for p in products) - sum(p.stored_bits for p in products)
    assert left < 4 * max(p.weights for p in products) + least


def test_a_weight_of_two_graphs_has_the_bits_that_the_first_gave_it(tmp_path: Path) -> None:
    module, store = llama()
    graph = graphs(module)[0]
    again = graph.clone()
    again.properties["sym_name"] = StringAttr("again")
    module.body.block.insert_op_after(again, graph)
    for name, tokens in (("decoder", 6), ("again", 1)):
        (tmp_path / "data" / name).mkdir(parents=True)
        inputs = llama_inputs(module, past=0, tokens=tokens, seed=tokens)
        np.savez(tmp_path / "data" / name / "a.npz", **inputs)
    recipe = recipe_of(tmp_path, f"{BASE}[mixed]\naverage = 7.5\n")
    made = QuantiseLinears(recipe=recipe, data=str(tmp_path / "data"))
    made.apply(make_context(store), module)
    bits: dict[str, set[int]] = {}
    for found in quantised_products(module):
        bits.setdefault(found.weight, set()).add(found.bits)
    assert {4, 8} == set().union(*bits.values())
    assert all(len(formats) == 1 for formats in bits.values())


def test_what_was_measured_is_kept_beside_what_became_of_a_product(tmp_path: Path) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=0, tokens=6)
    graph, weights = graphs(module)[0], WeightCodes(store)
    take_mlps_apart(graph)
    sites = sites_of(graph, read_recipe(recipe_of(tmp_path, BASE)), weights)[:-1]
    losses = [*sensitivities(graph, sites, [inputs], weights).values()]
    chosen, _ = mixed(tmp_path, 7.5)
    kept = [product.loss for product in quantised_products(chosen)]
    assert kept == [*losses, None]


def test_no_choice_that_fits_loses_less(tmp_path: Path) -> None:
    """All 2^14 choices are tried."""
    module, store = llama()
    inputs = llama_inputs(module, past=0, tokens=6)
    graph, weights = graphs(module)[0], WeightCodes(store)
    take_mlps_apart(graph)
    sites = sites_of(graph, read_recipe(recipe_of(tmp_path, BASE)), weights)[:-1]
    losses = np.array([*sensitivities(graph, sites, [inputs], weights).values()])
    counts = np.array([np.prod(site.weight.value.dims) for site in sites])
    choices = np.array(list(product((0, 1), repeat=len(sites))))
    fits = choices @ (4 * counts) + 6 * counts.sum() <= 7.5 * counts.sum()
    best = (np.where(choices, losses / 256, losses).sum(1))[fits].min()
    chosen, _ = mixed(tmp_path, 7.5)
    taken = np.array([p.bits == 8 for p in quantised_products(chosen)[:-1]])
    assert np.isclose(np.where(taken, losses / 256, losses).sum(), best)


def test_an_average_that_nothing_reaches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"decoder: error: .* more than 5.9 bits .*MLC-Q005"):
        mixed(tmp_path, 5.9)


def test_the_sizes_that_are_counted_are_those_that_are_stored(tmp_path: Path) -> None:
    module, store = mixed(tmp_path, 7.5)
    weights = [op.value for op in module.walk() if isinstance(op, mllm.WeightOp)]
    stored = {blob.digest.data: len(store.raw(blob.digest.data)) for blob in weights}
    coded = {p.weight for p in quantised_products(module)}
    named = [op for op in module.walk() if isinstance(op, mllm.WeightOp) and op.weight_name]
    parts = [
        op.value.digest.data
        for op in named
        if op.weight_name
        and op.weight_name.data.removesuffix(".scale") in coded
        and str(op.value.element) != "f32"
    ]
    counted = sum(p.stored_bits for p in quantised_products(module))
    assert 8 * sum(stored[d] for d in dict.fromkeys(parts)) == counted
