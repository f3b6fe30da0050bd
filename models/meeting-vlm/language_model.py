"""The frozen language model in plain PyTorch, differentiable with respect to its input.

Same weights and arithmetic as `models/recipe/llama.py`; only what training needs.
"""

# pyright: basic, reportMissingImports=false
# (PyTorch is an extra; it is not there where the rest is checked.)

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.recipe.graph import Weights
from models.recipe.llama import LlamaConfig

Cache = list[tuple[Tensor, Tensor]]


class LanguageModel:
    """A Llama decoder whose weights never change.

    Args:
        config: Sizes.
        weights: float32 by Hugging Face name.
        dtype: What the products are computed in; norms and rotary angles stay float32.
    """

    def __init__(self, config: LlamaConfig, weights: Weights, dtype: torch.dtype) -> None:
        """Convert the weights; query, key and value, and gate and up, become one product each."""
        self._config = config
        self._dtype = dtype

        def take(*names: str) -> Tensor:
            return torch.cat([torch.from_numpy(weights[f"{name}.weight"]) for name in names])

        self._layers: list[dict[str, Tensor]] = []
        for index in range(config.layers):
            name = f"model.layers.{index}"
            attention, mlp = f"{name}.self_attn", f"{name}.mlp"
            layer = {
                "qkv": take(*(f"{attention}.{part}_proj" for part in "qkv")).to(dtype),
                "out": take(f"{attention}.o_proj").to(dtype),
                "gate_up": take(f"{mlp}.gate_proj", f"{mlp}.up_proj").to(dtype),
                "down": take(f"{mlp}.down_proj").to(dtype),
                "norm1": take(f"{name}.input_layernorm"),
                "norm2": take(f"{name}.post_attention_layernorm"),
            }
            self._layers.append(layer)
        self._norm = take("model.norm")
        self.embedding = take("model.embed_tokens")
        self._head = self.embedding.to(dtype)

    def hidden(self, value: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Run all blocks over [batch, tokens, hidden] embeddings, after the tokens of a cache."""
        past = cache[0][0].shape[2] if cache else 0
        cos, sin = self._angles(past, value.shape[1])
        kept: Cache = []
        for index, layer in enumerate(self._layers):
            normed = self._rms(value, layer["norm1"])
            before = cache[index] if cache else None
            mixed, pair = self._attention(layer, normed, cos, sin, before)
            kept.append(pair)
            value = value + mixed
            both = F.linear(self._rms(value, layer["norm2"]), layer["gate_up"])
            gate, up = both.chunk(2, -1)
            value = value + F.linear(F.silu(gate) * up, layer["down"]).float()
        return self._rms(value, self._norm), kept

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 scores over the vocabulary."""
        return F.linear(hidden, self._head).float()

    def _rms(self, value: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(value, weight.shape, weight, self._config.epsilon).to(self._dtype)

    def _angles(self, past: int, length: int) -> tuple[Tensor, Tensor]:
        config = self._config
        exponents = torch.arange(0, config.head, 2).float() / config.head
        positions = torch.arange(past, past + length).float()
        angles = torch.outer(positions, 1.0 / config.theta**exponents).repeat(1, 2)
        return angles.cos(), angles.sin()

    def _attention(
        self,
        layer: dict[str, Tensor],
        value: Tensor,
        cos: Tensor,
        sin: Tensor,
        before: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        config = self._config
        batch, length, _ = value.shape
        heads = F.linear(value, layer["qkv"]).view(batch, length, -1, config.head).transpose(1, 2)
        turning = config.heads + config.kv_heads
        turned = self._rotate(heads[:, :turning], cos, sin)
        query, key = turned[:, : config.heads], turned[:, config.heads :]
        values = heads[:, turning:]
        if before is not None:
            key, values = torch.cat((before[0], key), 2), torch.cat((before[1], values), 2)
        group = config.heads // config.kv_heads
        mixed = F.scaled_dot_product_attention(
            query,
            key.repeat_interleave(group, 1),
            values.repeat_interleave(group, 1),
            is_causal=before is None,
        )
        flat = mixed.transpose(1, 2).reshape(batch, length, -1)
        return F.linear(flat, layer["out"]).float(), (key, values)

    def _rotate(self, value: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = self._config.head // 2
        turned = torch.cat((-value[..., half:], value[..., :half]), -1)
        return (value * cos + turned * sin).to(self._dtype)
