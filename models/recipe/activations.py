"""Activations as the exporter decomposes them, beside the exact GELU of `Graph`."""

from __future__ import annotations

from models.recipe.graph import Graph


def gelu(graph: Graph, value: str) -> str:
    """Apply the exact GELU (Hendrycks & Gimpel 2016)."""
    return graph.gelu(value)


def gelu_tanh(graph: Graph, value: str) -> str:
    """Apply `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (Hendrycks & Gimpel 2016)."""
    cube = graph.node("Mul", value, graph.node("Mul", value, value))
    inner = graph.node("Add", value, graph.node("Mul", graph.constant(0.044715), cube))
    turned = graph.node(
        "Tanh", graph.node("Mul", graph.constant((2 / 3.141592653589793) ** 0.5), inner)
    )
    product = graph.node("Mul", value, graph.node("Add", turned, graph.constant(1.0)))
    return graph.node("Mul", graph.constant(0.5), product)


def quick_gelu(graph: Graph, value: str) -> str:
    """Apply `x sigmoid(1.702 x)` (Hendrycks & Gimpel 2016)."""
    gate = graph.node("Sigmoid", graph.node("Mul", value, graph.constant(1.702)))
    return graph.node("Mul", value, gate)


def silu(graph: Graph, value: str) -> str:
    """Apply `x sigmoid(x)` (Elfwing et al. 2018)."""
    return graph.node("Mul", value, graph.node("Sigmoid", value))
