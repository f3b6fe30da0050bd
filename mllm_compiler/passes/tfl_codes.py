"""Codes in place of the real values of a graph in tfl ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import numpy as np
from xdsl.dialects.builtin import FloatAttr, f32, i8, i16
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.calls import CallOp, Value
from mllm_compiler.dialects.mllm.contract import integer
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import PER_AXIS, encoding, moved, operator
from mllm_compiler.dialects.types import element_of
from mllm_compiler.passes.coded_graph import CodedGraph
from mllm_compiler.passes.encodings import Encodings
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.matching import made_by
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore


class TflCodes(CodedGraph):
    """A graph in tfl ops; codes of TFLite are signed.

    Args:
        graph: The graph.
        encodings: Of its values.
        store: The bytes of weights.
    """

    QUANTIZE: ClassVar[type[CallOp]] = tfl.QuantizeOp
    DEQUANTIZE: ClassVar[type[CallOp]] = tfl.DequantizeOp

    def __init__(self, graph: FuncOp, encodings: Encodings, store: WeightStore) -> None:
        first = block_of(graph).first_op
        assert first is not None
        self.b = Builder(graph, first, store)
        super().__init__(self.b, encodings)

    def element(self, encoding: Encoding) -> Attribute:
        """The element type of codes."""
        return i8 if encoding.bits == 8 else i16

    def means(self, encoding: Encoding) -> Mapping[str, Value]:
        """An encoding as the properties of the op that makes the codes."""
        return {"scale": FloatAttr(encoding.scale, f32), "zero_point": integer(encoding.zero_point)}

    def constant(self, value: SSAValue, numbers: Array, encoding: Encoding) -> SSAValue:
        """Codes and what they mean, as one constant."""
        held = [self.b.constant(encoding.encoded(numbers)), None]
        means = self.means(encoding)
        return self.b.call(tfl.PseudoQconstOp, held, numbers.shape, None, **means)

    def arguments(self, op: CallOp, result: Encoding) -> list[SSAValue | None]:
        """Codes of one scale, or of a weight and a bias."""
        if operator(op) in PER_AXIS:
            return self._product(cast(TflOp, op), result.bits)
        shared = set(moved(op))

        def argument(value: SSAValue | None) -> SSAValue | None:
            if value is None or element_of(value) != f32:
                return value
            return self.code(value, result if value in shared else None)

        return [argument(value) for value in op.arguments()]

    def _product(self, op: TflOp, bits: int) -> list[SSAValue | None]:
        """Codes, those of a weight, a scale for each channel, and a bias in steps of both."""
        x, weight, bias = op.arguments()
        assert x is not None
        assert weight is not None
        codes = self.code(x)
        weights = self._weights(op, weight)
        maker = weights.owner
        assert isinstance(maker, tfl.PseudoQconstOp)
        assert maker.scales is not None
        scales = numbers_of(maker.scales, self.b.store)
        step = encoding(codes)
        assert scales is not None
        assert step is not None
        return [codes, weights, self._bias(bias, step[0] * scales.reshape(-1), bits)]

    def _weights(self, op: TflOp, weight: SSAValue) -> SSAValue:
        real = made_by(weight, tfl.DequantizeOp)
        if real is not None:
            return real.x
        axis = 3 if isinstance(op, tfl.DepthwiseConv2dOp) else 0
        numbers = numbers_of(weight, self.b.store)
        assert numbers is not None
        others = tuple(i for i in range(numbers.ndim) if i != axis)
        scale = np.maximum(np.abs(numbers).max(others, keepdims=True) / 127, 1e-9)
        codes = np.rint(numbers / scale).astype(np.int8)
        return self._rows(codes, scale.reshape(-1, 1).astype(np.float32), axis)

    def _bias(self, bias: SSAValue | None, steps: Array, bits: int) -> SSAValue | None:
        kind = np.int32 if bits == 8 else np.int64
        limits = np.iinfo(np.int32)
        if bias is None:
            # TFLite sums 16 bits with a bias of 64 bits.
            return None if bits == 8 else self._rows(np.zeros(len(steps), kind), _column(steps))
        numbers = numbers_of(bias, self.b.store)
        assert numbers is not None
        codes = np.rint(numbers.reshape(-1).astype(np.float64) / steps)
        return self._rows(np.clip(codes, limits.min, limits.max).astype(kind), _column(steps))

    def _rows(self, codes: Array, scales: Array, axis: int = 0) -> SSAValue:
        held = [self.b.constant(codes), self.b.constant(scales)]
        return self.b.call(tfl.PseudoQconstOp, held, codes.shape, None, quantized_dimension=axis)


def _column(steps: Array) -> Array:
    """The scales of a bias, a row each."""
    return steps.reshape(-1, 1).astype(np.float32)
