"""Random weights for the tiny recipes: the same seed gives the same bytes."""

from __future__ import annotations

from math import prod

import numpy as np

from models.recipe.graph import FloatArray


class Seeded:
    """A source of float32 weights that depends on nothing but its seed."""

    def __init__(self, seed: int) -> None:
        """Start the stream of a seed."""
        self._generator = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float) -> FloatArray:
        """Draw a tensor of independent normal values with a standard deviation of `scale`."""
        drawn = self._generator.standard_normal(shape) * scale
        return drawn.astype(np.float32)

    def linear(
        self, name: str, inputs: int, outputs: int, *, bias: bool = True
    ) -> dict[str, FloatArray]:
        """Draw the weight [out, in] and the bias [out] of a linear layer."""
        made = {f"{name}.weight": self.normal(outputs, inputs, scale=inputs**-0.5)}
        if bias:
            made[f"{name}.bias"] = self.normal(outputs, scale=0.1)
        return made

    def conv(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: tuple[int, ...],
        *,
        groups: int = 1,
        bias: bool = True,
    ) -> dict[str, FloatArray]:
        """Draw the filters [out, in / groups, *kernel] and the bias [out] of a convolution."""
        shape = (inputs // groups, *kernel)
        made = {f"{name}.weight": self.normal(outputs, *shape, scale=prod(shape) ** -0.5)}
        if bias:
            made[f"{name}.bias"] = self.normal(outputs, scale=0.1)
        return made

    def norm(self, name: str, width: int, *, bias: bool = True) -> dict[str, FloatArray]:
        """Draw the scale (near 1) and the shift (near 0) of a normalisation, both [width]."""
        made = {f"{name}.weight": 1 + self.normal(width, scale=0.1)}
        if bias:
            made[f"{name}.bias"] = self.normal(width, scale=0.1)
        return made
