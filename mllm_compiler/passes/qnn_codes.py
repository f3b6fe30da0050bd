"""Codes in place of the real values of a graph in qnn ops."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.qnn import QnnOp, StaticTensorOp
from mllm_compiler.dialects.qnn.base import arch_of
from mllm_compiler.dialects.qnn.vision import ConvolutionOp
from mllm_compiler.dialects.types import element_of, extents, ui8, ui16
from mllm_compiler.passes.encodings import Encodings
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.qnn_forms import MOVES
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore

WIDE: Final = 73
"""The first HTP that multiplies two matrices of 16 bits, and has a LayerNorm with such a gain."""

LEAST: Final = np.float32(1e-9)
"""The least scale."""


class CodedGraph:
    """A graph whose values become codes, op by op; codes of HTP are unsigned.

    Args:
        graph: The graph.
        encodings: Of its values.
        store: The bytes of weights.
    """

    def __init__(self, graph: FuncOp, encodings: Encodings, store: WeightStore) -> None:
        self.graph, self.encodings = graph, encodings
        first = block_of(graph).first_op
        assert first is not None
        self.b = Builder(graph, first, store)
        self.codes: dict[tuple[SSAValue, Encoding], SSAValue] = {}
        self.made: dict[SSAValue, SSAValue] = {}
        self.reals: dict[SSAValue, SSAValue] = {}

    def rewrite(self) -> None:
        """Puts ops on codes in the place of those that HTP has on codes."""
        for op in list(block_of(self.graph).ops):
            self.b.at = op
            if isinstance(op, QnnOp) and op in self.encodings.coded:
                self._encode(op)
            elif isinstance(op, QnnOp | ReturnOp) and not isinstance(op, StaticTensorOp):
                op.operands = [self._real(v) for v in op.operands]

    def _encode(self, op: QnnOp) -> None:
        """Makes an op on codes beside one on reals, whose result is read no more."""
        encoding = self.encodings.of[op.y]
        options = {
            k: v for k, v in op.properties.items() if not k.endswith("SegmentSizes")
        } | _named(encoding)
        arguments = self._arguments(op, encoding)
        made = self.b.call(type(op), arguments, extents(op.y), _element(encoding), **options)
        self.made[op.y] = self.codes[op.y, encoding] = made

    def _arguments(self, op: QnnOp, result: Encoding) -> list[SSAValue | None]:
        if isinstance(op, qnn.FullyConnectedOp | ConvolutionOp):
            return self._product(op)
        wanted = result if isinstance(op, MOVES) else None
        found = [
            v if v is None or element_of(v) != f32 else self._code(v, wanted)
            for v in op.arguments()
        ]
        wide = isinstance(op, qnn.MatMulOp | qnn.LayerNormOp) and result.bits == 16
        if wide and arch_of(op) < WIDE:
            found[1] = self._code(op.operands[1], self._narrow(op.operands[1]))
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
        return [self._code(op.x, None), weights, made]

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

    def _code(self, value: SSAValue, wanted: Encoding | None) -> SSAValue:
        """The codes of a value, in its own encoding or in another."""
        encoding = wanted or self.encodings.of[value]
        key = (value, encoding)
        if key in self.codes:
            return self.codes[key]
        numbers = numbers_of(value, self.b.store)
        if numbers is not None:
            half = 1 << (encoding.bits - 1)
            codes = encoding.encoded(numbers).astype(np.int32) + half
            dtype = np.uint8 if encoding.bits == 8 else np.uint16
            scale, zero = np.array([encoding.scale], np.float32), encoding.zero_point + half
            made = self._static(codes.astype(dtype), scale, like=value, zero_point=zero)
        elif value in self.made:
            made = self._call(qnn.ConvertOp, self.made[value], encoding)
        else:
            made = self._call(qnn.QuantizeOp, self._real(value), encoding)
        self.codes[key] = made
        return made

    def _call(self, kind: type[QnnOp], value: SSAValue, encoding: Encoding) -> SSAValue:
        return self.b.call(kind, [value], extents(value), _element(encoding), **_named(encoding))

    def _real(self, value: SSAValue) -> SSAValue:
        """A value as reals: itself, or what its codes mean."""
        made = self.made.get(value)
        if made is None:
            return value
        if value not in self.reals:
            self.reals[value] = self.b.call(qnn.DequantizeOp, [made], extents(made), f32)
        return self.reals[value]


def _element(encoding: Encoding) -> Attribute:
    return ui8 if encoding.bits == 8 else ui16


def _named(encoding: Encoding) -> dict[str, Any]:
    """An encoding as the properties of the op that makes the codes."""
    half = 1 << (encoding.bits - 1)
    return {"scale": float(encoding.scale), "zero_point": encoding.zero_point + half}
