"""An entry of any shape over graphs of static shapes: choose the smallest that fits, pad, cut.

A dim is a number, the name of a symbol, or `[operation, dim, dim]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from runtime_stub.failure import RuntimeFailure

Array = npt.NDArray[np.generic]
Dim: TypeAlias = "int | str | Sequence[Dim]"

LENGTH: Final = "length."
"""What the input that says how much of a symbol is real is called, before the symbol."""

OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of a dim where each symbol has one."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return values[dim]
    operation, left, right = dim
    return OPERATIONS[cast("str", operation)](evaluate(left, values), evaluate(right, values))


@dataclass(frozen=True)
class Bucketed:
    """An entry whose shapes vary, and the graphs of static shapes that serve it.

    Attributes:
        entry: Its name.
        inputs: The dims of what it takes, without padding.
        outputs: The dims of what it gives.
        least: The least value of each symbol.
        left: The symbols whose padding stands before the real elements.
        variants: The sizes of each graph.
    """

    entry: str
    inputs: Mapping[str, Sequence[Dim]]
    outputs: Mapping[str, Sequence[Dim]]
    least: Mapping[str, int]
    left: Sequence[str]
    variants: Mapping[str, Mapping[str, int]]

    def fit(self, inputs: Mapping[str, Array]) -> Fit:
        """The smallest graph that takes the inputs.

        Raises:
            RuntimeFailure: `MLC-X001`, an input is missing, unknown or does not fit; `MLC-X005`, it
                is larger than every graph takes, or too small.
        """
        values = self._bind(inputs)
        for symbol, value in values.items():
            largest = max(sizes[symbol] for sizes in self.variants.values())
            if value > largest or value < self.least[symbol]:
                words = "exceeds" if value > largest else "is below"
                bound = largest if value > largest else self.least[symbol]
                text = f"{symbol} = {value} {words} the compiled bound {bound}"
                raise RuntimeFailure("MLC-X005", text, location=self.entry)
        fitting = [
            (prod(sizes.values()), name)
            for name, sizes in self.variants.items()
            if all(values[symbol] <= size for symbol, size in sizes.items())
        ]
        _, name = min(fitting)
        return Fit(self, name, values)

    def _bind(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """The values of the symbols, from the shapes of the inputs."""
        for name in (*self.inputs, *inputs):
            if name not in inputs or name not in self.inputs:
                words = "is missing" if name in self.inputs else "is not known"
                raise RuntimeFailure("MLC-X001", f"input '{name}' {words}", location=self.entry)
        values: dict[str, int] = {}
        for name, dims in self.inputs.items():
            shape = inputs[name].shape
            if len(shape) != len(dims):
                text = f"input '{name}' has rank {len(shape)}, not {len(dims)}"
                raise RuntimeFailure("MLC-X001", text, location=self.entry)
            bare = zip(dims, shape, strict=True)
            values = {d: extent for d, extent in bare if isinstance(d, str)} | values
        for name, dims in self.inputs.items():
            for axis, (dim, extent) in enumerate(zip(dims, inputs[name].shape, strict=True)):
                if (expected := evaluate(dim, values)) != extent:
                    text = f"input '{name}': dimension {axis} is {expected}, not {extent}"
                    raise RuntimeFailure("MLC-X001", text, location=self.entry)
        return values


@dataclass(frozen=True)
class Fit:
    """A graph that takes some inputs, and the values of their symbols.

    Attributes:
        bucketed: The entry.
        variant: The graph.
        values: The values of the symbols.
    """

    bucketed: Bucketed
    variant: str
    values: Mapping[str, int]

    def pad(self, inputs: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The inputs of the graph: zeros around the real elements, and how many these are.

        Args:
            inputs: The inputs of the entry.
            wanted: The names of the graph's inputs.
        """
        padded: dict[str, Array] = {
            f"{LENGTH}{symbol}": np.array([n], np.int64) for symbol, n in self.values.items()
        }
        for name, dims in self.bucketed.inputs.items():
            shape = [evaluate(d, self._sizes) for d in dims]
            around = [
                (real.start, extent - real.stop)
                for real, extent in zip(self._real(dims), shape, strict=True)
            ]
            padded[name] = np.pad(inputs[name], around)
        return {name: padded[name] for name in wanted}

    def cut(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The real elements of what the graph gave."""
        dims = self.bucketed.outputs
        return {n: np.array(a[self._real(dims[n])], order="C") for n, a in outputs.items()}

    @property
    def _sizes(self) -> Mapping[str, int]:
        return self.bucketed.variants[self.variant]

    def _real(self, dims: Sequence[Dim]) -> tuple[slice, ...]:
        """Where the real elements of a tensor stand."""
        left = {**self.values, **{s: self._sizes[s] for s in self.bucketed.left}}
        ends = [evaluate(d, left) for d in dims]
        counts = [evaluate(d, self.values) for d in dims]
        return tuple(slice(end - n, end) for end, n in zip(ends, counts, strict=True))
