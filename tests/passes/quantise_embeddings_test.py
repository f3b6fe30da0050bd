"""Tables as codes: rows are those of NumPy's rounding, and a tied head shares them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i64

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.quantise_embeddings import QuantiseEmbeddings
from mllm_compiler.passes.quantise_linears import QuantiseLinears
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference import find_function, run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, llama_inputs, module_of
from tests.passes.quantise_linears_test import fake, found, weight_of

IDS = np.array([[3, 0, 7, 3]])


def look_up() -> tuple[ModuleOp, WeightStore]:
    store = WeightStore()
    g = Graph("f", "graph", store, {"ids": tensor_of(i64, (1, Dim.symbol("t")))})
    rows = g.add(mllm.EmbeddingOp(g.weight("table", 9, 20), g["ids"]))
    return module_of(g.finish({"y": rows})), store


@pytest.mark.parametrize(
    ("text", "bits", "block", "symmetric"),
    [
        ("bits = 8", 8, None, True),
        ("bits = 4\nblock_size = 8\nsymmetric = false", 4, 8, False),
        ("bits = 16", 16, None, True),
    ],
)
def test_rows_are_those_of_the_nearest_codes(
    text: str, bits: int, block: int | None, symmetric: bool, tmp_path: Path
) -> None:
    module, store = look_up()
    table = weight_of(module, store, "table")
    half = table.astype(np.float16).astype(np.float32)
    expected = half if bits == 16 else fake(table, bits, block, symmetric=symmetric)
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"[linears]\nbits = 32\n[embeddings]\n{text}\n")
    QuantiseEmbeddings(recipe=str(recipe)).apply(make_context(store), module)
    module.verify()
    got = run_function(module, "f", {"ids": IDS}, store)["y"]
    np.testing.assert_allclose(got, expected[IDS], rtol=1e-5, atol=1e-6)


def test_a_recipe_without_embeddings_keeps_them(tmp_path: Path) -> None:
    module, store = look_up()
    before = str(module)
    recipe = tmp_path / "r.toml"
    recipe.write_text("[linears]\nbits = 8\n")
    QuantiseEmbeddings(recipe=str(recipe)).apply(make_context(store), module)
    assert str(module) == before


def quantised_llama(*, embeds: bool) -> tuple[ModuleOp, WeightStore]:
    module, store = llama(embeds=embeds)
    for this in (QuantiseLinears(recipe="w8a8"), QuantiseEmbeddings(recipe="w8a8")):
        this.apply(make_context(store), module)
    return module, store


def test_a_table_that_is_the_head_too_is_one_blob() -> None:
    module, _ = quantised_llama(embeds=False)
    tables = [op.operands[0].owner for op in found(module, mllm.EmbeddingOp)]
    head = found(module, mllm.QuantizedLinearOp)[-1].operands[2].owner
    assert isinstance(head, mllm.WeightOp)
    assert head.value in [t.value for t in tables if isinstance(t, mllm.WeightOp)]


def test_the_prefill_of_a_quantised_model_computes_one_row_of_its_head() -> None:
    module, store = quantised_llama(embeds=False)
    inputs = llama_inputs(module, past=3, tokens=4)
    want = run_function(module, "decoder", inputs, store)["logits"][:, -1:]
    SplitLanguageModel().apply(Context(), module)
    prefill = find_function(module, "prefill")
    head = [op for op in block_of(prefill).ops if isinstance(op, mllm.QuantizedLinearOp)][-1]
    assert "sequence_length" not in str(head.x.type)
    got = run_function(module, "prefill", inputs, store)["logits"]
    np.testing.assert_array_equal(got, want)


def test_the_look_up_of_a_model_that_takes_embeddings_reads_the_codes_of_its_head() -> None:
    module, store = llama(embeds=True)
    table = weight_of(module, store, "model.embed_tokens.weight")
    QuantiseLinears(recipe="w8a8").apply(make_context(store), module)
    SplitLanguageModel(embedding="decoder:model.embed_tokens.weight").apply(Context(), module)
    module.verify()
    assert "embed" in [g.sym_name.data for g in graphs(module)]
    got = run_function(module, "embed", {"input_ids": IDS}, store)["inputs_embeds"]
    assert got.dtype == np.float32
    expected = fake(table, 8, None, symmetric=True)[IDS]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
