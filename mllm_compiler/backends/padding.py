"""An entry of any shape over padded graphs: choose the smallest that fits, pad, cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.backends.buckets import Bucketed
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.bucket_shapes.padded import LENGTH

Array = NDArray[np.generic]


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

    @classmethod
    def of(cls, bucketed: Bucketed, inputs: Mapping[str, Array]) -> Fit:
        """The first of the smallest graphs that take the inputs.

        Raises:
            CompileError: `MLC-X001`, an input is missing, unknown or does not fit; `MLC-X005`, it
                is larger than every graph takes, or too small.
        """
        values = bound_values(bucketed, inputs)
        for symbol, value in values.items():
            largest = max(sizes[symbol] for sizes in bucketed.variants.values())
            if value > largest or value < bucketed.least[symbol]:
                words = "exceeds" if value > largest else "is below"
                bound = largest if value > largest else bucketed.least[symbol]
                text = f"{symbol} = {value} {words} the compiled bound {bound}"
                raise _refused(bucketed, "MLC-X005", text)
        fitting = [
            name
            for name, sizes in bucketed.variants.items()
            if all(values[symbol] <= size for symbol, size in sizes.items())
        ]
        smallest = min(fitting, key=lambda name: prod(bucketed.variants[name].values()))
        return cls(bucketed, smallest, values)

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
            shape = [d.evaluate(self._sizes) for d in dims]
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
        ends = [d.evaluate(left) for d in dims]
        counts = [d.evaluate(self.values) for d in dims]
        return tuple(slice(end - n, end) for end, n in zip(ends, counts, strict=True))


def bound_values(bucketed: Bucketed, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The values of the symbols, from the shapes of the inputs.

    Raises:
        CompileError: `MLC-X001`, an input is missing, unknown or does not fit.
    """
    for name in (*bucketed.inputs, *inputs):
        if name not in inputs or name not in bucketed.inputs:
            words = "is missing" if name in bucketed.inputs else "is not known"
            raise _refused(bucketed, "MLC-X001", f"input '{name}' {words}")
    values: dict[str, int] = {}
    for name, dims in bucketed.inputs.items():
        shape = inputs[name].shape
        if len(shape) != len(dims):
            text = f"input '{name}' has rank {len(dims)}, not {len(shape)}"
            raise _refused(bucketed, "MLC-X001", text)
        for dim, extent in zip(dims, shape, strict=True):
            values.setdefault(dim.as_symbol() or "", extent)
    values.pop("", None)
    for name, dims in bucketed.inputs.items():
        for axis, (dim, extent) in enumerate(zip(dims, inputs[name].shape, strict=True)):
            if (expected := dim.evaluate(values)) != extent:
                text = f"input '{name}': dimension {axis} ({dim}) is {expected}, not {extent}"
                raise _refused(bucketed, "MLC-X001", text)
    return values


def _refused(bucketed: Bucketed, code: str, text: str) -> CompileError:
    remedy = "give another input, or change the bounds and compile again"
    return CompileError(code, text, location=bucketed.entry, remedy=remedy)
