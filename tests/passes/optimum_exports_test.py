"""What optimum exports of transformers' own models lifts whole, each structure as one op.

`exports/optimum/` holds four models of one layer with random weights (transformers 4.57,
optimum-onnx 0.1, torch 2.13, opset 18; documentation of nodes removed): Llama, Phi-3, whose
projections are packed, GPT-2, whose products are of rows, and Whisper's encoder, first step and
later steps. Their attention is torch's own operator as its legacy exporter spells it, their masks
are made by index. The truth is ONNX Runtime on the same files.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mllm_compiler.importer import read_model_spec
from tests.passes.exports_test import compare, lifted, structure

FOLDER = Path(__file__).parent / "exports" / "optimum"
BLOCK = {"mllm.linear": 5, "mllm.kv_append": 2, "mllm.attention": 1, "mllm.embedding": 1}
LLAMA = {**BLOCK, "mllm.rms_norm": 3, "mllm.rope": 2, "mllm.gated_mlp": 1, "mllm.binary": 2}
SPEECH = {"mllm.attention": 1, "mllm.cross_attn": 1, "mllm.layer_norm": 4, "mllm.mlp": 1}
EXPECTED = {
    "llama/model": LLAMA,
    "phi3/model": LLAMA,
    "gpt2/model": {**BLOCK, "mllm.embedding": 2, "mllm.layer_norm": 3, "mllm.mlp": 1},
    "whisper/encoder_model": {"mllm.conv": 2, "mllm.attention": 1, "mllm.mlp": 1},
    "whisper/decoder_model": {**SPEECH, "mllm.linear": 9},
    "whisper/decoder_with_past_model": {**SPEECH, "mllm.kv_append": 2, "mllm.linear": 7},
}
"""How many ops of a kind each has; none has another product or softmax."""


@pytest.mark.parametrize("name", EXPECTED)
def test_an_export_lifts_to_its_structures(name: str) -> None:
    module = compare(FOLDER / f"{name}.onnx")
    counts = Counter(op.name for op in module.walk())
    assert {kind: counts[kind] for kind in EXPECTED[name]} == EXPECTED[name]
    assert not counts["mllm.matmul"] + counts["mllm.softmax"] + counts["mllm.select"]


def test_packed_projections_make_no_difference() -> None:
    llama, phi = (structure(lifted(FOLDER / name / "model.onnx")[0]) for name in ("llama", "phi3"))
    assert llama == phi


def test_a_folder_as_it_is() -> None:
    spec = read_model_spec(FOLDER / "whisper")
    roles = {name: graph.role for name, graph in spec.graphs.items()}
    assert roles == {
        "encoder": "encoder",
        "decoder": "decoder",
        "decoder_with_past": "decoder-with-past",
    }
    assert spec.dims["past_decoder_sequence_length"].max == 32
    assert spec.audio is not None
    assert spec.audio.mels == 8
    assert spec.generation is not None
    assert spec.generation.forced_prompt == (1,)
    assert spec.generation.suppress == (3, 4)
