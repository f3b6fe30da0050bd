"""Codes in place of the real values of a graph in qnn ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.calls import CallOp, Value
from mllm_compiler.dialects.qnn import StaticTensorOp
from mllm_compiler.dialects.qnn.base import arch_of
from mllm_compiler.dialects.qnn.linalg import WIDE
from mllm_compiler.dialects.qnn.vision import ConvolutionOp
from mllm_compiler.dialects.types import element_of, ui8, ui16
from mllm_compiler.passes.coded_graph import CodedGraph
from mllm_compiler.passes.encodings import Encodings
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.qnn_forms import MOVES
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore

LEAST: Final = np.float32(1e-9)
"""The least scale."""


class QnnCodes(CodedGraph):
    """A graph in qnn ops; codes of HTP are unsigned.

    Args:
        graph: The graph.
        encodings: Of its values.
        store: The bytes of weights.
    """

    QUANTIZE: ClassVar[type[CallOp]] = qnn.QuantizeOp
    DEQUANTIZE: ClassVar[type[CallOp]] = qnn.DequantizeOp

    def __init__(self, graph: FuncOp, encodings: Encodings, store: WeightStore) -> None:
        first = block_of(graph).first_op
        assert first is not None
        self.b = Builder(graph, first, store)
        super().__init__(self.b, encodings)

    def element(self, encoding: Encoding) -> Attribute:
        """The element type of codes."""
        return ui8 if encoding.bits == 8 else ui16

    def means(self, encoding: Encoding) -> Mapping[str, Value]:
        """An encoding as the properties of the op that makes the codes."""
        half = 1 << (encoding.bits - 1)
        return {"scale": float(encoding.scale), "zero_point": encoding.zero_point + half}

    def constant(self, value: SSAValue, numbers: Array, encoding: Encoding) -> SSAValue:
        """Codes as a static tensor."""
        half = 1 << (encoding.bits - 1)
        codes = encoding.encoded(numbers).astype(np.int32) + half
        dtype = np.uint8 if encoding.bits == 8 else np.uint16
        scale, zero = np.array([encoding.scale], np.float32), encoding.zero_point + half
        return self._static(codes.astype(dtype), scale, like=value, zero_point=zero)

    def converted(self, value: SSAValue, encoding: Encoding) -> SSAValue:
        """Codes of codes, or of reals."""
        if value in self.made:
            return self.call(qnn.ConvertOp, self.made[value], encoding)
        return super().converted(value, encoding)

    def arguments(self, op: CallOp, result: Encoding) -> list[SSAValue | None]:
        """Codes of one scale, or of a weight and a bias."""
        if isinstance(op, qnn.FullyConnectedOp | ConvolutionOp):
            return self._product(op)
        wanted = result if isinstance(op, MOVES) else None
        found = [
            v if v is None or element_of(v) != f32 else self.code(v, wanted) for v in op.arguments()
        ]
        wide = isinstance(op, qnn.MatMulOp | qnn.LayerNormOp) and result.bits == 16
        if wide and arch_of(op) < WIDE:
            found[1] = self.code(op.operands[1], self._narrow(op.operands[1]))
        return found

    def _narrow(self, value: SSAValue) -> Encoding:
        """The encoding in 8 bits of what has 16 bits around 0."""
        scale = self.encodings.of[value].scale * ((1 << 16) - 1) / ((1 << 8) - 1)
        return Encoding(scale, 0, 8)

    def _product(self, op: qnn.FullyConnectedOp | ConvolutionOp) -> list[SSAValue | None]:
        """Codes, those of a weight, and a bias in steps of both."""
        weights = op.weights if isinstance(op, qnn.FullyConnectedOp) else self._filter(op.weights)
        maker = weights.owner
        assert isinstance(maker, StaticTensorOp)
        scales = numbers_of(maker.scales, self.b.store)
        assert scales is not None
        rows = scales.max(axis=1) if scales.ndim == 2 else scales
        bias = None if op.bias is None else numbers_of(op.bias, self.b.store)
        made = None
        if bias is not None:
            steps = np.maximum(rows * np.float32(self.encodings.of[op.x].scale), LEAST * LEAST)
            limits = np.iinfo(np.int32)
            codes = np.rint(bias.astype(np.float64) / steps).clip(limits.min, limits.max)
            made = self._static(codes.astype(np.int32), steps.astype(np.float32), axis=0)
        return [self.code(op.x), weights, made]

    def _filter(self, weights: SSAValue) -> SSAValue:
        """A filter [h, w, ., N] in 8 bits, a scale for each output channel."""
        numbers = numbers_of(weights, self.b.store)
        assert numbers is not None
        scales = np.maximum(np.abs(numbers).max((0, 1, 2)) / 127, LEAST).astype(np.float32)
        codes = np.rint(numbers / scales).astype(np.int8)
        return self._static(codes, scales, like=weights, axis=3)

    def _static(
        self, codes: Array, scales: Array, *, like: SSAValue | None = None, **options: Any
    ) -> SSAValue:
        held = self.b.constant(codes) if like is None else self.b.weight(codes, like)
        parts = [held, self.b.constant(scales)]
        return self.b.call(StaticTensorOp, parts, codes.shape, element_of(held), **options)
