"""CLIP (Radford et al. 2021), with the names of Hugging Face's `CLIPModel` and optimum's export.

    input_ids [texts, sequence], attention_mask [texts, sequence], pixel_values [images, 3, s, s]
      -> logits_per_image [images, texts], logits_per_text [texts, images],
         text_embeds [texts, projection], image_embeds [images, projection]

A text's last token has the largest id: its place is found by `ArgMax`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.attention import LOWEST
from models.recipe.encoder import EncoderConfig, encoder, encoder_weights
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.patches import patch_tokens, repeated
from models.recipe.seeded import Seeded

_TEXT = ("text_batch_size", "sequence_length")
_IMAGES = "image_batch_size"


@dataclass(frozen=True)
class ClipConfig:
    """Sizes of both towers.

    Attributes:
        text: The text tower.
        vision: The vision tower.
        vocab: Number of tokens; the last one ends a text.
        longest: Positions of the text tower.
        size: Side of the square image in pixels.
        patch: Side of a patch in pixels.
        projection: Width of the common space.
    """

    text: EncoderConfig
    vision: EncoderConfig
    vocab: int
    longest: int
    size: int
    patch: int
    projection: int

    @property
    def tokens(self) -> int:
        """Class token and patches."""
        return 1 + (self.size // self.patch) ** 2


def model(config: ClipConfig, weights: Weights) -> Graph:
    """Build the model."""
    graph = Graph("main_graph", weights)
    ids = graph.input("input_ids", TensorProto.INT64, _TEXT)
    shape = [_IMAGES, 3, config.size, config.size]
    pixels = graph.input("pixel_values", TensorProto.FLOAT, shape)
    attention = graph.input("attention_mask", TensorProto.INT64, _TEXT)
    with graph.scope("vision_model"):
        seen = _vision(graph, config, pixels)
    with graph.scope("visual_projection"):
        seen = graph.linear(seen, "visual_projection", bias=False)
    with graph.scope("text_model"):
        said = _text(graph, config, ids, attention)
    with graph.scope("text_projection"):
        said = graph.linear(said, "text_projection", bias=False)
    seen, said = unit(graph, seen), unit(graph, said)
    scale = graph.node("Exp", graph.weight("logit_scale"))
    per_text = graph.node("MatMul", said, graph.node("Transpose", seen, perm=[1, 0]))
    per_text = graph.node("Mul", per_text, scale)
    per_image = graph.node("Transpose", per_text, perm=[1, 0])
    give(graph, config.projection, {"image": per_image, "text": per_text}, said, seen)
    return graph


def give(graph: Graph, width: int, logits: dict[str, str], said: str, seen: str) -> None:
    """Make the four outputs of a contrastive model, in optimum's order."""
    texts = _TEXT[0]
    graph.output(logits["image"], "logits_per_image", [_IMAGES, texts])
    graph.output(logits["text"], "logits_per_text", [texts, _IMAGES])
    graph.output(said, "text_embeds", [texts, width])
    graph.output(seen, "image_embeds", [_IMAGES, width])


def unit(graph: Graph, value: str) -> str:
    """Scale rows to length 1."""
    return graph.node("Div", value, graph.node("ReduceL2", value, axes=[-1], keepdims=1))


def quick_gelu(graph: Graph, value: str) -> str:
    """Apply `x sigmoid(1.702 x)` (Hendrycks & Gimpel 2016)."""
    gate = graph.node("Sigmoid", graph.node("Mul", value, graph.constant(1.702)))
    return graph.node("Mul", value, gate)


def _vision(graph: Graph, config: ClipConfig, pixels: str) -> str:
    """Return the class token after all blocks: [images, hidden]."""
    name, epsilon = "vision_model", config.vision.epsilon
    with graph.scope("embeddings"):
        projection = f"{name}.embeddings.patch_embedding"
        patches = patch_tokens(graph, pixels, projection, config.patch, bias=False)
        token = graph.weight(f"{name}.embeddings.class_embedding")
        token = repeated(graph, token, pixels, 1, config.vision.hidden)
        value = graph.node("Concat", token, patches, axis=1)
        places = graph.constant(np.arange(config.tokens, dtype=np.int64)[None])
        table = graph.weight(f"{name}.embeddings.position_embedding.weight")
        value = graph.node("Add", value, graph.node("Gather", table, places))
    value = graph.layer_norm(value, f"{name}.pre_layrnorm", epsilon)
    value = encoder(graph, config.vision, value, f"{name}.encoder", quick_gelu)
    first = graph.node("Gather", value, graph.constant(0), axis=1)
    return graph.layer_norm(first, f"{name}.post_layernorm", epsilon)


def _text(graph: Graph, config: ClipConfig, ids: str, attention: str) -> str:
    """Return the last token of every text after all blocks: [texts, hidden]."""
    name, length = "text_model", graph.size(ids, 1)
    with graph.scope("embeddings"):
        value = embed_text(graph, f"{name}.embeddings", ids, config.longest)
    mask = _mask(graph, ids, attention, length)
    value = encoder(graph, config.text, value, f"{name}.encoder", quick_gelu, mask)
    value = graph.layer_norm(value, f"{name}.final_layer_norm", config.text.epsilon)
    last = graph.node("Cast", ids, to=TensorProto.INT32)
    last = graph.node("ArgMax", last, axis=-1, keepdims=0)
    text = graph.node("Range", graph.constant(0), graph.size(value, 0), graph.constant(1))
    place = graph.node("Concat", graph.unsqueeze(text, -1), graph.unsqueeze(last, -1), axis=-1)
    return graph.node("GatherND", value, place)


def embed_text(graph: Graph, name: str, ids: str, longest: int) -> str:
    """Look tokens and their positions up: [texts, sequence, hidden]."""
    stop = graph.unsqueeze(graph.size(ids, 1), 0)
    places = graph.slice(graph.constant(np.arange(longest)[None]), 0, stop, 1)
    tokens = graph.node("Gather", graph.weight(f"{name}.token_embedding.weight"), ids)
    positions = graph.node("Gather", graph.weight(f"{name}.position_embedding.weight"), places)
    return graph.node("Add", tokens, positions)


def _mask(graph: Graph, ids: str, attention: str, length: str) -> str:
    """Return what is added to scores, [texts, 1, sequence, sequence]: causal, and no padding."""
    lowest = graph.constant(LOWEST)
    places = graph.node("Range", graph.constant(0), length, graph.constant(1))
    later = graph.node(
        "Less",
        graph.unsqueeze(places, 0),
        graph.unsqueeze(graph.node("Add", places, graph.constant(1)), 1),
    )
    causal = graph.unsqueeze(graph.node("Where", later, graph.constant(0.0), lowest), 0, 0)
    wide = graph.shape([graph.size(ids, 0), 1, length, length])
    kept = graph.node("Cast", graph.unsqueeze(attention, 1, 2), to=TensorProto.FLOAT)
    absent = graph.node("Sub", graph.constant(1.0), graph.node("Expand", kept, wide))
    hidden = graph.node("Cast", absent, to=TensorProto.BOOL)
    padding = graph.node("Where", hidden, lowest, absent)
    lost = graph.node("Cast", padding, to=TensorProto.BOOL)
    return graph.node("Where", lost, lowest, graph.node("Expand", causal, wide))


def seeded_weights(config: ClipConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, text, vision = Seeded(seed), config.text.hidden, config.vision.hidden
    seen, said = "vision_model.embeddings", "text_model.embeddings"
    made = {
        f"{seen}.class_embedding": draw.normal(vision, scale=0.5),
        f"{seen}.position_embedding.weight": draw.normal(config.tokens, vision, scale=0.5),
        f"{said}.token_embedding.weight": draw.normal(config.vocab, text, scale=1.0),
        f"{said}.position_embedding.weight": draw.normal(config.longest, text, scale=0.5),
        "logit_scale": np.log(np.full((), 1 / 0.07, np.float32)),
    }
    patch = (config.patch, config.patch)
    made |= draw.conv(f"{seen}.patch_embedding", 3, vision, patch, bias=False)
    made |= draw.norm("vision_model.pre_layrnorm", vision)
    made |= encoder_weights(draw, config.vision, "vision_model.encoder")
    made |= draw.norm("vision_model.post_layernorm", vision)
    made |= encoder_weights(draw, config.text, "text_model.encoder")
    made |= draw.norm("text_model.final_layer_norm", text)
    made |= draw.linear("visual_projection", vision, config.projection, bias=False)
    return made | draw.linear("text_projection", text, config.projection, bias=False)
