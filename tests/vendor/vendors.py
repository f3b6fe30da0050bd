"""What the table asks of a vendor: to compile a lowered module, to run it, and what runs where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation

from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.qnn import StaticTensorOp
from mllm_compiler.dialects.tfl import PseudoQconstOp
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.vendor.blocks import Inputs

Array = np.ndarray
STORED = (WeightOp, ConstantOp, StaticTensorOp, PseudoQconstOp)


class Vendor(ABC):
    """A lowered module in the hands of a vendor.

    Attributes:
        module: The module.
        store: The bytes of its weights.
        given: What each graph is run on.
        folder: Where the vendor may write.
        seconds: How long the vendor's compiler took, once `compiled` was asked for.
    """

    def __init__(self, module: ModuleOp, store: WeightStore, given: Inputs, folder: Path) -> None:
        self.module, self.store, self.given, self.folder = module, store, given, folder
        self.seconds = 0.0

    @staticmethod
    def taken(inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs of a graph in the types that it takes when it is lowered."""
        return dict(inputs)

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of what the compiler makes."""

    @abstractmethod
    def got(self, graph: FuncOp) -> Mapping[str, Array]:
        """The results of a graph in the vendor's runtime."""

    def want(self, graph: FuncOp) -> Mapping[str, Array]:
        """The results of a graph in the reference."""
        name = graph.sym_name.data
        return run_function(self.module, name, self.given[name], self.store)

    @abstractmethod
    def left(self) -> set[Operation]:
        """The operators that the accelerator does not run."""

    def share(self) -> float:
        """The share of operators that it runs."""
        every = [op for graph in graphs(self.module) for op in self.operators(graph)]
        return 1 - len(self.left()) / len(every)

    @staticmethod
    def operators(graph: FuncOp) -> list[Operation]:
        """The operators of a graph in order, without what is stored."""
        return [op for op in block_of(graph).ops if not isinstance(op, (*STORED, ReturnOp))]
