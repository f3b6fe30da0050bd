"""SigLIP (Zhai et al. 2023), with the names of Hugging Face's `SiglipModel` and optimum's export.

    input_ids [texts, longest], pixel_values [images, 3, size, size]
      -> logits_per_image [images, texts], logits_per_text [texts, images],
         text_embeds [texts, hidden], image_embeds [images, hidden]

An image is what one learnt query sees of its patches, a text its last token; texts are padded to
`longest` and not masked. A pair's probability is the sigmoid of its logit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.clip import embed_text, give, unit
from models.recipe.encoder import EncoderConfig, encoder, encoder_weights, feed_forward
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.patches import patch_tokens, repeated
from models.recipe.seeded import Seeded


@dataclass(frozen=True)
class SiglipConfig:
    """Sizes of both towers, which have one width.

    Attributes:
        text: The text tower.
        vision: The vision tower.
        vocab: Number of tokens.
        longest: Tokens of every text.
        size: Side of the square image in pixels.
        patch: Side of a patch in pixels.
    """

    text: EncoderConfig
    vision: EncoderConfig
    vocab: int
    longest: int
    size: int
    patch: int

    @property
    def tokens(self) -> int:
        """Patches of an image."""
        return (self.size // self.patch) ** 2


def model(config: SiglipConfig, weights: Weights) -> Graph:
    """Build the model."""
    graph = Graph("main_graph", weights)
    ids = graph.input("input_ids", TensorProto.INT64, ["text_batch_size", config.longest])
    shape = ["image_batch_size", 3, config.size, config.size]
    pixels = graph.input("pixel_values", TensorProto.FLOAT, shape)
    with graph.scope("vision_model"):
        seen = unit(graph, _vision(graph, config, pixels))
    with graph.scope("text_model"):
        said = unit(graph, _text(graph, config, ids))
    per_text = graph.node("MatMul", said, graph.node("Transpose", seen, perm=[1, 0]))
    per_text = graph.node("Mul", per_text, graph.node("Exp", graph.weight("logit_scale")))
    per_text = graph.node("Add", per_text, graph.weight("logit_bias"))
    per_image = graph.node("Transpose", per_text, perm=[1, 0])
    give(graph, config.text.hidden, {"image": per_image, "text": per_text}, said, seen)
    return graph


def _vision(graph: Graph, config: SiglipConfig, pixels: str) -> str:
    """Return what the learnt query sees after all blocks: [images, hidden]."""
    name, epsilon = "vision_model", config.vision.epsilon
    with graph.scope("embeddings"):
        value = patch_tokens(graph, pixels, f"{name}.embeddings.patch_embedding", config.patch)
        places = graph.constant(np.arange(config.tokens, dtype=np.int64)[None])
        table = graph.weight(f"{name}.embeddings.position_embedding.weight")
        value = graph.node("Add", value, graph.node("Gather", table, places))
    value = encoder(graph, config.vision, value, f"{name}.encoder", Graph.gelu_tanh)
    value = graph.layer_norm(value, f"{name}.post_layernorm", epsilon)
    with graph.scope("head"):
        probe = repeated(graph, graph.weight(f"{name}.head.probe"), value, 1, config.vision.hidden)
        with graph.scope("attention"):
            pooled = _look(graph, config, probe, value, f"{name}.head.attention")
        normed = graph.layer_norm(pooled, f"{name}.head.layernorm", epsilon)
        branch = feed_forward(graph, normed, f"{name}.head.mlp", ("fc1", "fc2"), Graph.gelu_tanh)
        pooled = graph.node("Add", pooled, branch)
        return graph.node("Gather", pooled, graph.constant(0), axis=1)


def _look(graph: Graph, config: SiglipConfig, probe: str, value: str, name: str) -> str:
    """Attend from one query as `torch.nn.MultiheadAttention` does: tokens before images.

    The weight of all inputs is one, [3 hidden, hidden]; keys and values are one product.
    """
    hidden, heads = config.vision.hidden, config.vision.heads
    head, images = hidden // heads, graph.size(value, 0)
    first, other = (graph.node("Transpose", v, perm=[1, 0, 2]) for v in (probe, value))
    weight, bias = graph.weight(f"{name}.in_proj_weight"), graph.weight(f"{name}.in_proj_bias")
    query = _part(graph, first, weight, bias, (0, hidden))
    both = _part(graph, other, weight, bias, (hidden, 3 * hidden))
    shape = graph.shape([config.tokens, images, 2, hidden])
    both = graph.node("Transpose", graph.node("Reshape", both, shape), perm=[2, 0, 1, 3])
    key, values = (graph.node("Gather", both, graph.constant(i), axis=0) for i in (0, 1))
    folded = graph.node("Mul", images, graph.constant(heads))
    parts = [
        graph.node(
            "Transpose",
            graph.node("Reshape", part, graph.shape([count, folded, head])),
            perm=[1, 0, 2],
        )
        for part, count in ((query, 1), (key, config.tokens), (values, config.tokens))
    ]
    scaled = graph.node("Mul", parts[0], graph.constant(head**-0.5))
    scores = graph.node("MatMul", scaled, graph.node("Transpose", parts[1], perm=[0, 2, 1]))
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), parts[2])
    mixed = graph.node("Transpose", mixed, perm=[1, 0, 2])
    mixed = graph.node("Reshape", mixed, graph.shape([images, hidden]))
    out = graph.node(
        *("Gemm", mixed, graph.weight(f"{name}.out_proj.weight")),
        graph.weight(f"{name}.out_proj.bias"),
        transB=1,
    )
    out = graph.node("Reshape", out, graph.shape([1, images, hidden]))
    return graph.node("Transpose", out, perm=[1, 0, 2])


def _part(graph: Graph, value: str, weight: str, bias: str, rows: tuple[int, int]) -> str:
    """Apply some rows of a linear layer's weight [out, in]."""
    cut = graph.node("Transpose", graph.slice(weight, *rows, 0), perm=[1, 0])
    return graph.node("Add", graph.node("MatMul", value, cut), graph.slice(bias, *rows, 0))


def _text(graph: Graph, config: SiglipConfig, ids: str) -> str:
    """Return the last token of every text after all blocks, projected: [texts, hidden]."""
    name = "text_model"
    with graph.scope("embeddings"):
        value = embed_text(graph, f"{name}.embeddings", ids, config.longest)
    value = encoder(graph, config.text, value, f"{name}.encoder", Graph.gelu_tanh)
    value = graph.layer_norm(value, f"{name}.final_layer_norm", config.text.epsilon)
    last = graph.node("Gather", value, graph.constant(-1), axis=1)
    with graph.scope("head"):
        return graph.node(
            *("Gemm", last, graph.weight(f"{name}.head.weight")),
            graph.weight(f"{name}.head.bias"),
            transB=1,
        )


def seeded_weights(config: SiglipConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, text, vision = Seeded(seed), config.text.hidden, config.vision.hidden
    seen, said, head = "vision_model.embeddings", "text_model.embeddings", "vision_model.head"
    made = {
        f"{seen}.position_embedding.weight": draw.normal(config.tokens, vision, scale=0.5),
        f"{said}.token_embedding.weight": draw.normal(config.vocab, text, scale=1.0),
        f"{said}.position_embedding.weight": draw.normal(config.longest, text, scale=0.5),
        f"{head}.probe": draw.normal(1, 1, vision, scale=1.0),
        f"{head}.attention.in_proj_weight": draw.normal(3 * vision, vision, scale=vision**-0.5),
        f"{head}.attention.in_proj_bias": draw.normal(3 * vision, scale=0.1),
        "logit_scale": np.log(np.array([10.0], np.float32)),
        "logit_bias": np.array([-10.0], np.float32),
    }
    made |= draw.linear(f"{head}.attention.out_proj", vision, vision)
    made |= draw.norm(f"{head}.layernorm", vision)
    made |= draw.linear(f"{head}.mlp.fc1", vision, config.vision.inner)
    made |= draw.linear(f"{head}.mlp.fc2", config.vision.inner, vision)
    made |= draw.conv(f"{seen}.patch_embedding", 3, vision, (config.patch, config.patch))
    made |= encoder_weights(draw, config.vision, "vision_model.encoder")
    made |= draw.norm("vision_model.post_layernorm", vision)
    made |= encoder_weights(draw, config.text, "text_model.encoder")
    made |= draw.norm("text_model.final_layer_norm", text)
    return made | draw.linear("text_model.head", text, text)
