"""Target `numpy`: the text of the module and its weights as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.artifact import Entry, entry_of, stream_weights
from mllm_compiler.dialects.cpu.weights import PLAIN
from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.dialects.printing import text_of
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.pack_weights import ALIGNMENT, PackedWeight
from mllm_compiler.weights import WeightStore

TARGET: Final = "numpy"
"""The target's name on the command line and in a bundle."""


@dataclass(frozen=True, kw_only=True)
class NumpyArtifact:
    """What the target makes of a module.

    Attributes:
        module: The text of the module, `module.mlir`.
        entries: The graphs in the order of the module.
        weights: The weights in the order of their offsets.
        weight_bytes: Bytes of all weights, gaps included.
    """

    module: bytes
    entries: tuple[Entry, ...]
    weights: tuple[PackedWeight, ...]
    weight_bytes: int

    def stream(self, store: WeightStore) -> Iterator[memoryview]:
        """The bytes of all weights in order, zeros between them; `weight_bytes` in all."""
        return stream_weights(self.weights, self.weight_bytes, store)


def compile_module(module: ModuleOp) -> NumpyArtifact:
    """Takes a module of any level as it stands."""
    weights, total = dict[str, PackedWeight](), 0
    for op in module.walk():
        if not isinstance(op, WeightOp) or op.value.digest.data in weights:
            continue
        digest, offset = op.value.digest.data, -(-total // ALIGNMENT) * ALIGNMENT
        weights[digest] = PackedWeight(
            name=op.weight_name.data if op.weight_name else digest[7:19],
            digest=digest,
            dtype=str(op.value.element),
            shape=op.value.dims,
            layout=PLAIN,
            offset=offset,
        )
        total = offset + weights[digest].nbytes
    return NumpyArtifact(
        module=f"{text_of(module)}\n".encode(),
        entries=tuple(_entry(graph) for graph in graphs(module)),
        weights=tuple(weights.values()),
        weight_bytes=total,
    )


def _entry(graph: FuncOp) -> Entry:
    ops = [op for op in block_of(graph).ops if not isinstance(op, WeightOp)]
    return entry_of(graph, ops, (op.name for op in ops))
