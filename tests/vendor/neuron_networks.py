"""Networks that the plugin records in the stand-in, read back into the neuron dialect."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from mllm_compiler.backends.neuron.sdk import Applied, apply
from mllm_compiler.dialects import neuron
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, PipelineOp, WeightOp, array_of
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.neuron.base import CHANNELS, CODED, TENSORS, WORDS, Scalar
from mllm_compiler.dialects.tfl.encoded import encoding
from mllm_compiler.dialects.types import ELEMENTS, dtype_of, element_of, extents
from mllm_compiler.hal import target
from mllm_compiler.passes.graphs import argument_names, block_of, named, result_names, return_of
from mllm_compiler.reference import run_function
from mllm_compiler.reference.executor import Array
from mllm_compiler.weights import WeightStore

SOURCE = Path(__file__).parent / "neuron_stand_in" / "adapter.c"
BY_CODE = {op.CODE: op for op in neuron.OPS}
BY_NAME = {op.EXTENSION: op for op in neuron.OPS}
SYMMETRIC = 13
"""The type of codes of 8 bits without a zero point."""
EXTENSION = 0x20000
"""Where numbers of MediaTek's own operations begin in the stand-in."""
CONSTANTS = (neuron.SymmPerChannelOp, neuron.QuantConstantOp)
"""Ops that are an operand of a network, and no operation."""
DTYPES = {Scalar.FLOAT32: np.float32, Scalar.BOOL: np.bool_, Scalar.UINT32: np.uint32}


def build_stand_in(folder: Path) -> Path:
    """Compiles the stand-in; answers with the folder of the library."""
    library = folder / "libneuron_adapter.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return folder


@dataclass(frozen=True)
class Operand:
    """An operand as it was recorded."""

    type: int
    dims: tuple[int, ...]
    scale: float
    zero: int
    value: bytes | None
    channel_dim: int
    scales: Array | None

    @classmethod
    def read(cls, words: Sequence[str], data: bytes) -> Operand:
        type, scale, zero, offset, size, axis, count, scales_at, _, *dims = words
        start, length, at = int(offset), int(size), int(scales_at)
        scales = None if at < 0 else np.frombuffer(data, np.float32, int(count), at)
        value = None if start < 0 else data[start : start + length]
        shape = tuple(map(int, dims))
        return cls(int(type), shape, float(scale), int(zero), value, int(axis), scales)

    @property
    def element(self) -> Attribute:
        """Its element type."""
        return {**TENSORS, **CHANNELS, **CODED}[self.type]

    def means(self) -> dict[str, Value]:
        """The properties that say what codes mean; none of other types."""
        if self.type not in CODED:
            return {}
        assert self.type != SYMMETRIC or self.zero == 0
        return {"scale": FloatAttr(self.scale, f32), "zero_point": self.zero}

    def array(self) -> Array:
        """The constant; codes of 4 bits are a byte each."""
        assert self.value is not None
        dtype = dtype_of(self.element)
        if dtype == ml_dtypes.int4:
            return np.frombuffer(self.value, np.int8).astype(dtype).reshape(self.dims)
        return np.frombuffer(self.value, dtype).reshape(self.dims)


@dataclass(frozen=True)
class Network:
    """A recorded network as a module of one graph `network`, and its store."""

    module: ModuleOp
    store: WeightStore

    @property
    def graph(self) -> FuncOp:
        return next(op for op in self.module.ops if isinstance(op, FuncOp))


def record(
    file: bytes,
    library: Path,
    folder: Path,
    version: str,
    patch: pytest.MonkeyPatch,
    soc: str | None = None,
) -> tuple[Applied, list[Network]]:
    """What the plugin makes of a file, and the networks in the order of their compilation."""
    folder.mkdir()
    path = folder / "model.tflite"
    path.write_bytes(file)
    patch.setenv("STAND_IN_FOLDER", str(folder))
    patch.setenv("STAND_IN_VERSION", version)
    applied = apply(path, target("neuron").soc(soc), library)
    files = sorted(folder.glob("*.txt"), key=lambda path: int(path.stem.rpartition("_")[2]))
    adapter = [int(part) for part in version.split(".")]
    return applied, [read_network(path, adapter) for path in files]


def read_network(path: Path, adapter: Sequence[int]) -> Network:
    """A network; every number that was recorded is an operand, a property or a type."""
    data, lines = path.with_suffix(".bin").read_bytes(), path.read_text().splitlines()
    rows = [line.split() for line in lines]
    operands = [Operand.read(row[1:], data) for row in rows if row[0] == "operand"]
    inputs, outputs = ([int(i) for i in row[2:]] for row in rows if row[0] in ("inputs", "outputs"))
    kinds = [tensor_of(TENSORS[operands[i].type], operands[i].dims) for i in inputs]
    block, store = Block(arg_types=kinds), WeightStore()
    values: dict[int, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for row in rows:
        if row[0] != "operation":
            continue
        count = int(row[2])
        given, made = ([int(at) for at in part] for part in (row[3 : 3 + count], row[4 + count :]))
        kind = BY_CODE.get(int(row[1]))
        if kind is None:
            kind = BY_NAME[extension(operands[given.pop()])]
        tensors = given[: len(given) - len(kind.SCALARS)]
        for at in tensors:
            if at not in values:
                values[at] = constant(operands[at], block, store, adapter)
        scalars = {
            name: scalar(operands[at], name, kind.SCALARS[name])
            for name, at in zip(kind.SCALARS, given[len(tensors) :], strict=True)
        }
        results = [operands[at] for at in made]
        types = [tensor_of(o.element, o.dims) for o in results]
        op = kind.call([values[at] for at in tensors], types, **scalars, **results[0].means())
        block.add_op(op)
        values.update(zip(made, op.results, strict=True))
    returned = [values[at] for at in outputs]
    block.add_op(ReturnOp(*returned))
    graph = FuncOp("network", (kinds, [v.type for v in returned]), Region(block))
    graph.properties["arg_attrs"] = named([f"x{i}" for i in range(len(kinds))])
    graph.properties["res_attrs"] = named([f"y{i}" for i in range(len(returned))])
    module = ModuleOp([graph, PipelineOp("pipeline", edges=[], caches=[], bounds=[])])
    module.verify()
    return Network(module, store)


def constant(
    operand: Operand, block: Block, store: WeightStore, adapter: Sequence[int]
) -> SSAValue:
    """A constant operand, and its scales."""
    array = operand.array()
    value = stored(array, block, store)
    if operand.type in CODED:
        codes = neuron.QuantConstantOp.call([value], value.type, **operand.means())
        block.add_op(codes)
        return codes.y
    if operand.type not in CHANNELS:
        return value
    assert operand.scales is not None
    scale = stored(operand.scales, block, store)
    op = neuron.SymmPerChannelOp.call(
        [value, scale], value.type, channel_dim=operand.channel_dim, adapter=list(adapter)
    )
    block.add_op(op)
    return op.weights


def stored(array: Array, block: Block, store: WeightStore) -> SSAValue:
    if array.size <= LARGEST_CONSTANT:
        op: Operation = ConstantOp.of(array)
    else:
        op = WeightOp(BlobAttr.of(store.add(array), ELEMENTS[array.dtype], array.shape))
    block.add_op(op)
    return op.results[0]


def extension(operand: Operand) -> str:
    """The name of an operation of MediaTek's own: a word, its kind before, with their lengths."""
    assert operand.type >= EXTENSION
    assert operand.value is not None
    start = 1 + operand.value[0]
    assert operand.value[1:start] == b"string"
    (length,) = np.frombuffer(operand.value, np.uint32, 1, start)
    return operand.value[start + 4 :][:length].rstrip(b"\0").decode()


def scalar(operand: Operand, name: str, kind: Scalar) -> Value:
    """A scalar as a property; of words the word."""
    assert operand.type == kind, name
    assert operand.value is not None
    number = np.frombuffer(operand.value, DTYPES.get(kind, np.int32))[0].item()
    words = {code: word for word, code in WORDS.get(name, {}).items()}
    return words[number] if words else number


def listing(graph: FuncOp, store: WeightStore) -> list[str]:
    """The operations of a graph a line each; values have numbers, constants are their bytes."""
    numbers: dict[SSAValue, int] = {}
    return [
        " ".join(
            [
                op.name,
                *(_value(v, numbers, store) for v in op.operands),
                *_scalars(op),
                _means(op),
                "->",
                *(_value(v, numbers, store) for v in op.results),
            ]
        )
        for op in network_ops(graph)
    ]


def outside(graph: FuncOp) -> list[SSAValue]:
    """What the operations of a graph read that is neither theirs nor constant, in their order."""
    ops = network_ops(graph)
    own = {r for op in ops for r in op.results}
    read = (v for op in ops for v in op.operands if v not in own and not _is_constant(v))
    return list(dict.fromkeys(read))


def answers(
    module: ModuleOp,
    graph: FuncOp,
    store: WeightStore,
    network: Network,
    inputs: Mapping[str, Array],
) -> dict[str, Array]:
    """The results of a graph that its recorded network makes, by their names.

    What the network reads is what the operators before it, and the arguments, give; it is found by
    the place at which the expected operations read it.
    """
    seen: dict[SSAValue, Array] = dict(
        zip(graph.args, (inputs[n] for n in argument_names(graph)), strict=True)
    )

    def listen(op: Operation, results: Sequence[Array]) -> None:
        seen.update(zip(op.results, results, strict=True))

    run_function(module, graph.sym_name.data, inputs, store, listener=listen)
    read = dict(zip(outside(network.graph), (seen[v] for v in outside(graph)), strict=True))
    given = {
        n: read[a] for n, a in zip(argument_names(network.graph), network.graph.args, strict=True)
    }
    made = run_function(network.module, "network", given, network.store)
    places = {r: p for g in (graph, network.graph) for p, r in enumerate(_results(g))}
    by_place = dict(
        zip((places[v] for v in return_of(network.graph).operands), made.values(), strict=True)
    )
    returned = zip(result_names(graph), return_of(graph).operands, strict=True)
    return {name: by_place[places[v]] for name, v in returned if v in places}


def _results(graph: FuncOp) -> list[SSAValue]:
    return [r for op in network_ops(graph) for r in op.results]


def network_ops(graph: FuncOp) -> list[NeuronOp]:
    return [
        op
        for op in block_of(graph).ops
        if isinstance(op, NeuronOp) and not isinstance(op, CONSTANTS)
    ]


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, (ConstantOp, WeightOp, *CONSTANTS))


def _value(value: SSAValue, numbers: dict[SSAValue, int], store: WeightStore) -> str:
    kind = f"{element_of(value)}{list(extents(value))}"
    match value.owner:
        case ConstantOp() as op:
            return f"{kind}={store.add(array_of(op.value))[7:15]}"
        case WeightOp() as op:
            return f"{kind}={op.value.digest.data[7:15]}"
        case neuron.SymmPerChannelOp() as op:
            parts = " ".join(_value(v, numbers, store) for v in op.operands)
            return f"({parts} along {op.channel_dim.value.data})"
        case neuron.QuantConstantOp() as op:
            return f"({_value(op.codes, numbers, store)} {_means(op)})"
        case _:
            return f"{kind}#{numbers.setdefault(value, len(numbers))}"


def _means(op: NeuronOp) -> str:
    """What codes of its result mean."""
    given = encoding(op.results[0])
    return "" if given is None else f"{np.float32(given[0]):.9g} {given[1]}"


def _scalars(op: NeuronOp) -> Iterator[str]:
    for name in op.SCALARS:
        value: Any = op.properties[name]
        match value:
            case StringAttr():
                yield f"{name}={value.data}"
            case _:
                yield f"{name}={abs(np.float32(value.value.data)):g}"
