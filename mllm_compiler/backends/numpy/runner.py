"""Runs the target `numpy`: the reference over a module and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.parser import Parser

from mllm_compiler.backends.numpy.compile import NumpyArtifact
from mllm_compiler.backends.runner import Array, Runner
from mllm_compiler.dialects import make_context
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore


@dataclass
class NumpyRunner(Runner):
    """Runs graphs on the reference."""

    @classmethod
    def of(cls, artifact: NumpyArtifact, store: WeightStore) -> NumpyRunner:
        """A runner over an artifact that was just made."""
        return cls(Parser(make_context(store), artifact.module.decode()).parse_module(), store)

    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes."""
        return run_function(self.module, graph, inputs, self.store)
