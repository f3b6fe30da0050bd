"""A module of tfl ops as one `.tflite` file: a subgraph and a signature for each graph.

Constants lie behind the FlatBuffer, each once, however many graphs read it, and are streamed from
the store: `Buffer.offset` and `size` say where, counted from the start of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.backends.artifact import Entry, entry_of, stream_weights
from mllm_compiler.backends.tflite.flatbuffer import schema, written
from mllm_compiler.backends.tflite.versions import version_of
from mllm_compiler.dialects.cpu.weights import PLAIN
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.tfl import PseudoQconstOp, TflOp
from mllm_compiler.dialects.tfl.encoded import BITS, encoding
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    functions_of,
    location_of,
    result_names,
    return_of,
)
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.reference.tfl_coded import constant_array
from mllm_compiler.weights import WeightStore

TARGET: Final = "tflite"
VERSION: Final = 3
"""Of the schema."""

ALIGNMENT: Final = 64
"""Bytes that constants behind the FlatBuffer are aligned to."""

RUNTIME: Final = "2.17.0"
"""The least runtime, for the metadata `min_runtime_version`."""


@dataclass(frozen=True, kw_only=True)
class TfliteArtifact:
    """A file, its constants still in the store.

    Attributes:
        head: The FlatBuffer, padded up to the first constant.
        entries: The graphs in the order of the module.
        weights: The constants in the order of their offsets in the file.
        size: Bytes of the file.
    """

    head: bytes
    entries: tuple[Entry, ...]
    weights: tuple[PackedWeight, ...]
    size: int

    def stream(self, store: WeightStore) -> Iterator[memoryview]:
        """The bytes of the file."""
        yield memoryview(self.head)
        start = len(self.head)
        shifted = [replace(weight, offset=weight.offset - start) for weight in self.weights]
        yield from stream_weights(shifted, self.size - start, store)


def emit(module: ModuleOp, store: WeightStore) -> TfliteArtifact:
    """The file of a module of tfl ops."""
    file = _File(store)
    functions = functions_of(module, TARGET)
    for function in functions:
        file.add_graph(function)
    # Offsets are counted from the start of the file, and have one size: the first writing says how
    # long the FlatBuffer is.
    start = -(-len(file.written(ALIGNMENT)) // ALIGNMENT) * ALIGNMENT
    weights, size = file.placed(start)
    return TfliteArtifact(
        head=file.written(start).ljust(start, b"\0"),
        entries=tuple(_entry(function) for function in functions),
        weights=tuple(weights),
        size=size,
    )


@dataclass
class _File:
    """The tables of a file while they are collected."""

    store: WeightStore
    subgraphs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    signatures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    codes: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    constants: dict[str, PackedWeight] = field(default_factory=dict[str, PackedWeight])

    def add_graph(self, graph: FuncOp) -> None:
        """Adds a subgraph and its signature."""
        made, block = _Subgraph(self), block_of(graph)
        inputs = [made.tensor(value, name) for value, name in _named(block.args, graph)]
        for op in block.ops:
            made.add(op)
        results = return_of(graph).operands
        outputs = [made.index[value] for value in results]
        name = graph.sym_name.data
        self.subgraphs.append(
            {
                "tensors": made.tensors,
                "inputs": inputs,
                "outputs": outputs,
                "operators": made.operators,
                "name": name,
            }
        )
        self.signatures.append(
            {
                "inputs": _maps(argument_names(graph), inputs),
                "outputs": _maps(result_names(graph), outputs),
                "signature_key": name,
                "subgraph_index": len(self.subgraphs) - 1,
            }
        )

    def code(self, op: TflOp) -> int:
        """The place of an operator among those of the file."""
        number, _ = schema().operators[op.name.removeprefix("tfl.")]
        return self.codes.setdefault((number, version_of(op)), len(self.codes))

    def buffer(self, digest: str, name: str, element: Attribute, dims: tuple[int, ...]) -> int:
        """The place of a constant among the buffers; the first is empty, as the schema asks."""
        if digest not in self.constants:
            self.constants[digest] = PackedWeight(
                name=name,
                digest=digest,
                dtype=str(element),
                shape=dims,
                layout=PLAIN,
                offset=0,
            )
        return 1 + list(self.constants).index(digest)

    def placed(self, start: int) -> tuple[list[PackedWeight], int]:
        """The constants one behind the other from an offset on, and where the last ends."""
        placed, at = list[PackedWeight](), start
        for weight in self.constants.values():
            at = -(-at // ALIGNMENT) * ALIGNMENT
            placed.append(replace(weight, offset=at))
            at += weight.nbytes
        return placed, at

    def written(self, start: int) -> bytes:
        """The FlatBuffer, where constants begin at an offset."""
        weights, _ = self.placed(start)
        buffers: list[dict[str, Any]] = [{}]
        buffers += [{"offset": w.offset, "size": w.nbytes} for w in weights]
        buffers.append({"data": RUNTIME.encode().ljust(16, b"\0")})
        codes = [
            {
                "deprecated_builtin_code": min(number, 127),
                "builtin_code": number,
                "version": version,
            }
            for number, version in self.codes
        ]
        return written(
            "Model",
            {
                "version": VERSION,
                "operator_codes": codes,
                "subgraphs": self.subgraphs,
                "description": "mllm-compiler",
                "buffers": buffers,
                "metadata": [{"name": "min_runtime_version", "buffer": len(buffers) - 1}],
                "signature_defs": self.signatures,
            },
        )


@dataclass
class _Subgraph:
    """The tensors and operators of a graph."""

    file: _File
    tensors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    operators: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    index: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])

    def add(self, op: Operation) -> None:
        """Adds what an op makes."""
        match op:
            case WeightOp():
                blob, name = op.value, op.weight_name
                label = blob.digest.data[7:19] if name is None else name.data
                buffer = self.file.buffer(blob.digest.data, label, blob.element, blob.dims)
                self.tensor(op.result, label, buffer)
            case ConstantOp():
                array = array_of(op.value)
                digest = self.file.store.add(array)
                label = f"constant.{digest[7:19]}"
                buffer = self.file.buffer(digest, label, element_of(op.result), array.shape)
                self.tensor(op.result, label, buffer)
            case PseudoQconstOp():
                self._qconst(op)
            case TflOp():
                self._operator(op)
            case ReturnOp():
                return
            case _:
                raise TypeError(f"'{op.name}' is no operator of TFLite")

    def tensor(self, value: SSAValue, name: str, buffer: int = 0) -> int:
        """Adds a tensor; of the whole file's empty buffer where it is computed."""
        self.tensors.append(
            {
                "shape": list(extents(value)),
                "type": schema().elements[str(element_of(value))],
                "buffer": buffer,
                "name": name,
                "has_rank": True,
                "quantization": _quantization(value),
            }
        )
        self.index[value] = len(self.tensors) - 1
        return self.index[value]

    def _operator(self, op: TflOp) -> None:
        for i, result in enumerate(op.results):
            name = location_of(op) or op.name
            self.tensor(result, name if len(op.results) == 1 else f"{name}:{i}")
        arguments = op.arguments()
        while arguments and arguments[-1] is None and len(arguments) > MOST_GIVEN.get(op.name, 0):
            arguments.pop()
        _, options = schema().operators[op.name.removeprefix("tfl.")]
        made: dict[str, Any] = {
            "opcode_index": self.file.code(op),
            "inputs": [-1 if a is None else self.index[a] for a in arguments],
            "outputs": [self.index[r] for r in op.results],
        }
        if options:
            made["builtin_options_type"] = schema().options[options]
            made["builtin_options"] = (options, _options(op))
        self.operators.append(made)

    def _qconst(self, op: PseudoQconstOp) -> None:
        """Codes and their scales as one tensor; those of blocks are a tensor of their own."""
        codes, size = self.tensors[self.index[op.codes]], op.block_size.value.data
        self.index[op.weights] = len(self.tensors)
        if op.scales is None:
            self.tensors.append({**codes, "quantization": _quantization(op.weights)})
            return
        axis = op.quantized_dimension.value.data
        if size:
            scales = self.index[op.scales]
            details = {"scales": scales, "zero_points": -1, "block_size": size}
            quantization: dict[str, Any] = {"details_type": BLOCKWISE, "details": details}
        else:
            numbers = constant_array(op.scales, self.file.store).astype(np.float32).reshape(-1)
            quantization = {"scale": numbers, "zero_point": [0] * len(numbers)}
        self.tensors.append(
            {**codes, "quantization": {**quantization, "quantized_dimension": axis}}
        )


BLOCKWISE: Final = 2
"""BlockwiseQuantization among the kinds of QuantizationDetails."""

MOST_GIVEN: Final = {"tfl.fully_connected": 3}
"""Operators that name an absent operand, by how many they name."""


def _quantization(value: SSAValue) -> dict[str, Any] | None:
    """What the codes of a value mean; None where it has none."""
    given = encoding(value)
    return None if given is None else {"scale": [given[0]], "zero_point": [given[1]]}


def _options(op: TflOp) -> dict[str, Any]:
    """The fields of an operator's options."""
    fields: dict[str, Any] = {}
    for name, value in op.properties.items():
        if name in ("scale", "zero_point"):
            continue
        match value:
            case StringAttr():
                fields[name] = op.ENUMS[name].index(value.data)
            case IntegerAttr() | FloatAttr():
                fields[name] = (
                    abs(value.value.data) if str(value.type) == "i1" else value.value.data
                )
            case _:
                continue
    return fields


def _named(values: Any, graph: FuncOp) -> Iterator[tuple[SSAValue, str]]:
    return zip(values, argument_names(graph), strict=True)


def _maps(names: list[str], tensors: list[int]) -> list[dict[str, Any]]:
    return [{"name": n, "tensor_index": t} for n, t in zip(names, tensors, strict=True)]


def _form(op: TflOp) -> str:
    """An operator, and the codes that it computes on: MUL, `MUL int8`."""
    bits = None if op.scale is None else BITS.get(element_of(op.results[0]))
    return op.operator() if bits is None else f"{op.operator()} int{bits}"


def _entry(graph: FuncOp) -> Entry:
    ops = [op for op in block_of(graph).ops if isinstance(op, TflOp)]
    return entry_of(graph, ops, map(_form, ops))
