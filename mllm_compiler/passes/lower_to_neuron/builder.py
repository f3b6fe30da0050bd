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
        """Makes an op with the results of an operator; numbers get one axis."""
        given = [self.with_axis(value) for value in operands]
        made = operation.call(given, op.result_types, **scalars)
        self.insert(made)
        return [*made.results]

    def with_axis(self, value: SSAValue) -> SSAValue:
        """A constant without axes as one of [1]."""
        if rank_of(value) or not isinstance(value.owner, ConstantOp):
            return value
        return self.constant(array_of(value.owner.value).reshape(1))

    def zeros(self, count: int) -> SSAValue:
        """A bias that changes nothing."""
        return self.constant(np.zeros(count, np.float32))
