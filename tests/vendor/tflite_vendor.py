"""LiteRT for the table: the interpreter, and the operators that XNNPACK takes from it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.backends.tflite.sdk import Interpreter
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.passes.graphs import graphs, located_clone
from tests.vendor.vendors import Array, Vendor

DELEGATE = "DELEGATE"
"""What LiteRT calls a node that stands for those that a delegate has taken."""


class TfliteVendor(Vendor):
    """A file in the interpreter, whose accelerator is XNNPACK."""

    def file(self, module: ModuleOp) -> bytes:
        return b"".join(bytes(p) for p in emit(module, self.store).stream(self.store))

    @cached_property
    def compiled(self) -> tuple[Interpreter, int]:
        """What LiteRT makes of the file, and the file's size."""
        file = self.file(self.module)
        start = time.perf_counter()
        made = Interpreter(memoryview(file))
        self.seconds = time.perf_counter() - start
        return made, len(file)

    @property
    def size(self) -> int:
        return self.compiled[1]

    def got(self, graph: FuncOp) -> Mapping[str, Array]:
        name = graph.sym_name.data
        return self.compiled[0].run(name, self.given[name])

    def left(self) -> set[Operation]:
        return {op for graph in graphs(self.module) for op in self.left_of(graph)}

    def left_of(self, graph: FuncOp) -> Iterator[Operation]:
        """The operators between the inputs and outputs of no delegate; LiteRT tells one graph."""
        alone = ModuleOp(
            [located_clone(graph), PipelineOp("pipeline", edges=[], caches=[], bounds=[])]
        )
        path = self.folder / f"{graph.sym_name.data}.tflite"
        path.write_bytes(self.file(alone))
        nodes, ops = nodes_of(str(path)), self.operators(graph)
        own = [node for node in nodes if node["op_name"] != DELEGATE]
        makers = {int(t): at for at, node in enumerate(own) for t in node["outputs"]}
        delegated = set[int]()
        for node in nodes:
            if node["op_name"] != DELEGATE:
                continue
            ends, left = set(map(int, node["inputs"])), list(map(int, node["outputs"]))
            while left:
                at = makers[left.pop()]
                if at not in delegated:
                    delegated.add(at)
                    read = map(int, own[at]["inputs"])
                    left += [t for t in read if t not in ends and t in makers]
        assert len(own) == len(ops)
        return (op for at, op in enumerate(ops) if at not in delegated)


def nodes_of(path: str) -> list[dict[str, Any]]:
    """The nodes of a file's first graph as LiteRT has them."""
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model_path=path, num_threads=1)
    made.allocate_tensors()
    return made._get_ops_details()
