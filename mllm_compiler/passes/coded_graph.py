"""Codes in place of the real values of a graph in a vendor's ops, op by op."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects.calls import SEGMENTS, CallOp, Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.encodings import Encodings
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of, remove_dead
from mllm_compiler.passes.lowering import LoweringBuilder
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array


class CodedGraph(ABC):
    """A graph whose values become codes.

    Args:
        b: Where its ops go.
        encodings: Of its values.
    """

    QUANTIZE: ClassVar[type[CallOp]]
    """The op that makes codes of reals."""

    DEQUANTIZE: ClassVar[type[CallOp]]
    """The op that makes reals of codes."""

    def __init__(self, b: LoweringBuilder, encodings: Encodings) -> None:
        self.builder, self.encodings = b, encodings
        self.codes: dict[tuple[SSAValue, Encoding], SSAValue] = {}
        self.made: dict[SSAValue, SSAValue] = {}
        self.reals: dict[SSAValue, SSAValue] = {}

    @abstractmethod
    def element(self, encoding: Encoding) -> Attribute:
        """The element type of codes."""

    @abstractmethod
    def means(self, encoding: Encoding) -> Mapping[str, Value]:
        """An encoding as the properties of the op that makes the codes."""

    @abstractmethod
    def arguments(self, op: CallOp, result: Encoding) -> Sequence[SSAValue | None]:
        """What an op on codes reads in place of what it reads on reals."""

    @abstractmethod
    def constant(self, value: SSAValue, numbers: Array, encoding: Encoding) -> SSAValue:
        """The codes of numbers that a graph knows from the start."""

    def converted(self, value: SSAValue, encoding: Encoding) -> SSAValue:
        """The codes of a value that is computed."""
        return self.call(self.QUANTIZE, self.real(value), encoding)

    def rewrite(self) -> None:
        """Puts ops on codes in the place of those that compute on them."""
        for op in list(block_of(self.builder.graph).ops):
            self.builder.at = op
            if op in self.encodings.coded:
                self._encode(cast(CallOp, op))
            else:
                op.operands = [self.real(v) for v in op.operands]
        remove_dead(self.builder.graph)

    def _encode(self, op: CallOp) -> None:
        """Makes an op on codes beside one on reals, whose results are read no more."""
        encoding = self.encodings.of[op.results[0]]
        properties = {k: v for k, v in op.properties.items() if k != SEGMENTS}
        kinds = [tensor_of(self.element(encoding), extents(r)) for r in op.results]
        given = self.arguments(op, encoding)
        made = type(op).call(given, kinds, **{**properties, **self.means(encoding)})
        self.builder.insert(made)
        for old, new in zip(op.results, made.results, strict=True):
            self.made[old] = self.codes[old, encoding] = new

    def code(self, value: SSAValue, wanted: Encoding | None = None) -> SSAValue:
        """The codes of a value, in its own encoding or in another."""
        encoding = wanted or self.encodings.of[value]
        key = (value, encoding)
        if key not in self.codes:
            numbers = numbers_of(value, self.builder.store)
            if numbers is None:
                self.codes[key] = self.converted(value, encoding)
            else:
                self.codes[key] = self.constant(value, numbers, encoding)
        return self.codes[key]

    def call(self, kind: type[CallOp], value: SSAValue, encoding: Encoding) -> SSAValue:
        """Makes an op that gives a value codes."""
        made = tensor_of(self.element(encoding), extents(value))
        return self._inserted(kind.call([value], made, **self.means(encoding)))

    def real(self, value: SSAValue) -> SSAValue:
        """A value as reals: itself, or what its codes mean."""
        made = self.made.get(value)
        if made is None:
            return value
        if value not in self.reals:
            op = self.DEQUANTIZE.call([made], tensor_of(f32, extents(made)))
            self.reals[value] = self._inserted(op)
        return self.reals[value]

    def _inserted(self, op: Operation) -> SSAValue:
        self.builder.insert(op)
        return op.results[0]
