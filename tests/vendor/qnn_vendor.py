"""HTP's library for the table: a context binary, run by the emulator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.backends.qnn.emit import emit
from mllm_compiler.backends.qnn.sdk import Library
from tests.vendor.vendors import Array, Vendor


class QnnVendor(Vendor):
    """The graphs of a module in one context; HTP runs all that is in it, or refuses it."""

    @staticmethod
    def taken(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in inputs.items()}

    @cached_property
    def compiled(self) -> tuple[Library, int]:
        """The library with the binary in it, and the binary's size."""
        artifact = emit(self.module, self.store)
        library = Library(artifact.soc)
        start = time.perf_counter()
        binary = library.prepare(artifact.graphs)
        self.seconds = time.perf_counter() - start
        library.load(binary)
        return library, len(binary)

    @property
    def size(self) -> int:
        return self.compiled[1]

    def got(self, graph: FuncOp) -> Mapping[str, Array]:
        name = graph.sym_name.data
        return self.compiled[0].run(name, self.given[name])

    def left(self) -> set[Operation]:
        """None: a binary is made of all operators of its graphs."""
        assert self.size
        return set()
