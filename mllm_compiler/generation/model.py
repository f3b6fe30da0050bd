"""A bundle whose module Python runs, opened: its entries can be run by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mllm_compiler.backends.neuron.runner import NeuronRunner
from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.backends.qnn.runner import QnnRunner
from mllm_compiler.backends.rknn.runner import RknnRunner
from mllm_compiler.backends.runner import Runner
from mllm_compiler.backends.tflite.runner import TfliteRunner
from mllm_compiler.bundle.config import TOKENIZER
from mllm_compiler.bundle.manifest import EntryRecord
from mllm_compiler.bundle.verify import Bundle
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.settings import Settings, read_settings
from mllm_compiler.reference.mllm_quant import dequantized

Array = NDArray[np.generic]

RUNNERS: dict[str, type[Runner]] = {
    "neuron": NeuronRunner,
    "numpy": NumpyRunner,
    "qnn": QnnRunner,
    "rknn": RknnRunner,
    "tflite": TfliteRunner,
}
"""What runs the graphs of each target; such a bundle has its `module.mlir`."""


@dataclass(frozen=True)
class NumpyModel:
    """A bundle that the reference, or a vendor's interpreter, executes.

    Attributes:
        bundle: The open bundle.
        runner: Runs its entries.
        settings: How text, pixels and sound go in.
    """

    bundle: Bundle
    runner: Runner
    settings: Settings

    def entry_of_role(self, role: str) -> str | None:
        """The entry that has a role."""
        entries = self.bundle.manifest.entries
        return next((name for name, entry in entries.items() if entry.role == role), None)

    def entry(self, name: str) -> EntryRecord:
        """What the manifest says of an entry.

        Raises:
            CompileError: `MLC-D004`, there is no such entry.
        """
        entries = self.bundle.manifest.entries
        if name not in entries:
            message = f"the module has no graph '{name}' (it has: {', '.join(entries)})"
            raise CompileError("MLC-D004", message, location=str(self.bundle.path))
        return entries[name]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            CompileError: `MLC-X025`, the model has none.
        """
        if TOKENIZER not in self.bundle.manifest.members:
            raise CompileError(
                "MLC-X025",
                "the model takes no text",
                location=str(self.bundle.path),
                remedy="run it with --inputs and --outputs",
            )
        raw = bytes(self.bundle.member(TOKENIZER)).decode()
        return Tokenizer.from_str(raw)

    def weight(self, name: str) -> Array:
        """A weight by the name that the model gives it.

        Raises:
            CompileError: `MLC-X025`, there is no such weight.
        """
        for weight in self.bundle.manifest.weights:
            if weight.name == name:
                return self.runner.store.array(weight.digest, weight.dtype, weight.shape)
        raise CompileError("MLC-X025", f"the model has no weight '{name}'")

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        """Rows of a table as numbers; where it is quantised, of its codes and their scales.

        Raises:
            CompileError: `MLC-X025`, there is no such table.
        """
        found = self.weight(name)[list(ids)]
        if found.dtype.kind == "f" or f"{name}.scale" not in self._weight_names():
            return found.astype(np.float32)
        sides = [f"{name}.scale", f"{name}.zero"]
        scale, *zero = (
            _spread(self.weight(side)[list(ids)], found.shape[-1])
            for side in sides
            if side in self._weight_names()
        )
        return dequantized(found, scale, zero[0] if zero else None, np.dtype(np.float32))

    def _weight_names(self) -> set[str]:
        return {weight.name for weight in self.bundle.manifest.weights}


def _spread(parameter: Array, width: int) -> Array:
    """The scales or zero points of blocks, once for each element of a row."""
    size = -(-width // parameter.shape[-1])
    return np.repeat(parameter, size, -1)[..., :width]


def open_model(bundle: Bundle) -> NumpyModel:
    """Opens a bundle of a target in `RUNNERS`; every weight is checked when it is registered.

    Raises:
        CompileError: `MLC-B010`, the bundle was not compiled for one.
    """
    target = next((t for t in bundle.manifest.targets if t in RUNNERS), None)
    if target is None:
        targets = ", ".join(bundle.manifest.targets)
        raise CompileError(
            "MLC-B010",
            f"has no target 'numpy', only {targets}",
            location=str(bundle.path),
            remedy="compile with --target numpy",
        )
    bundle.verify()
    starts = {place.member.name: place.data for place in bundle.placed}
    extents = [
        (bundle.path, starts[weight.member] + weight.offset, weight.size)
        for weight in bundle.manifest.weights
    ]
    text = bytes(bundle.member(f"targets/{target}/module.mlir"))
    runner = RUNNERS[target].load(text, extents)
    runner.open(bundle.names(), bundle.member)
    return NumpyModel(bundle, runner, read_settings(bytes(bundle.member("config.json"))))
