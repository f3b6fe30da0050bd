"""Weights as codes: made once, one matrix at a time, and kept in the store's own file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import f16
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects.mllm import BlobAttr, CastOp, DequantizeOp, EmbeddingOp, WeightOp
from mllm_compiler.dialects.types import ELEMENTS, element_of, is_float, rank_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.quantisation.grid import Codes, Floats, Grid
from mllm_compiler.weights import DTYPES, WeightStore

Choose = Callable[[Floats, Grid], Codes]
"""Codes of a matrix [N, K]."""

LOSS = "mllm.loss"
"""What codes carry whose loss was measured: see `sensitivities`."""


@dataclass(frozen=True)
class CodedWeight:
    """A weight as ops: codes [N, K], scales [N, blocks] in f16, and zero points like those."""

    codes: WeightOp
    scale: WeightOp
    zero: WeightOp | None

    @property
    def values(self) -> tuple[SSAValue, SSAValue, SSAValue | None]:
        """Codes, scales, zero points."""
        return self.codes.result, self.scale.result, self.zero and self.zero.result

    @property
    def ops(self) -> list[WeightOp]:
        """The ops, none of which stands in a block yet."""
        return [op for op in (self.codes, self.scale, self.zero) if op is not None]


def looked_up(
    tables: Sequence[WeightOp], ids: SSAValue, block_size: int | None, element: Attribute
) -> list[Operation]:
    """The rows of a table, or of its codes, scales and zero points, as numbers of a type."""
    parts = [EmbeddingOp(table.result, ids) for table in tables]
    found, *sides = (part.result for part in parts)
    if not sides:
        same = element_of(found) == element
        return [*parts, *([] if same else [CastOp(found, element)])]
    axis = None if block_size is None else rank_of(found) - 1
    zero = sides[1] if len(sides) == 2 else None
    numbers = DequantizeOp(found, sides[0], zero, axis=axis, block_size=block_size, element=element)
    return [*parts, numbers]


@dataclass
class WeightCodes:
    """The codes of weights; those of several products, or graphs, are chosen once.

    Attributes:
        store: Where weights lie and codes go.
    """

    store: WeightStore
    _made: dict[tuple[BlobAttr, Grid], tuple[BlobAttr, ...]] = field(
        default_factory=dict[tuple[BlobAttr, Grid], tuple[BlobAttr, ...]]
    )

    def known(self, value: SSAValue) -> WeightOp | None:
        """The weight that a value is, where its bytes are known and are real numbers."""
        weight = made_by(value, WeightOp)
        if weight is None or not is_float(weight.value.element):
            return None
        return weight if weight.value.digest.data in self.store else None

    def has(self, weight: WeightOp, grid: Grid) -> bool:
        """Whether a weight was given codes of a grid."""
        return (weight.value, grid) in self._made

    def matrix(self, weight: WeightOp) -> Floats:
        """The numbers of a weight in single precision."""
        blob = weight.value
        array = self.store.array(blob.digest.data, str(blob.element), blob.dims)
        return array.astype(np.float32, copy=False)

    def coded(self, weight: WeightOp, grid: Grid, choose: Choose) -> CodedWeight:
        """The ops of a weight's codes."""
        key = (weight.value, grid)
        if key not in self._made:
            self._made[key] = self._kept(choose(self.matrix(weight), grid), grid)
            self.store.release()
        name = None if weight.weight_name is None else weight.weight_name.data
        names = [name, *(None if name is None else f"{name}.{s}" for s in ("scale", "zero"))]
        made = [WeightOp(blob, n) for blob, n in zip(self._made[key], names, strict=False)]
        return CodedWeight(made[0], made[1], made[2] if len(made) == 3 else None)

    def halved(self, weight: WeightOp) -> WeightOp:
        """A weight in f16."""
        half = self.matrix(weight).astype(np.float16)
        blob = BlobAttr.of(self.store.add(half), f16, weight.value.dims)
        return WeightOp(blob, None if weight.weight_name is None else weight.weight_name.data)

    def array_of(self, coded: CodedWeight, grid: Grid) -> Floats:
        """What a weight's codes mean, in single precision."""
        codes, scale, *zero = (
            self.store.array(op.value.digest.data, str(op.value.element), op.value.dims)
            for op in coded.ops
        )
        kind = np.int8 if grid.symmetric else np.uint8
        plain = [array.astype(kind) for array in (codes, *zero)]
        point = plain[1] if len(plain) == 2 else None
        return Codes(grid, plain[0], scale.astype(np.float32), point).dequantised()

    def _kept(self, codes: Codes, grid: Grid) -> tuple[BlobAttr, ...]:
        """The handles of codes, scales and, where there are any, zero points."""
        dtype = DTYPES[f"{'i' if grid.symmetric else 'ui'}{grid.bits}"]
        arrays = [codes.codes.astype(dtype), codes.scale.astype(np.float16)]
        if codes.zero is not None:
            arrays.append(codes.zero.astype(dtype))
        return tuple(BlobAttr.of(self.store.add(a), ELEMENTS[a.dtype], a.shape) for a in arrays)
