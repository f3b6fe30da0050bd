"""LiteRT's plugin for MediaTek for the table: the networks it records, run by the reference."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.backends.neuron.sdk import Share
from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.dialects import make_context
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.host_first import is_taken
from mllm_compiler.passes.lower_to_neuron import OLDEST, LowerToNeuron
from mllm_compiler.reference import find_function
from tests.vendor.neuron_networks import Network, answers, build_stand_in, listing, record
from tests.vendor.vendors import Array, Vendor


class NeuronVendor(Vendor):
    """A file in the plugin, over the stand-in for MediaTek's library."""

    @cached_property
    def compiled(self) -> tuple[dict[str, tuple[Share, Network | None]], int]:
        """What the plugin makes of each graph, and the size of the file that it is given."""
        file = b"".join(bytes(p) for p in emit(self.module, self.store).stream(self.store))
        with pytest.MonkeyPatch.context() as patch:
            library = build_stand_in(self.folder)
            start = time.perf_counter()
            applied, networks = record(file, library, self.folder / "recorded", OLDEST, patch)
            self.seconds = time.perf_counter() - start
        left, made = iter(networks), dict[str, tuple[Share, Network | None]]()
        for graph, share in zip(graphs(self.module), applied.shares, strict=True):
            assert share.networks <= 1
            made[graph.sym_name.data] = share, next(left) if share.networks else None
        assert next(left, None) is None
        return made, len(file)

    @cached_property
    def expected(self) -> ModuleOp:
        """What `lower-to-neuron` says that the plugin makes."""
        made = self.module.clone()
        run_passes(made, [LowerToNeuron(adapter=OLDEST)], make_context(self.store))
        return made

    @property
    def size(self) -> int:
        return self.compiled[1]

    def got(self, graph: FuncOp) -> Mapping[str, Array]:
        """What the network gives; results of the host alone are not compared."""
        name = graph.sym_name.data
        _, network = self.compiled[0][name]
        if network is None:
            return {}
        expected = find_function(self.expected, name)
        assert listing(network.graph, network.store) == listing(expected, self.store)
        return answers(self.expected, expected, self.store, network, self.given[name])

    def left(self) -> set[Operation]:
        """Those that are in no network, as many as the plugin says."""
        found = set[Operation]()
        for graph in graphs(self.module):
            left = {op for op in self.operators(graph) if not is_taken(op)}
            share, _ = self.compiled[0][graph.sym_name.data]
            assert share.total - share.taken == len(left)
            found |= left
        return found
