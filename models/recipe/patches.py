"""How vision transformers make tokens of an image (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from models.recipe.graph import Graph


def patch_tokens(graph: Graph, pixels: str, name: str, patch: int, *, bias: bool = True) -> str:
    """Project square patches, row by row: [batch, 3, size, size] -> [batch, patches, hidden]."""
    with graph.scope(name.rpartition(".")[2]):
        patches = graph.conv(pixels, name, (patch, patch), strides=(patch, patch), bias=bias)
    return flat_tokens(graph, patches)


def flat_tokens(graph: Graph, image: str) -> str:
    """Return `image.flatten(2).transpose(1, 2)`: [batch, hidden, h, w] -> [batch, h w, hidden]."""
    leading = graph.slice(graph.node("Shape", image), 0, 2, 0)
    shape = graph.node("Concat", leading, graph.constant([-1]), axis=0)
    return graph.node("Transpose", graph.node("Reshape", image, shape), perm=[0, 2, 1])


def repeated(graph: Graph, token: str, like: str, count: int, hidden: int) -> str:
    """Repeat tokens [.., count, hidden] for every image of `like`: [batch, count, hidden]."""
    return graph.node("Expand", token, graph.shape([graph.size(like, 0), count, hidden]))
