"""What every lowering of `mllm` to a vendor's dialect shares: the walk, and where new ops go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.types import ELEMENTS, extents
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.fused_parts import PARTS, take_apart
from mllm_compiler.passes.graphs import block_of, functions_of, location_of, remove_dead
from mllm_compiler.weights import WeightStore

Lowering = Callable[..., SSAValue | None]
"""Takes an op and a builder and makes its result; None where it stays until nothing reads it."""


HIDDEN: Final = -1e9
"""The score of what must not be seen: no sum with another score is above it in f32."""

HALF_HIDDEN: Final = -1e4
"""The same where reals are computed as halves: 1e9 is infinite there, and 0 times it no number."""


@dataclass
class LoweringBuilder:
    """Where lowered ops go.

    Attributes:
        graph: The graph that is lowered.
        at: The op that is being lowered; what is made stands before it, with its location.
        store: The bytes of weights.
    """

    graph: FuncOp
    at: Operation
    store: WeightStore
    _constants: dict[tuple[str, tuple[int, ...], bytes], SSAValue] = field(
        default_factory=dict[tuple[str, tuple[int, ...], bytes], SSAValue]
    )

    def insert(self, op: Operation) -> None:
        """Puts an op before the one that is being lowered."""
        op.location = self.at.location
        block_of(self.graph).insert_op_before(op, self.at)

    def constant(self, array: NDArray[np.generic]) -> SSAValue:
        """A constant; equal ones of a graph are one, at its start."""
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            made: ConstantOp | WeightOp
            if array.size <= LARGEST_CONSTANT:
                made = ConstantOp.of(array)
            else:
                blob = BlobAttr.of(self.store.add(array), ELEMENTS[array.dtype], array.shape)
                made = WeightOp(blob)
            block = block_of(self.graph)
            assert block.first_op is not None
            block.insert_op_before(made, block.first_op)
            self._constants[key] = made.results[0]
        return self._constants[key]

    def real(self, number: float) -> SSAValue:
        """A constant scalar of f32."""
        return self.constant(np.array(number, np.float32))


@dataclass
class TensorBuilder(LoweringBuilder, ABC):
    """A builder with the few operators that every vendor has; shapes are static.

    Attributes:
        hidden: What masks add to the score of a key that a query must not see.
    """

    hidden: float = HIDDEN

    @abstractmethod
    def reshape(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """The same elements in another shape; x where it has that shape."""

    @abstractmethod
    def permute(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order."""

    @abstractmethod
    def concat(self, parts: Sequence[SSAValue], axis: int) -> SSAValue:
        """Tensors behind one another."""

    @abstractmethod
    def cast(self, x: SSAValue, element: Attribute) -> SSAValue:
        """Elements in another type."""

    @abstractmethod
    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b."""

    @abstractmethod
    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A - b."""

    @abstractmethod
    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product of elements."""

    @abstractmethod
    def minimum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller of elements."""

    @abstractmethod
    def product(self, a: SSAValue, b: SSAValue, *, transpose_b: bool = False) -> SSAValue:
        """A product of matrices."""

    @abstractmethod
    def linear(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None) -> SSAValue:
        """A product with the rows of a weight."""

    @abstractmethod
    def softmax(self, x: SSAValue) -> SSAValue:
        """The softmax along the last axis."""

    def transpose(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order; a reshape where only axes of extent 1 move."""
        dims = extents(x)
        moved = [p for p in perm if dims[p] != 1]
        if moved == sorted(moved):
            return self.reshape(x, [dims[p] for p in perm])
        return self.permute(x, perm)


BuilderT = TypeVar("BuilderT", bound=LoweringBuilder)


def lower_graphs(
    module: ModuleOp,
    store: WeightStore,
    *,
    target: str,
    lowerings: Mapping[type[Operation], Lowering],
    builder: Callable[[FuncOp, Operation, WeightStore], BuilderT],
    own: type[Operation],
) -> None:
    """Lowers the graphs of a module in place, in their order.

    Args:
        module: The module.
        store: The bytes of weights.
        target: What an error names.
        lowerings: The function that lowers each op; other ops are taken apart before.
        builder: Makes the builder of a graph.
        own: What ops of the vendor's dialect derive from; they stay, as weights and constants do.

    Raises:
        CompileError: MLC-R001, an op has no lowering.
    """
    kept = (WeightOp, ConstantOp, ReturnOp, own)
    for graph in functions_of(module, target):
        take_apart(graph, PARTS.keys() - lowerings.keys())
        ops = [op for op in block_of(graph).ops if not isinstance(op, kept)]
        if ops:
            made = builder(graph, ops[0], store)
            for op in ops:
                _lower(op, made, target, lowerings)
        remove_dead(graph)


def _lower(
    op: Operation,
    builder: LoweringBuilder,
    target: str,
    lowerings: Mapping[type[Operation], Lowering],
) -> None:
    lowering = lowerings.get(type(op))
    if lowering is None:
        raise CompileError(
            "MLC-R001",
            f"'{op.name}' has no home on '{target}': no operators",
            location=location_of(op),
            remedy="use the target c, or replace the op in the model",
        )
    builder.at = op
    made = lowering(op, builder)
    if made is None:
        return
    op.results[0].replace_all_uses_with(made)
    op.detach()
    op.erase()
