"""Builds an ONNX graph op by op: nodes with unique names, constants once, dims as tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.backends.onnx.types import DTYPES, shape_as_onnx, type_of
from mllm_compiler.dialects.dims import Atom, Dim
from mllm_compiler.dialects.mllm import BlobAttr
from mllm_compiler.dialects.onnx_schemas import schema_of
from mllm_compiler.dialects.types import dtype_of
from mllm_compiler.errors import CompileError
from mllm_compiler.weights import WeightStore, nbytes_of

Value = ir.Value
Argument = ir.Value | None
"""An input of a node; None where an optional one is absent."""

Plain = int | float | str | Sequence[int] | Sequence[float] | ir.TensorProtocol | ir.Graph
"""What an attribute may be."""


@dataclass
class Builder:
    """An ONNX graph under construction.

    Attributes:
        opset: The version of the standard to write.
        store: Where the bytes of weights lie.
        sizes: The input, and its axis, that tells the value of each symbol.
        scope: The name of the op that is written.
        nodes: The nodes so far, in order.
        weights: The initialisers so far.
        values: The ONNX value of each value of the IR.
        domains: The operator sets that are used, with their versions.
        outside: Where weights of some digests lie in a file beside the model: name and offset.
    """

    opset: int
    store: WeightStore
    sizes: dict[str, tuple[Value, int]] = field(default_factory=dict[str, tuple[Value, int]])
    scope: str = ""
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    weights: dict[str, Value] = field(default_factory=dict[str, Value])
    values: dict[SSAValue, Value] = field(default_factory=dict[SSAValue, Value])
    domains: dict[str, int] = field(default_factory=dict[str, int])
    outside: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    _once: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    _taken: dict[str, int] = field(default_factory=dict[str, int])

    def __getitem__(self, value: SSAValue) -> Value:
        """The ONNX value of a value of the IR."""
        return self.values[value]

    def node(self, operator: str, *inputs: Argument, **attributes: Plain) -> Value:
        """Adds a node with one result and answers with that."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(
        self, operator: str, outputs: int, *inputs: Argument, **attributes: Plain
    ) -> Sequence[Value]:
        """Adds a node and answers with its results.

        Raises:
            CompileError: MLC-U014, the opset has no such operator, or not for such types.
        """
        types = self._types(operator, inputs)
        given = ir.convenience.convert_attributes(attributes)
        made = self.whole(operator, inputs, given, outputs, f"{self.scope}/{operator}")
        for value, type in zip(made, types, strict=False):
            value.type = type
        return made

    def _types(self, operator: str, inputs: Sequence[Argument]) -> list[ir.TypeProtocol | None]:
        """The types of an operator's results, where they are those of its inputs.

        Raises:
            CompileError: MLC-U014, the opset has no such operator, or not for such types.
        """
        schema = schema_of(f"onnx.{operator}", self.opset)
        if schema is None:
            raise self.missing(f"'{operator}'")
        known: dict[str, ir.TypeProtocol] = {}
        for at, value in enumerate(inputs):
            if value is None or value.type is None:
                continue
            formal, kind = schema.inputs[min(at, len(schema.inputs) - 1)], str(value.type.dtype)
            allowed = schema.constraints.get(formal.type, {formal.type})
            if f"tensor({kind.lower()})" not in allowed:
                raise self.missing(f"'{operator}' of {kind.lower()}")
            known.setdefault(formal.type, value.type)
        return [known.get(formal.type) for formal in schema.outputs]

    def missing(self, what: str) -> CompileError:
        """What to raise where the opset lacks something."""
        return CompileError(
            "MLC-U014",
            f"opset {self.opset} has no {what}",
            location=self.scope or what,
            remedy="export with a newer --opset",
        )

    def whole(
        self,
        operator: str,
        inputs: Sequence[Argument],
        attributes: Sequence[ir.Attr],
        outputs: int,
        name: str,
        domain: str = "",
    ) -> Sequence[Value]:
        """Adds a node whose attributes have their kinds, and answers with its results."""
        name = self.unique(name)
        made = ir.Node(domain, operator, inputs, attributes, num_outputs=outputs, name=name)
        for at, output in enumerate(made.outputs):
            output.name = f"{name}_output_{at}"
        self.nodes.append(made)
        return made.outputs

    def inside(self) -> Builder:
        """The builder of a graph inside a node: it sees what is here, and is not seen from here."""
        return replace(self, nodes=[], values=dict(self.values), _once=dict(self._once))

    def own(self, value: Value, taken: Sequence[Value]) -> Value:
        """A value that a node makes and that is not taken: itself, or a copy of it."""
        if any(value in node.outputs for node in self.nodes) and value not in taken:
            return value
        copied = self.node("Identity", value)
        copied.type, copied.shape = value.type, value.shape
        return copied

    def bytes_of(self, blob: BlobAttr) -> NDArray[np.generic]:
        """The array of a weight, mapped.

        Raises:
            CompileError: MLC-U013, the store does not know it.
        """
        digest = blob.digest.data
        if digest not in self.store:
            raise CompileError(
                "MLC-U013",
                "the bytes of a weight are not known",
                location=self.scope or digest,
                remedy="name the model that the dump was made from with --weights",
            )
        return self.store.array(digest, str(blob.element), blob.dims)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What is made when a key is first asked for."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def unique(self, name: str) -> str:
        """The name, with a number where it is taken."""
        count = self._taken.get(name, 0)
        self._taken[name] = count + 1
        return self.unique(f"{name}_{count}") if count else name

    def initialiser(self, tensor: ir.TensorProtocol, name: str) -> Value:
        """Adds a tensor under a name that is not taken."""
        unique = self.unique(name)
        value = Value(name=unique, type=ir.TensorType(tensor.dtype), const_value=tensor)
        value.shape = ir.Shape(tensor.shape.numpy())
        tensor.name = unique
        self.weights[unique] = value
        return value

    def weight(self, blob: BlobAttr, name: str) -> Value:
        """A weight, from the store or in the file where it lies."""
        if blob.digest.data not in self.outside:
            return self.initialiser(ir.tensor(self.bytes_of(blob)), name)
        location, offset = self.outside[blob.digest.data]
        size = nbytes_of(str(blob.element), blob.dims)
        kind, shape = DTYPES[blob.element], ir.Shape(blob.dims)
        tensor = ir.ExternalTensor(location, offset, size, kind, shape=shape, name=name)
        return self.initialiser(tensor, name)

    def constant(self, array: NDArray[np.generic]) -> Value:
        """A small tensor; equal ones are one."""
        key = (str(array.dtype), array.shape, array.tobytes())
        return self.once(key, lambda: self.initialiser(ir.tensor(array), "constant"))

    def scalar(self, number: float, element: Attribute) -> Value:
        """A tensor without dims."""
        return self.constant(np.array(number, dtype_of(element)))

    def integers(self, *numbers: int) -> Value:
        """A vector of i64."""
        return self.constant(np.array(numbers, np.int64))

    def dims(self, dims: Sequence[Dim | int]) -> Value:
        """A vector of extents, counted where the model runs if they are not constant."""
        exact = [Dim.of(d) for d in dims]
        known = [n for d in exact if (n := d.as_int()) is not None]
        if len(known) == len(exact):
            return self.integers(*known)
        if len(exact) == 1:
            return self.once(exact[0], lambda: self._extent(exact[0]))
        return self.once(
            tuple(exact), lambda: self.node("Concat", *(self.dims([d]) for d in exact), axis=0)
        )

    def size(self, dim: Dim | int) -> Value:
        """An extent as a scalar."""
        known = Dim.of(dim).as_int()
        if known is not None:
            return self.constant(np.array(known, np.int64))
        return self.once(
            ("scalar", dim), lambda: self.node("Squeeze", self.dims([dim]), self.integers(0))
        )

    def reshape(self, x: Value, before: Sequence[Dim], after: Sequence[Dim | int]) -> Value:
        """X under other dims: those that keep their place are copied, one may follow from all."""
        exact = [Dim.of(d) for d in after]
        if list(before) == exact:
            return x
        shape: list[int] = []
        for at, dim in enumerate(exact):
            kept = at < len(before) and before[at] == dim and not dim.unknown
            size = dim.as_int()
            shape.append(size if size is not None else 0 if kept else -1)
        empty = any(d.as_int() == 0 for d in exact)
        if shape.count(-1) > 1 or empty:
            return self.node("Reshape", x, self.dims(exact), allowzero=int(empty))
        return self.node("Reshape", x, self.integers(*shape))

    def expand(self, x: Value, before: Sequence[Dim], after: Sequence[Dim]) -> Value:
        """X repeated along axes of extent 1; an axis that stays is asked for as 1."""
        padded = (*(Dim.const(1),) * (len(after) - len(before)), *before)
        wanted = [Dim.const(1) if a == b else b for a, b in zip(padded, after, strict=True)]
        return self.node("Expand", x, self.dims(wanted))

    def cast(self, x: Value, element: Attribute) -> Value:
        """X in another element type."""
        return self.node("Cast", x, to=int(DTYPES[element]))

    def typed(self, source: SSAValue, value: Value) -> None:
        """Binds a value of the IR to its ONNX value, which takes its type."""
        value.type, value.shape = type_of(source.type), shape_as_onnx(source.type)
        self.values[source] = value

    def _extent(self, dim: Dim) -> Value:
        symbol = dim.as_symbol()
        if symbol is not None:
            value, axis = self.sizes[symbol]
            return self.node("Shape", value, start=axis, end=axis + 1)
        total: Value | None = None
        for monomial, coefficient in dim.terms:
            term = self._monomial(monomial, coefficient)
            total = term if total is None else self.node("Add", total, term)
        assert total is not None
        return total

    def _monomial(self, factors: Sequence[Atom], coefficient: int) -> Value:
        if not factors:
            return self.integers(coefficient)
        product = self._atom(factors[0])
        for factor in factors[1:]:
            product = self.node("Mul", product, self._atom(factor))
        return (
            product if coefficient == 1 else self.node("Mul", product, self.integers(coefficient))
        )

    def _atom(self, atom: Atom) -> Value:
        if not atom.op:
            return self.dims([Dim.symbol(atom.name)])
        assert atom.lhs is not None
        assert atom.rhs is not None
        left, right = self.dims([atom.lhs]), self.dims([atom.rhs])
        if atom.op in ("min", "max"):
            return self.node(atom.op.capitalize(), left, right)
        rest = self.node("Mod", left, right)
        return rest if atom.op == "mod" else self.node("Div", self.node("Sub", left, rest), right)
