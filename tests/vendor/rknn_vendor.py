"""Rockchip's toolkit for the table: its files, which say what runs where, and its simulator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import onnx
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.backends.rknn.compile import write_files
from mllm_compiler.backends.rknn.emit import emit
from mllm_compiler.backends.rknn.placement import PORTS, check_placement, on_cpu
from mllm_compiler.backends.rknn.read import NPU, RknnFile, read_rknn
from mllm_compiler.backends.rknn.sdk import need_toolkit
from mllm_compiler.dialects.rknn import BuildAttr
from mllm_compiler.hal import target
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.lower_to_rknn import BUILD, FLOAT, build_of
from tests.vendor.vendors import Array, Vendor

MOVES = {"Cast", "Gather", "Reshape", "Transpose"}
"""Operators that the toolkit adds by itself, and may give to the CPU: they compute nothing."""


class RknnVendor(Vendor):
    """A module as the toolkit's files; graphs run in its simulator, which builds them once more."""

    @cached_property
    def folder_of_files(self) -> Path:
        """Where the files that the toolkit reads are."""
        artifact = emit(self.module, self.store, str(self.folder / "samples"))
        write_files(artifact, self.store, self.folder)
        return self.folder

    @cached_property
    def compiled(self) -> tuple[Mapping[str, RknnFile], int]:
        """What the files of the graphs say, and the bytes of all."""
        folder, names = self.folder_of_files, [g.sym_name.data for g in graphs(self.module)]
        start = time.perf_counter()
        need_toolkit().build(folder, names)
        self.seconds = time.perf_counter() - start
        raw = {name: (folder / f"{name}.rknn").read_bytes() for name in names}
        files = {name: read_rknn(held, name) for name, held in raw.items()}
        soc = target("rknn").soc(build_of(self.module).soc.data)
        for name, file in files.items():
            check_placement(file, soc, name)
        return files, sum(map(len, raw.values()))

    @property
    def size(self) -> int:
        return self.compiled[1]

    def got(self, graph: FuncOp) -> Mapping[str, Array]:
        return self.simulated(graph.sym_name.data)

    def want(self, graph: FuncOp) -> Mapping[str, Array]:
        """In codes those of the toolkit's own float graph: it calibrates by itself."""
        build = build_of(self.module)
        if build.form.data == FLOAT:
            return super().want(graph)
        folder = self.folder / "float"
        if not folder.exists():
            real = self.module.clone()
            real.attributes[BUILD] = BuildAttr.of(build.soc.data, FLOAT, build.method.data)
            write_files(emit(real, self.store), self.store, folder)
        return self.simulated(graph.sym_name.data, folder)

    def simulated(self, name: str, folder: Path | None = None) -> dict[str, Array]:
        simulator = need_toolkit().simulator(folder or self.folder_of_files, name)
        try:
            return simulator.run(self.given[name])
        finally:
            simulator.close()

    def share(self) -> float:
        """Of the operators that the toolkit made of ours."""
        nodes = [n for f in self.compiled[0].values() for n in f.nodes if n.type not in PORTS]
        return sum(node.unit == NPU for node in nodes) / len(nodes)

    def left(self) -> set[Operation]:
        """Those whose names nodes for the CPU have; a node for the CPU without one moves data."""
        found = set[Operation]()
        for graph in graphs(self.module):
            name = graph.sym_name.data
            model = onnx.load(self.folder / f"{name}.onnx", load_external_data=False)
            ops = self.operators(graph)
            names = [node.name for node in model.graph.node]
            own = dict(zip(names, ops, strict=True))
            for node in on_cpu(self.compiled[0][name]):
                op = own.get(node.name.partition(":")[2])
                assert op is not None or node.counts or node.type in MOVES, node
                found |= {op} if op is not None else set()
        return found
