"""Prefill and decode compute what the decoder computes, for less."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import StringAttr

from mllm_compiler.dialects import mllm
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import argument_names, block_of, graphs, pipeline_of, role_of
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference import find_function, run_function
from tests.backends.small_models import llama, llama_inputs
from tests.cli.recipes import tiny
from tests.passes.bucket_shapes_test import both


@pytest.mark.parametrize("embeds", [False, True])
@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize(("entry", "tokens"), [("prefill", 3), ("prefill", 1), ("decode", 1)])
def test_an_entry_gives_the_last_logits_and_the_whole_cache(
    embeds: bool, past: int, entry: str, tokens: int
) -> None:
    module, store = llama(embeds=embeds)
    inputs = llama_inputs(module, past=past, tokens=tokens)
    want = run_function(module, "decoder", inputs, store)
    SplitLanguageModel().apply(Context(), module)
    module.verify()
    names = argument_names(find_function(module, entry))
    assert not {"attention_mask", "position_ids"} & set(names)
    got = run_function(module, entry, {n: inputs[n] for n in names}, store)
    assert got["logits"].shape == (1, 1, 40)
    np.testing.assert_allclose(got["logits"], want["logits"][:, -1:], rtol=1e-5, atol=1e-6)
    for name in [n for n in want if n != "logits"]:
        np.testing.assert_array_equal(got[name], want[name])


def test_the_decoder_stays_as_it_is() -> None:
    module, _ = llama()
    before = str(find_function(module, "decoder"))
    SplitLanguageModel().apply(Context(), module)
    assert str(find_function(module, "decoder")) == before


def test_the_head_and_the_last_block_see_one_row() -> None:
    module, _ = llama()
    SplitLanguageModel().apply(Context(), module)
    prefill = find_function(module, "prefill")
    rows = [str(op.result.type) for op in block_of(prefill).ops if isinstance(op, mllm.GatedMlpOp)]
    assert "sequence_length" in rows[0]
    assert "sequence_length" not in rows[1]
    slices = [op for op in block_of(prefill).ops if isinstance(op, mllm.SliceOp)]
    assert len(slices) == 2


def test_decode_has_no_sequence_length() -> None:
    module, _ = llama()
    SplitLanguageModel().apply(Context(), module)
    text = str(find_function(module, "decode"))
    assert '"sequence_length"' not in text
    assert '"past_sequence_length + 1"' in text


def test_a_mask_that_something_else_reads_becomes_ones() -> None:
    module, _ = llama()
    decoder = find_function(module, "decoder")
    mask = block_of(decoder).args[1]
    end = block_of(decoder).last_op
    assert end is not None
    total = mllm.ReduceOp(mllm.ReduceKind.SUM, mask, [1], keepdims=False)
    block_of(decoder).insert_op_before(total, end)
    end.operands = [*end.operands, total.result]
    names = decoder.res_attrs
    assert names is not None
    decoder.properties["res_attrs"] = type(names)([*names, names.data[0]])
    decoder.update_function_type()
    SplitLanguageModel().apply(Context(), module)
    module.verify()
    attentions = [
        op
        for op in block_of(find_function(module, "prefill")).ops
        if isinstance(op, mllm.AttentionOp)
    ]
    assert attentions
    assert all(op.key_mask is None for op in attentions)


def test_embed_looks_tokens_up_in_the_heads_table() -> None:
    module, store = llama(embeds=True)
    SplitLanguageModel("decoder:model.embed_tokens.weight").apply(Context(), module)
    module.verify()
    embed = find_function(module, "embed")
    assert role_of(embed) == "embedding"
    table = next(op for op in block_of(embed).ops if isinstance(op, mllm.WeightOp))
    ids = np.array([[3, 39, 0]])
    got = run_function(module, "embed", {"input_ids": ids}, store)["inputs_embeds"]
    want = store.array(table.value.digest.data, "f32", (40, 16))[ids]
    np.testing.assert_array_equal(got, want)


def test_an_embedding_that_does_not_exist_names_its_nearest() -> None:
    module, _ = llama(embeds=True)
    with pytest.raises(CompileError, match=r"nearest is 'model.embed_tokens.weight'") as caught:
        SplitLanguageModel("decoder:model.embed.weight").apply(Context(), module)
    assert caught.value.code == "MLC-R005"


def test_edges_and_caches_follow_the_new_entries() -> None:
    module, _ = llama()
    pipeline = pipeline_of(module)
    pipeline.properties["edges"] = type(pipeline.edges)(
        [mllm.EdgeAttr.of("decoder", "input_ids", "other", "ids")]
    )
    SplitLanguageModel().apply(Context(), module)
    assert {c.graph.data for c in pipeline.caches} == {"decoder", "prefill", "decode"}
    assert {e.consumer.data for e in pipeline.edges} == {"decoder", "prefill", "decode"}


def test_other_roles_are_left_alone() -> None:
    module, _ = llama()
    find_function(module, "decoder").attributes["mllm.role"] = StringAttr("decoder-with-past")
    SplitLanguageModel().apply(Context(), module)
    assert [g.sym_name.data for g in graphs(module)] == ["decoder"]


def test_a_language_model_without_logits_is_refused() -> None:
    module, _ = llama()
    decoder = find_function(module, "decoder")
    attrs = decoder.res_attrs
    assert attrs is not None
    decoder.properties["res_attrs"] = type(attrs)([attrs.data[1], *attrs.data[1:]])
    with pytest.raises(CompileError, match="no result named 'logits'") as caught:
        SplitLanguageModel().apply(Context(), module)
    assert caught.value.code == "MLC-R004"


def test_padded_graphs_share_one_look_up() -> None:
    """Each row is the weight's; prefill and decode are not made."""
    padded = both("tiny-vlm", "sequence_length=1,4", "past_sequence_length=8,16").padded
    module = padded.module.clone()
    before = [g.sym_name.data for g in graphs(module)]
    SplitLanguageModel("decoder:model.embed_tokens.weight").apply(Context(), module)
    added = [g for g in graphs(module) if g.sym_name.data not in before]
    assert [(g.sym_name.data, role_of(g)) for g in added] == [("embed", "embedding")]
    ids = np.array([[3, 1, 3, 0, 7]])
    found = run_function(module, "embed", {"input_ids": ids}, padded.store)["inputs_embeds"]
    model = onnx.load(tiny("tiny-vlm") / "decoder.onnx")
    table = next(t for t in model.graph.initializer if t.name == "model.embed_tokens.weight")
    np.testing.assert_array_equal(found, onnx.numpy_helper.to_array(table)[ids])
