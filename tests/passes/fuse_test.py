"""Fusion is proven on the reference: the same inputs before and after, on examples and models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.verify import verify
from mllm_compiler.importer.pipeline import import_model
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of
from mllm_compiler.pipelines import FUSE, TOLERANCES, pass_class, pass_names
from mllm_compiler.reference import run_function
from mllm_compiler.validate import relative_error
from mllm_compiler.weights import WeightStore
from models.build import built
from tests.passes.lift_test import random_inputs, results

FILES = [
    Path(__file__).with_name(f"{name}.mlir") for name in FUSE.passes if name != "fold-constants"
]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_example_computes_the_same(file: Path) -> None:
    module = Parser(make_context(), file.read_text()).parse_module()
    inputs = {g.sym_name.data: random_inputs(g) for g in graphs(module)}
    store = WeightStore()
    known = {n: given for n, given in inputs.items() if "unknown" not in n}
    before = {n: run_function(module, n, given, store) for n, given in known.items()}
    pass_class(file.stem)().apply(make_context(store), module)
    verify(module)
    for name, given in known.items():
        for result, value in run_function(module, name, given, store).items():
            assert relative_error(value, before[name][result]) <= TOLERANCES[file.stem], name


EXPECTED = {
    "tiny-llama": {
        "mllm.qkv": 2,
        "mllm.rope": 0,
        "mllm.cached_attention": 2,
        "mllm.norm_gated_mlp": 2,
        "mllm.residual_norm": 2,
        "mllm.linear": 3,
        "mllm.binary": 2,
        "mllm.rms_norm": 1,
    },
    "tiny-qwen2": {"mllm.qkv": 2, "mllm.rope": 0, "mllm.cached_attention": 2},
    "tiny-gemma3": {"mllm.qkv": 3, "mllm.rope": 6, "mllm.norm_gated_mlp": 3},
    "tiny-vit": {"mllm.qkv": 2, "mllm.residual_norm": 4, "mllm.layer_norm": 1},
    "tiny-gpt2": {"mllm.qkv": 2, "mllm.residual_norm": 5},
    "tiny-bert": {"mllm.qkv": 2, "mllm.residual_norm": 5},
    "tiny-whisper": {"mllm.qkv": 6, "mllm.cached_attention": 2},
    "tiny-t5": {"mllm.qkv": 6, "mllm.cached_attention": 2},
    "tiny-vlm": {"mllm.qkv": 4, "mllm.norm_gated_mlp": 2, "mllm.cached_attention": 2},
    "tiny-flamingo": {"mllm.qkv": 4, "mllm.norm_gated_mlp": 2},
    "tiny-mamba": {"mllm.transpose": 4},
    "tiny-convnext": {"mllm.transpose": 9},
    "tiny-svtr": {"mllm.conv": 4, "mllm.binary": 1},
}
"""How many ops of a kind the fused recipes have."""


@pytest.mark.parametrize("recipe", EXPECTED)
def test_a_recipe_is_fused_and_computes_the_same(recipe: str) -> None:
    imported = import_model(built(recipe))
    module, store, context = imported.module, imported.store, make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, module)
    before = results(module, store)
    for name in FUSE.passes:
        pass_class(name)().apply(context, module)
        verify(module)
        after = results(module, store)
        assert after.keys() == before.keys()
        for key, value in after.items():
            assert relative_error(value, before[key]) <= TOLERANCES[name], (name, key)
        before = after
    counts = Counter(op.name for op in module.walk())
    assert {k: counts[k] for k in EXPECTED[recipe]} == EXPECTED[recipe]


QUANTISED = {
    ("tiny-llama", "w8a8"): {"mllm.quantized_linear": 9, "mllm.slice": 10},
    ("tiny-llama", "w4a8"): {"mllm.quantized_linear": 9, "mllm.slice": 10},
    ("tiny-vit", "w8a8"): {"mllm.quantized_linear": 8, "mllm.slice": 6},
    ("tiny-whisper", "w8a8"): {"mllm.quantized_linear": 36},
}
"""Products where queries, keys and values are one, and gate and up."""


@pytest.mark.parametrize(("recipe", "quant"), QUANTISED)
def test_products_of_codes_are_joined_without_a_changed_bit(recipe: str, quant: str) -> None:
    imported = import_model(built(recipe))
    module, store, context = imported.module, imported.store, make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, module)
    pass_class("quantise-linears")(recipe=quant).apply(context, module)
    before = results(module, store)
    pass_class("fuse-quantized-linear")().apply(context, module)
    verify(module)
    for key, value in results(module, store).items():
        np.testing.assert_array_equal(value, before[key])
    counts = Counter(op.name for op in module.walk())
    assert {k: counts[k] for k in QUANTISED[recipe, quant]} == QUANTISED[recipe, quant]


def test_joined_weights_are_those_of_the_parts() -> None:
    imported = import_model(built("tiny-llama"))
    module, store, context = imported.module, imported.store, make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, module)
    linears = [op for op in module.walk() if op.name == "mllm.linear"]
    parts = [op.weight.owner.value for op in linears[:3]]
    pass_class("fuse-qkv")().apply(context, module)
    one = next(op for op in module.walk() if op.name == "mllm.qkv")
    rows = [store.array(blob.digest.data, "f32", blob.dims) for blob in parts]
    blob = one.weight.owner.value
    whole = store.array(blob.digest.data, "f32", blob.dims)
    np.testing.assert_array_equal(whole, np.concatenate(rows))
    assert one.weight.owner.weight_name.data.count("+") == 2


def test_keys_and_values_of_another_stream_are_computed_once_and_shared() -> None:
    imported = import_model(built("tiny-whisper"))
    module, context = imported.module, make_context(imported.store)
    for name in pass_names("fuse"):
        pass_class(name)().apply(context, module)
    graph = next(g for g in graphs(module) if g.sym_name.data == "decoder_with_past")
    readers = [op for op in graph.walk() if op.name == "mllm.cross_attn"]
    edges = {e.input.data: e.producer.data for e in pipeline_of(module).edges}
    names = argument_names(graph)
    read = [names[value.index] for op in readers for value in (op.k, op.v)]
    assert len(set(read)) == 4
    assert {edges[name] for name in read} == {"decoder"}
