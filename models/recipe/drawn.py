"""A graph that draws its weights while it is built: for tiny models, which have no others.

A weight depends on the seed and on its name alone, so that graphs of one model share theirs.
"""

from __future__ import annotations

import zlib
from contextlib import AbstractContextManager

import numpy as np

from models.recipe.graph import Graph, Weights


class DrawnGraph(Graph):
    """A graph whose weights are drawn where they are first named.

    Args:
        seed: Of all weights.
        weights: What is not drawn.
    """

    def __init__(self, seed: int, weights: Weights | None = None) -> None:
        """Start an empty graph."""
        self._seed, self._drawn = seed, dict(weights or {})
        super().__init__("main_graph", self._drawn)

    def draw(self, name: str, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        """Draw a weight of normal values and return it as a value."""
        if name not in self._drawn:
            generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
            drawn = mean + scale * generator.standard_normal(shape)
            self._drawn[name] = drawn.astype(np.float32)
        return self.weight(name)

    def embed(self, ids: str, name: str, rows: int, width: int) -> str:
        """Look ids up in a table [rows, width]."""
        with self._named(name):
            return self.node("Gather", self.draw(f"{name}.weight", rows, width), ids)

    def dense(self, value: str, name: str, inputs: int, outputs: int, *, bias: bool = True) -> str:
        """Apply a linear layer, [..., inputs] -> [..., outputs]."""
        self.draw(f"{name}.weight", outputs, inputs, scale=inputs**-0.5)
        if bias:
            self.draw(f"{name}.bias", outputs, scale=0.1)
        with self._named(name):
            return self.linear(value, name, bias=bias)

    def conv1d(self, value: str, name: str, inputs: int, outputs: int) -> str:
        """Apply GPT-2's linear layer, whose weight is [inputs, outputs], as one `Gemm` over rows.

        value is [batch, tokens, inputs].
        """
        weight = self.draw(f"{name}.weight", inputs, outputs, scale=inputs**-0.5)
        bias = self.draw(f"{name}.bias", outputs, scale=0.1)
        with self._named(name):
            wide = self.shape([self.size(value, 0), self.size(value, 1), outputs])
            rows = self.node("Reshape", value, self.shape([-1, self.size(value, 2)]))
            return self.node("Reshape", self.node("Gemm", rows, weight, bias), wide)

    def normalise(self, value: str, name: str, width: int, epsilon: float) -> str:
        """Apply a layer norm over the last axis."""
        self.draw(f"{name}.weight", width, scale=0.1, mean=1.0)
        self.draw(f"{name}.bias", width, scale=0.1)
        with self._named(name):
            return self.layer_norm(value, name, epsilon)

    def normalise_rms(
        self, value: str, name: str, width: int, epsilon: float, *, offset: bool = False
    ) -> str:
        """Apply an RMS norm over the last axis; with `offset` columns are scaled by 1 + weight."""
        self.draw(f"{name}.weight", width, scale=0.1, mean=0.0 if offset else 1.0)
        with self._named(name):
            return self.rms_norm(value, name, epsilon, offset=offset)

    def _named(self, name: str) -> AbstractContextManager[None]:
        return self.scope(name.rpartition(".")[2])
