"""The projector of LLaVA-like models (Liu et al. 2023), with Hugging Face's names.

    features [batch, 1 + grid * grid, width] -> image_features [batch, grid * grid / 4, hidden]

The class token is dropped, each 2x2 of patches becomes one token of 4 * width, and an MLP takes
it into the language model's space.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.seeded import Seeded

NAME = "multi_modal_projector"


@dataclass(frozen=True)
class ProjectorConfig:
    """Sizes of a projector.

    Attributes:
        grid: Patches along a side, even.
        width: Width of the encoder's tokens.
        hidden: Width of the language model's tokens.
        epsilon: Of the LayerNorm.
    """

    grid: int = 16
    width: int = 384
    hidden: int = 576
    epsilon: float = 1e-5

    @property
    def tokens(self) -> int:
        """Tokens an image becomes."""
        return self.grid * self.grid // 4


def projector(config: ProjectorConfig, weights: Weights) -> Graph:
    """Build the projector."""
    graph = Graph("main_graph", weights)
    half, folded = config.grid // 2, 4 * config.width
    shape = ["batch_size", 1 + config.grid * config.grid, config.width]
    features = graph.input("features", TensorProto.FLOAT, shape)
    with graph.scope(NAME):
        batch = graph.size(features, 0)
        patches = graph.slice(features, 1, 1 + config.grid * config.grid, 1)
        cells = graph.shape([batch, half, 2, half, 2, config.width])
        value = graph.node("Reshape", patches, cells)
        value = graph.node("Transpose", value, perm=[0, 1, 3, 2, 4, 5])
        value = graph.node("Reshape", value, graph.shape([batch, config.tokens, folded]))
        with graph.scope("norm"):
            value = graph.layer_norm(value, f"{NAME}.norm", config.epsilon)
        with graph.scope("linear_1"):
            value = graph.linear(value, f"{NAME}.linear_1")
        with graph.scope("act"):
            value = graph.gelu(value)
        with graph.scope("linear_2"):
            value = graph.linear(value, f"{NAME}.linear_2")
    graph.output(value, "image_features", ["batch_size", config.tokens, config.hidden])
    return graph


def seeded_weights(config: ProjectorConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, folded = Seeded(seed), 4 * config.width
    made = draw.norm(f"{NAME}.norm", folded)
    made |= draw.linear(f"{NAME}.linear_1", folded, config.hidden)
    return made | draw.linear(f"{NAME}.linear_2", config.hidden, config.hidden)
