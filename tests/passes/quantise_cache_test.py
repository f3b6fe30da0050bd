"""A cache takes codes: scales are those of plain NumPy, and ONNX Runtime and C compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.fuse_cached_attention import FuseCachedAttention
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.place import Place
from mllm_compiler.passes.plan_memory import PlanMemory
from mllm_compiler.passes.quantise_cache import QuantiseCache
from mllm_compiler.passes.quantised_caches import quantised_caches
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.onnx_export.roundtrip import answers
from tests.backends.small_models import llama, llama_inputs

Tensors = dict[str, NDArray[np.generic]]


def calibration(module: ModuleOp, folder: Path) -> list[Tensors]:
    """Samples of a decoder, one without a past, which lie in a folder too."""
    (folder / "decoder").mkdir()
    sizes = ((0, 9), (5, 4), (3, 20))
    inputs = [llama_inputs(module, past=p, tokens=t, seed=t) for p, t in sizes]
    for at, tensors in enumerate(inputs):
        np.savez(folder / "decoder" / f"{at}.npz", allow_pickle=False, **tensors)
    return inputs


def coded(module: ModuleOp, store: WeightStore, folder: Path, recipe: str = "kv8") -> None:
    passes = [FuseCachedAttention(), QuantiseCache(recipe=recipe, data=str(folder))]
    run_passes(module, passes, make_context(store))
    module.verify()


def attention_of(module: ModuleOp) -> list[mllm.CachedAttentionOp]:
    return [op for op in module.walk() if isinstance(op, mllm.CachedAttentionOp)]


def test_a_channel_is_scaled_by_half_of_its_size(tmp_path: Path) -> None:
    """The second layer is calibrated on what the codes of the first one give."""
    module, store = llama()
    inputs = calibration(module, tmp_path)
    coded(module, store, tmp_path, "kv4")
    real, _ = llama()
    keys: list[list[NDArray[np.generic]]] = [[], []]
    for tensors in inputs:
        keys[0].append(run_function(real, "decoder", tensors, store)["present.0.key"][0])
        keys[1].append(run_function(module, "decoder", tensors, store)["present.1.key"][0])
    sizes = [np.sqrt((np.concatenate(k, 1).astype(float) ** 2).mean(1)) for k in keys]
    expected = [np.sqrt(s * np.sqrt((s**2).mean(1, keepdims=True))) for s in sizes]
    for at, op in enumerate(attention_of(module)):
        assert op.cache_bits is not None
        assert op.cache_bits.value.data == 4
        assert op.k_scale is not None
        assert isinstance(op.k_scale.owner, mllm.WeightOp)
        blob = op.k_scale.owner.value
        scale = store.array(blob.digest.data, str(blob.element), blob.dims)
        # The present of the second layer holds keys after their own rounding.
        np.testing.assert_allclose(scale, expected[at], rtol=1e-3 if at == 0 else 5e-3)
    found = list(quantised_caches(module, store))
    assert [(cache.bits, len(cache.key_scales)) for cache in found] == [(4, 2), (4, 2)]
    np.testing.assert_allclose(found[0].key_scales, expected[0].max(1), rtol=1e-3)


def test_a_recipe_without_a_cache_changes_nothing(tmp_path: Path) -> None:
    module, store = llama()
    run_passes(module, [FuseCachedAttention()], make_context(store))
    before = str(module)
    QuantiseCache(recipe="w8a8", data=str(tmp_path)).apply(make_context(store), module)
    assert str(module) == before


def test_keys_that_are_not_known_need_data() -> None:
    module, store = llama()
    run_passes(module, [FuseCachedAttention()], make_context(store))
    with pytest.raises(CompileError, match="decoder: error: the recipe needs calibration data"):
        QuantiseCache(recipe="kv8").apply(make_context(store), module)


def test_attention_without_a_cache_of_its_own_needs_none() -> None:
    module, store = llama()
    before = str(module)
    QuantiseCache(recipe="kv8").apply(make_context(store), module)
    assert str(module) == before


def test_onnx_runtime_computes_the_same_on_the_exported_model(tmp_path: Path) -> None:
    module, store = llama()
    calibration(module, tmp_path)
    coded(module, store, tmp_path)
    inputs = llama_inputs(module, past=2, tokens=3)
    path = tmp_path / "decoder.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], store, 21)))
    wanted = run_function(module, "decoder", inputs, store)
    for name, theirs in answers(path, inputs, optimised=False).items():
        np.testing.assert_allclose(theirs, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_four_bits_have_no_form_in_onnx(tmp_path: Path) -> None:
    module, store = llama()
    calibration(module, tmp_path)
    coded(module, store, tmp_path, "kv4")
    with pytest.raises(CompileError, match=r"'mllm.cached_attention' has no form in ONNX"):
        export_graph(graphs(module)[0], store, 21)


@pytest.mark.parametrize("recipe", ["kv16", "kv8", "kv4"])
def test_c_appends_what_the_recipe_says(tmp_path: Path, recipe: str) -> None:
    """Behind a past that the reference made: pages hold nothing but what their format has."""
    module, store = llama()
    calibration(module, tmp_path)
    coded(module, store, tmp_path, recipe)
    inputs = llama_inputs(module, past=2, tokens=3)
    first = run_function(module, "decoder", llama_inputs(module, past=0, tokens=2), store)
    inputs |= {n: first[n.replace("past_key_values", "present")] for n in inputs if "past" in n}
    wanted = run_function(module, "decoder", inputs, store)
    lower = [Place(target="c"), SplitLanguageModel(), LowerToCpu(), PlanMemory()]
    run_passes(module, lower, make_context(store))
    with CRunner(emit(module), store, threads=2) as runner:
        got = runner.run("decoder", inputs)
    for name, expected in wanted.items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_f16_needs_no_data() -> None:
    module, store = llama()
    run_passes(module, [FuseCachedAttention()], make_context(store))
    QuantiseCache(recipe="kv16").apply(make_context(store), module)
    module.verify()
    assert [op.k_scale for op in attention_of(module)] == [None, None]
    assert [(c.bits, c.key_scales) for c in quantised_caches(module, store)] == [(16, ())] * 2
