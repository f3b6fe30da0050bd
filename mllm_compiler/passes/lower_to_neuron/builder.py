"""Inserts neuron ops in place of one operator of TFLite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.mllm import ConstantOp, array_of
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import encoding
from mllm_compiler.dialects.types import rank_of
from mllm_compiler.passes.lowering import LoweringBuilder


@dataclass
class Builder(LoweringBuilder):
    """Where ops go.

    Attributes:
        adapter: The version of MediaTek's library.
    """

    adapter: tuple[int, ...] = ()

    def call(
        self,
        operation: type[NeuronOp],
        op: TflOp,
        operands: Sequence[SSAValue],
        /,
        **scalars: Value,
    ) -> list[SSAValue]:
        """Makes an op with the results of an operator, and their encoding; numbers get one axis."""
        given = [self.with_axis(value) for value in operands]
        means = {k: v for k, v in op.properties.items() if k in ("scale", "zero_point")}
        made = operation.call(given, op.result_types, **scalars, **means)
        self.insert(made)
        return [*made.results]

    def with_axis(self, value: SSAValue) -> SSAValue:
        """A constant without axes as one of [1]."""
        if rank_of(value) or not isinstance(value.owner, ConstantOp):
            return value
        return self.constant(array_of(value.owner.value).reshape(1))

    def zeros(self, count: int, op: TflOp) -> SSAValue:
        """A bias that changes nothing of an operator, on reals or on codes."""
        coded = encoding(op.results[0]) is not None
        return self.constant(np.zeros(count, np.int32 if coded else np.float32))
