"""Inserts cpu ops in place of one mllm op, and keeps one packed copy of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects.builtin import i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.cpu.base import LANES, CpuOp
from mllm_compiler.dialects.cpu.weights import PANEL16, QUAD, QUADS16
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, location_of


@dataclass(frozen=True)
class Coded:
    """A matrix [N, K] of codes and what they mean.

    Attributes:
        codes: Of 8 bits, or what `cpu.unpack` makes of narrower ones.
        scale: A scalar, [N, 1], or broadcast to [N, blocks].
        zero: Likewise, or None.
        block_size: 0 where a row is one block.
    """

    codes: SSAValue
    scale: SSAValue
    zero: SSAValue | None
    block_size: int


@dataclass
class Builder:
    """Where lowered ops go.

    Attributes:
        graph: The graph that is lowered.
        at: The op that is being lowered; what is made stands before it, with its location.
        coded: The stored matrices of codes by their values as reals.
    """

    graph: FuncOp
    at: Operation
    coded: dict[SSAValue, Coded] = field(default_factory=dict[SSAValue, Coded])
    _packed: dict[tuple[SSAValue, str], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, str], SSAValue]
    )

    def insert(self, op: Operation) -> None:
        """Puts an op before the one that is being lowered."""
        op.location = self.at.location
        block_of(self.graph).insert_op_before(op, self.at)

    def call(
        self,
        operation: type[CpuOp],
        arguments: Sequence[SSAValue | None],
        result: Attribute,
        /,
        **properties: Value,
    ) -> SSAValue:
        """Makes a cpu op; the answer is its result."""
        op = operation.call(arguments, result, **properties)
        self.insert(op)
        return op.results[0]

    def packed(self, value: SSAValue, layout: str = PANEL16) -> SSAValue | None:
        """The weight in panels of 16 rows, or in quads; None where the value is computed.

        Of codes that share bytes, those panels are of bytes too.
        """
        owner = value.owner.x.owner if isinstance(value.owner, cpu.UnpackOp) else value.owner
        key = value, layout
        if key not in self._packed and isinstance(owner, cpu.WeightOp | cpu.ConstantOp):
            made = owner.in_layout(layout)
            made.location = owner.location
            block_of(self.graph).insert_op_after(made, owner)
            self._packed[key] = made.result
        return self._packed.get(key)

    def panels(self, value: SSAValue) -> SSAValue:
        """A weight [N, k..] in panels of 16 rows, packed when it runs where it is computed."""
        packed = self.packed(value)
        if packed is not None:
            return packed
        apart = self._apart(value, 1)
        panels, lanes, inner, _ = shape_of(apart)
        turned = tensor_of(element_of(value), (panels, inner, lanes))
        whole = self.alias(apart, (panels, lanes, inner))
        return self.call(cpu.TransposeOp, [whole], turned, perm=[0, 2, 1])

    def quads(self, value: SSAValue) -> SSAValue:
        """Codes [N, K] with four of a row side by side, packed when it runs where computed."""
        packed = self.packed(value, QUADS16)
        if packed is not None:
            return packed
        apart = self._apart(value, QUAD)
        panels, lanes, groups, quad = shape_of(apart)
        turned = tensor_of(element_of(value), (panels, groups, lanes, quad))
        return self.call(cpu.TransposeOp, [apart], turned, perm=[0, 2, 1, 3])

    def _apart(self, value: SSAValue, size: int) -> SSAValue:
        """A matrix [N, k..], padded with zeros, as [panels, 16, groups, size]."""
        element, (rows, *rest) = element_of(value), shape_of(value)
        inner = prod(rest, start=Dim.const(1))
        panels, groups = -(-self.fixed(value)[0] // LANES), (inner + (size - 1)) // size
        flat = self.alias(value, (rows, inner))
        whole = tensor_of(element, (Dim.const(panels * LANES), groups * size))
        padded = self.call(cpu.PadOp, [flat], whole, before=[0, 0], value=0)
        shape = (Dim.const(panels), Dim.const(LANES), groups, Dim.const(size))
        return self.alias(padded, shape)

    def fixed(self, value: SSAValue) -> list[int]:
        """The extents of a weight, which its kernel has as parameters.

        Raises:
            CompileError: `MLC-R003`, it is computed, and its shape is no fixed one.
        """
        extents = [n for d in shape_of(value) if (n := d.as_int()) is not None]
        if len(extents) == len(shape_of(value)):
            return extents
        raise CompileError(
            "MLC-R003",
            f"the weight's shape [{', '.join(map(str, shape_of(value)))}] is no fixed one",
            location=location_of(self.at),
            remedy="give the weight a fixed shape, or use the target numpy",
        )

    def alias(self, value: SSAValue, dims: Sequence[Dim]) -> SSAValue:
        """The same bytes under other dims."""
        if isinstance(value.owner, cpu.AliasOp):
            value = value.owner.x
        if tuple(dims) == shape_of(value):
            return value
        return self.call(cpu.AliasOp, [value], tensor_of(element_of(value), dims))

    def repeat(self, value: SSAValue, dims: Sequence[Dim]) -> SSAValue:
        """The value repeated to `dims`; itself where it has them."""
        if tuple(dims) == shape_of(value):
            return value
        return self.call(cpu.BroadcastOp, [value], tensor_of(element_of(value), dims))

    def as_i64(self, value: SSAValue) -> SSAValue:
        """The value as 64-bit integers."""
        if element_of(value) == i64:
            return value
        return self.call(cpu.CastOp, [value], tensor_of(i64, shape_of(value)))
