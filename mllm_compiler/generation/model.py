"""A bundle of the target `numpy`, opened: its entries can be run by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.bundle.config import TOKENIZER
from mllm_compiler.bundle.manifest import EntryRecord
from mllm_compiler.bundle.verify import Bundle
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.settings import Settings, read_settings

Array = NDArray[np.generic]

MODULE = "targets/numpy/module.mlir"


@dataclass(frozen=True)
class NumpyModel:
    """A bundle that the reference executes.

    Attributes:
        bundle: The open bundle.
        runner: Runs its entries.
        settings: How text, pixels and sound go in.
    """

    bundle: Bundle
    runner: NumpyRunner
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


def open_model(bundle: Bundle) -> NumpyModel:
    """Opens a bundle for the NumPy reference; every weight is checked when it is registered.

    Raises:
        CompileError: `MLC-B010`, the bundle was not compiled for `numpy`.
    """
    if "numpy" not in bundle.manifest.targets:
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
    runner = NumpyRunner.load(bytes(bundle.member(MODULE)), extents)
    return NumpyModel(bundle, runner, read_settings(bytes(bundle.member("config.json"))))
