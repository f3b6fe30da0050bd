"""A module of qnn ops as graphs of plain data, one for each of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    i1,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.backends.artifact import Entry, entry_of
from mllm_compiler.backends.qnn.graph import (
    INPUT,
    NATIVE,
    OUTPUT,
    STATIC,
    Array,
    Encoding,
    Graph,
    Node,
    Number,
    Soc,
    Tensor,
)
from mllm_compiler.dialects.calls import SEGMENTS, ints
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.qnn import QnnOp, StaticTensorOp
from mllm_compiler.dialects.qnn.base import CODES
from mllm_compiler.dialects.qnn.soc import SOC, SocAttr
from mllm_compiler.dialects.types import bits_of, element_of, extents
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    functions_of,
    location_of,
    result_names,
    return_of,
)
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore

NARROW: Final = {"i4": "i8"}
"""Codes that take a byte each."""

WIDTHS: Final = {"ui8": 8, "i8": 8, "ui16": 16, "i16": 16}


@dataclass(frozen=True, kw_only=True)
class QnnArtifact:
    """Graphs, and what the manifest says of them.

    Attributes:
        soc: The chip that they are for.
        graphs: In the order of the module.
        entries: The same.
    """

    soc: Soc
    graphs: tuple[Graph, ...]
    entries: tuple[Entry, ...]

    @property
    def weights(self) -> tuple[PackedWeight, ...]:
        """None lies in the bundle by itself."""
        return ()


def emit(module: ModuleOp, store: WeightStore) -> QnnArtifact:
    """The graphs of a module of qnn ops; weights stay where the store maps them."""
    return QnnArtifact(
        soc=soc_of(module),
        graphs=tuple(graph_of(graph, store) for graph in functions_of(module, "qnn")),
        entries=tuple(_entry(graph) for graph in functions_of(module, "qnn")),
    )


def soc_of(module: ModuleOp) -> Soc:
    """The chip that a module is lowered for."""
    found = functions_of(module, "qnn")[0].attributes[SOC]
    assert isinstance(found, SocAttr)
    return Soc(name=found.soc.data, model=found.model.data, arch=found.arch.data)


def graph_of(graph: FuncOp, store: WeightStore) -> Graph:
    """One graph."""
    made = _Emitter(store, Graph(name=graph.sym_name.data))
    block = block_of(graph)
    for value, name in zip(block.args, argument_names(graph), strict=True):
        made.add(value, name, INPUT)
    made.outputs = dict(zip(return_of(graph).operands, result_names(graph), strict=True))
    for op in block.ops:
        made.add_op(op)
    return made.graph


@dataclass
class _Emitter:
    """A graph while it is made."""

    store: WeightStore
    graph: Graph
    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    outputs: Mapping[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    def add_op(self, op: Operation) -> None:
        """Adds what an op makes; weights and constants when something reads them."""
        match op:
            case WeightOp() | ConstantOp() | StaticTensorOp() | ReturnOp():
                return
            case QnnOp():
                self._node(op)
            case _:
                raise TypeError(f"'{op.name}' is no operator of QNN")

    def add(
        self,
        value: SSAValue,
        name: str,
        role: str,
        encoding: Encoding | None = None,
        data: Array | None = None,
    ) -> str:
        """Adds a tensor for a value; the answer is its name."""
        element = str(element_of(value))
        self.names[value] = self._free(name)
        self.graph.tensors[self.names[value]] = Tensor(
            name=self.names[value],
            element=NARROW.get(element, element),
            dims=extents(value) or (1,),
            role=role,
            encoding=encoding,
            data=data,
        )
        return self.names[value]

    def _free(self, wanted: str) -> str:
        """The name, or one like it that no tensor of the graph has."""
        name, at = wanted, 1
        while name in self.graph.tensors:
            name, at = f"{wanted}_{at}", at + 1
        return name

    def _node(self, op: QnnOp) -> None:
        inputs = tuple(self._read(value) for value in op.operands)
        name = f"{op.operator()}_{len(self.graph.nodes)}"
        role = OUTPUT if op.y in self.outputs else NATIVE
        label = self.outputs.get(op.y, f"{plain(location_of(op))}_{len(self.graph.nodes)}")
        output = self.add(op.y, label, role, _encoding(op))
        self.graph.nodes.append(
            Node(
                name=name,
                operator=op.operator(),
                inputs=inputs,
                outputs=(output,),
                parameters=_parameters(op, name),
                location=location_of(op),
            )
        )

    def _read(self, value: SSAValue) -> str:
        """The name of what an op reads."""
        if value in self.names:
            return self.names[value]
        owner = value.owner
        assert isinstance(owner, Operation)
        if isinstance(owner, StaticTensorOp):
            name, data = self._constant(owner.codes)
            encoding = _static_encoding(owner, self._constant(owner.scales)[1])
            return self.add(value, name, STATIC, encoding, data)
        name, data = self._constant(value)
        return self.add(value, name, STATIC, None, data)

    def _constant(self, value: SSAValue) -> tuple[str, Array]:
        """A name and the numbers of a weight or a constant."""
        owner = value.owner
        if isinstance(owner, ConstantOp):
            array = array_of(owner.value)
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            return f"constant_{digest[:12]}", array
        assert isinstance(owner, WeightOp)
        blob, name = owner.value, owner.weight_name
        label = f"weight_{blob.digest.data[7:19]}" if name is None else plain(name.data)
        return label, self.store.array(blob.digest.data, str(blob.element), blob.dims)


def _encoding(op: QnnOp) -> Encoding | None:
    """What codes of an op's result mean."""
    element = str(element_of(op.y))
    if element not in CODES or op.scale is None:
        return None
    return Encoding(scales=(op.scale.value.data,), zero_point=op.zero, bits=WIDTHS[element])


def _static_encoding(op: StaticTensorOp, scales: Array) -> Encoding:
    axis, size = op.axis.value.data, op.block_size.value.data
    real, blocks = scales.astype(np.float64), None
    if size:
        # Multiples of 1/15 of a row's largest scale: what `LPBQ` holds.
        largest = real.max(axis=1)
        blocks = np.rint(real / largest[:, None] * MOST_MULTIPLE).astype(np.uint8)
        real = largest / MOST_MULTIPLE
    return Encoding(
        scales=tuple(float(scale) for scale in real.reshape(-1)),
        zero_point=op.zero,
        bits=bits_of(element_of(op.codes)),
        axis=None if axis < 0 else axis,
        blocks=blocks,
    )


MOST_MULTIPLE: Final = 15


def _parameters(op: QnnOp, name: str) -> dict[str, tuple[str, Number] | Tensor]:
    """The operator's parameters: its properties but those that say what codes mean."""
    found: dict[str, tuple[str, Number] | Tensor] = {}
    for key, value in op.properties.items():
        match value:
            case _ if key in ("scale", "zero_point", SEGMENTS):
                continue
            case DenseArrayBase():
                found[key] = _list(ints(value), f"{name}_{key}", *op.TENSORS[key])
            case FloatAttr():
                found[key] = "f32", float(value.value.data)
            case IntegerAttr() if value.type == i1:
                found[key] = "i1", bool(value.value.data)
            case IntegerAttr():
                found[key] = op.SCALARS.get(key, "ui32"), int(value.value.data)
            case _:
                raise TypeError(f"no parameter of QNN is like {value}")
    return found


def _list(numbers: list[int], name: str, element: str, columns: int) -> Tensor:
    """A parameter of several numbers, in rows of as many."""
    dims = (len(numbers),) if columns == 1 else (len(numbers) // columns, columns)
    data = np.array(numbers, np.int32 if element == "i32" else np.uint32).reshape(dims)
    return Tensor(name=name, element=element, dims=dims, role=STATIC, data=data)


def plain(name: str) -> str:
    """A name of letters, digits and underscores."""
    return re.sub(r"\W", "_", name).strip("_") or "value"


def _entry(graph: FuncOp) -> Entry:
    ops = [op for op in block_of(graph).ops if isinstance(op, QnnOp)]
    called = [op for op in ops if not isinstance(op, StaticTensorOp)]
    return entry_of(graph, ops, (op.operator() for op in called))
