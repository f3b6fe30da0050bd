"""QNN's libraries, called; only the child process of `sdk.py` does, as they can crash."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mllm_compiler.backends.qnn import capi
from mllm_compiler.backends.qnn.graph import (
    Array,
    ContextFacts,
    Graph,
    GraphFacts,
    Node,
    PortFacts,
    Soc,
    Tensor,
)
from mllm_compiler.backends.qnn.structures import DTYPES, Keeper, element_of_number

WARNING: Final = 2
"""The level of the log from which reasons of refusals stand in it."""


class RefusedError(Exception):
    """A function of the interface fails.

    Attributes:
        words: Its name, its answer, and what the library logs.
        location: The node of the model, or the graph.
    """

    def __init__(self, words: str, location: str) -> None:
        super().__init__(words)
        self.words, self.location = words, location


class Htp:
    """HTP's library, with a backend and a device for one SoC.

    Args:
        folder: Where the libraries lie.
        soc: The chip.

    Raises:
        RefusedError: The library does not start.
    """

    def __init__(self, folder: Path, soc: Soc) -> None:
        self._log: list[str] = []
        self._callback = capi.LogCallback(self._listen)
        self._libc = c.CDLL(None)
        self._provider = provider(folder / "libQnnHtp.so", "QnnInterface", capi.Provider)
        if self.core != capi.CORE:
            needed, found = (".".join(map(str, v)) for v in (capi.CORE, self.core))
            raise RefusedError(f"its interface is version {found}, not {needed}", "")
        self._device_options = _device_options(soc)
        self._logger, self.backend, self.device = (capi.Handle() for _ in range(3))
        self.call("logCreate", self._callback, WARNING, c.byref(self._logger))
        self.call("backendCreate", self._logger, None, c.byref(self.backend))
        self.call("deviceCreate", self._logger, self._device_options[0], c.byref(self.device))

    @property
    def build(self) -> str:
        """The build of the library."""
        text = c.c_char_p()
        self.call("backendGetBuildId", c.byref(text))
        return (text.value or b"").decode()

    @property
    def core(self) -> tuple[int, int]:
        """Major and minor version of the core API."""
        return self._provider.core.major, self._provider.core.minor

    def call(self, name: str, *arguments: Any, location: str = "") -> None:
        """Calls a function of the interface.

        Raises:
            RefusedError: It does not answer 0.
        """
        self._log.clear()
        code = called(self._provider, capi.CALLS[name], *arguments)
        if code:
            reason = "; ".join(self._log) or "no reason is given"
            raise RefusedError(f"{name} answers {code & 0xFFFF}: {reason}", location)

    def reason(self, node: Node, tensors: Mapping[str, Tensor]) -> str:
        """Why HTP does not take a node, in its own words; empty where it does."""
        keeper = Keeper()
        made = {name: keeper.tensor(tensors[name]) for name in (*node.inputs, *node.outputs)}
        try:
            self.call("backendValidateOpConfig", self.backend, keeper.operation(node, made))
        except RefusedError as refused:
            return refused.words
        return ""

    def prepare(self, graphs: Sequence[Graph]) -> bytes:
        """The context binary of some graphs.

        Raises:
            RefusedError: HTP refuses a node or a graph.
        """
        context = capi.Handle()
        self.call("contextCreate", self.backend, self.device, None, c.byref(context))
        for graph in graphs:
            self._add_graph(context, graph)
        size, written = c.c_uint64(), c.c_uint64()
        self.call("contextGetBinarySize", context, c.byref(size))
        buffer = c.create_string_buffer(size.value)
        self.call("contextGetBinary", context, buffer, size.value, c.byref(written))
        return buffer.raw[: written.value]

    def _add_graph(self, context: capi.Handle, graph: Graph) -> None:
        handle, keeper = capi.Handle(), Keeper()
        self.call("graphCreate", context, graph.name.encode(), None, c.byref(handle))
        tensors: dict[str, capi.Tensor] = {}
        for tensor in graph.tensors.values():
            made = tensors[tensor.name] = keeper.tensor(tensor)
            self.call("tensorCreateGraphTensor", handle, c.byref(made), location=tensor.name)
        for node in graph.nodes:
            operation, where = keeper.operation(node, tensors), node.location
            self.call("backendValidateOpConfig", self.backend, operation, location=where)
            for at in range(operation.parameter_count):
                parameter = operation.parameters[at]
                if parameter.kind == capi.TENSOR:
                    self.call("tensorCreateGraphTensor", handle, c.byref(parameter.of.tensor))
            self.call("graphAddNode", handle, operation, location=where)
        self.call("graphFinalize", handle, None, None, location=graph.name)

    def _listen(self, text: bytes, level: int, time: int, arguments: int) -> None:
        buffer = c.create_string_buffer(2048)
        self._libc.vsnprintf(buffer, len(buffer), text, capi.Handle(arguments))
        self._log.append(" ".join(buffer.value.decode("latin1").split()))


class Context:
    """A context binary, loaded: the emulator in HTP's library executes its graphs.

    Args:
        htp: The library.
        described: What libQnnSystem says of the binary.
    """

    def __init__(self, htp: Htp, described: Described) -> None:
        self._htp, self._described, self._context = htp, described, capi.Handle()
        htp.call(
            "contextCreateFromBinary",
            htp.backend,
            htp.device,
            None,
            described.buffer,
            len(described.buffer),
            c.byref(self._context),
            None,
        )

    def run(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name.

        Raises:
            RefusedError: There is no such graph, or it fails.
        """
        handle, keeper, found = capi.Handle(), Keeper(), dict[str, Array]()
        self._htp.call("graphRetrieve", self._context, graph.encode(), c.byref(handle))
        info = next(g for g in self._described.graphs if g.name == graph.encode())
        given = (capi.Tensor * info.input_count)(*info.inputs[: info.input_count])
        taken = (capi.Tensor * info.output_count)(*info.outputs[: info.output_count])
        for tensor in given:
            keeper.fill(tensor, inputs[tensor.of.name.decode()])
        for tensor in taken:
            tensor_name, empty = tensor.of.name.decode(), np.zeros(*shape_and_dtype(tensor))
            found[tensor_name] = keeper.fill(tensor, empty)
        sides = (given, len(given), taken, len(taken))
        self._htp.call("graphExecute", handle, *sides, None, None, location=graph)
        return found


class Described:
    """A context binary as libQnnSystem reads it.

    Args:
        folder: Where the libraries lie.
        binary: The bytes.

    Raises:
        RefusedError: It is none.
    """

    def __init__(self, folder: Path, binary: bytes) -> None:
        library = provider(folder / "libQnnSystem.so", "QnnSystemInterface", capi.SystemProvider)
        self.buffer = c.create_string_buffer(binary, len(binary))
        handle, info, size = capi.Handle(), capi.Handle(), c.c_uint64()
        called(library, capi.SYSTEM_CALLS["systemContextCreate"], c.byref(handle))
        code = called(
            library,
            capi.SYSTEM_CALLS["systemContextGetBinaryInfo"],
            handle,
            self.buffer,
            len(binary),
            c.byref(info),
            c.byref(size),
        )
        version = c.c_uint32.from_address(info.value).value if info.value else 0
        if code or version != capi.BINARY_INFO:
            words = f"systemContextGetBinaryInfo answers {code & 0xFFFF}, version {version}"
            raise RefusedError(words, "")
        assert info.value is not None
        self.info = capi.BinaryInfo.from_address(info.value + 8)
        self._owner = (library, handle)

    @property
    def graphs(self) -> list[capi.GraphInfo]:
        """Its graphs."""
        at, size = self.info.graphs, c.sizeof(capi.GraphInfo)
        return [capi.GraphInfo.from_address(at + i * size) for i in range(self.info.graph_count)]

    def facts(self) -> ContextFacts:
        """The same as plain data."""
        return ContextFacts(
            build=self.info.build.decode(),
            soc_model=self.info.soc_model,
            graphs=tuple(
                GraphFacts(
                    name=graph.name.decode(),
                    inputs=tuple(map(_port, graph.inputs[: graph.input_count])),
                    outputs=tuple(map(_port, graph.outputs[: graph.output_count])),
                )
                for graph in self.graphs
            ),
        )


def provider(file: Path, stem: str, kind: Any) -> Any:
    """The interface that a library provides."""
    library = c.CDLL(str(file))
    pointer: Any = c.POINTER
    found: Any = pointer(pointer(kind))()
    count = c.c_uint32()
    get = getattr(library, f"{stem}_getProviders")
    get.restype = capi.Error
    code = get(c.byref(found), c.byref(count))
    if code or not count.value:
        raise RefusedError(f"{file.name} has no interface", "")
    made: Any = found[0][0]
    made.library = library
    return made


def called(interface: Any, function: tuple[int, tuple[Any, ...]], *arguments: Any) -> int:
    """What a function of an interface answers."""
    at, kinds = function
    return int(c.CFUNCTYPE(capi.Error, *kinds)(interface.functions[at])(*arguments))


def shape_and_dtype(tensor: capi.Tensor) -> tuple[tuple[int, ...], type[np.generic]]:
    """What the array of a tensor is like."""
    dims = tuple(tensor.of.dims[: tensor.of.rank])
    return dims, DTYPES[element_of_number(tensor.of.element)]


def _port(tensor: capi.Tensor) -> PortFacts:
    fields = tensor.of
    coded = fields.element in capi.CODES.values()
    pair = fields.quantization.of.tensor
    return PortFacts(
        name=fields.name.decode(),
        element=element_of_number(fields.element),
        dims=tuple(fields.dims[: fields.rank]),
        scale=pair.scale if coded else None,
        zero_point=-pair.offset if coded else None,
    )


def _device_options(soc: Soc) -> tuple[Any, ...]:
    """The null-terminated list that names the SoC, and what it points to."""
    options = (capi.DeviceOption(0, 0, soc.model, 0), capi.DeviceOption(1, 0, 0, soc.arch))
    held = [capi.Option(0, c.addressof(option)) for option in options]
    made = (capi.Handle * 3)(*(c.addressof(option) for option in held), None)
    return made, held, options
