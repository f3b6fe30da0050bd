"""Activations as codes: made once for all products that read them in one format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, f64
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import ConstantOp, DynamicQuantizeOp, QuantizeOp
from mllm_compiler.dialects.types import dtype_of, element_of, i8, rank_of
from mllm_compiler.passes.samples import Samples
from mllm_compiler.quantisation.recipe import STATIC, Format
from mllm_compiler.reference import Array, Frame, meaning_of
from mllm_compiler.reference.mllm_quant import dequantized, spread

LARGEST = 127
"""The largest code of an activation; they are symmetric."""

REACH = "mllm.reach"
"""What an op that makes codes carries where samples were seen: see `Samples.reach`."""


@dataclass(frozen=True)
class Rows:
    """Activations as codes.

    Attributes:
        codes: The codes, as `x`.
        scale: One for all, one for each row, or one for each block of it.
        ops: What makes them and stands in no block yet.
        seen: What the codes mean in a frame where the activations are known.
    """

    codes: SSAValue
    scale: SSAValue
    ops: tuple[Operation, ...]
    seen: Callable[[Frame], Array]


@dataclass
class QuantisedRows:
    """The codes of activations.

    Attributes:
        samples: Where static scales come from.
    """

    samples: Samples
    _made: dict[tuple[SSAValue, str, int | None], Rows] = field(
        default_factory=dict[tuple[SSAValue, str, int | None], Rows]
    )

    def of(self, x: SSAValue, form: Format, block_size: int | None) -> Rows:
        """The codes of activations for a weight whose blocks have a size."""
        if form.activations == STATIC:
            block_size = None
        key = (x, form.activations, block_size)
        if key in self._made:
            return replace(self._made[key], ops=())
        made = self._static(x) if form.activations == STATIC else _dynamic(x, block_size)
        if self.samples.frames:
            reach = DenseArrayBase.from_list(f64, self.samples.reach(x))
            made.ops[-1].attributes[REACH] = reach
        self._made[key] = made
        return made

    def _static(self, x: SSAValue) -> Rows:
        lowest, largest = self.samples.range(x)
        top = max(largest, -lowest) / LARGEST
        scale = ConstantOp.of(np.array(top or 1, dtype_of(element_of(x))))
        codes = QuantizeOp(x, scale.result, None, i8)

        def seen(frame: Frame) -> Array:
            values = (frame.values[x], np.asarray(top or 1, frame.values[x].dtype))
            return dequantized(_run(codes, frame, *values)[0], values[1], None, values[0].dtype)

        return Rows(codes.result, scale.result, (scale, codes), seen)


def _dynamic(x: SSAValue, block_size: int | None) -> Rows:
    made = DynamicQuantizeOp(x, i8, symmetric=True, axis=rank_of(x) - 1, block_size=block_size)

    def seen(frame: Frame) -> Array:
        array = frame.values[x]
        codes, scale = _run(made, frame, array)
        wide = spread(scale, array.shape, array.ndim - 1, block_size)
        return dequantized(codes, wide, None, array.dtype)

    return Rows(made.codes, made.scale, (made,), seen)


def _run(op: Operation, frame: Frame, *operands: Array) -> list[Array]:
    meaning = meaning_of(op)
    assert meaning is not None
    return list(meaning(op, operands, frame))
