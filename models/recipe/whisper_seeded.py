"""Random Whisper weights for the tiny recipe."""

from __future__ import annotations

from models.recipe.graph import FloatArray
from models.recipe.seeded import Seeded
from models.recipe.whisper import WhisperConfig


def seeded_encoder(config: WhisperConfig, seed: int) -> dict[str, FloatArray]:
    """Return weights for `encoder`."""
    draw, hidden = Seeded(seed), config.hidden
    made: dict[str, FloatArray] = {}
    for name, inputs in (("conv1", config.mels), ("conv2", hidden)):
        made[f"{name}.weight"] = draw.normal(hidden, inputs, 3, scale=(3 * inputs) ** -0.5)
        made[f"{name}.bias"] = draw.normal(hidden, scale=0.1)
    made["embed_positions.weight"] = draw.normal(config.frames, hidden, scale=0.5)
    for index in range(config.layers):
        made |= _block(draw, config, f"layers.{index}", cross=False)
    return made | draw.norm("layer_norm", hidden)


def seeded_decoder(config: WhisperConfig, seed: int) -> dict[str, FloatArray]:
    """Return weights for `decoder` and `decoder_with_past`."""
    draw, hidden = Seeded(seed), config.hidden
    base = "model.decoder"
    made = {
        f"{base}.embed_tokens.weight": draw.normal(config.vocab, hidden, scale=1.0),
        f"{base}.embed_positions.weight": draw.normal(config.longest, hidden, scale=0.5),
    }
    for index in range(config.layers):
        made |= _block(draw, config, f"{base}.layers.{index}", cross=True)
    return made | draw.norm(f"{base}.layer_norm", hidden)


def _block(draw: Seeded, config: WhisperConfig, name: str, *, cross: bool) -> dict[str, FloatArray]:
    hidden = config.hidden
    made: dict[str, FloatArray] = {}
    for part in ("self_attn", "encoder_attn") if cross else ("self_attn",):
        made |= draw.norm(f"{name}.{part}_layer_norm", hidden)
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            bias = projection != "k_proj"
            made |= draw.linear(f"{name}.{part}.{projection}", hidden, hidden, bias=bias)
    made |= draw.norm(f"{name}.final_layer_norm", hidden)
    made |= draw.linear(f"{name}.fc1", hidden, config.inner)
    return made | draw.linear(f"{name}.fc2", config.inner, hidden)
