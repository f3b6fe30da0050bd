"""`encode-tfl`: values between operators of TFLite take codes of 8 or 16 bits; not exact.

    %y = tfl.add %x, %c {..} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>

becomes, where the recipe has `[values]`,

    %a = tfl.quantize %x {scale = 0.02 : f32, zero_point = 3 : i64} : .. -> tensor<1x4xi8>
    %b = tfl.pseudo_qconst %codes, none {scale = .., zero_point = ..} : .. -> tensor<4xi8>
    %z = tfl.add %a, %b {.., scale = 0.03 : f32, zero_point = -7 : i64} : .. -> tensor<1x4xi8>
    %y = tfl.dequantize %z : (tensor<1x4xi8>) -> tensor<1x4xf32>

Calibration inputs go through the graph as it stands, and say how far each value reaches
(`encodings`). An operator without a form on codes computes on reals, between `tfl.dequantize` and
`tfl.quantize`; arguments and results of the graph stay real. Weights of products have the codes
that `quantise-linears` chose; filters of convolutions get 8 bits, a scale for each output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f32, i8, i16
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of, tfl
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import integer
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import PER_AXIS, encoding, moved, operator
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.hal import target
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.encodings import Encodings, encodings_of
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of, graphs, remove_dead
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.tfl_forms import rules_of
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.quantisation.values import Encoding
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class EncodeTfl(ModulePass):
    """Gives the values of every graph the codes of a recipe.

    Attributes:
        recipe: A built-in recipe or a `.toml` file.
        data: A folder of calibration inputs, `GRAPH/NAME.npz`.
        target: Whose operators compute on codes; others of TFLite stay on reals.
    """

    name = "encode-tfl"
    recipe: str = "w8a8"
    data: str = ""
    target: str = "tflite"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Encodes the graphs in the order of the module; none where the recipe has no values.

        Raises:
            CompileError: The recipe cannot be used, or data that it needs are not there.
        """
        values, store = read_recipe(self.recipe).values, store_of(ctx)
        table = target(self.target)
        for graph in graphs(op) if values is not None else ():
            assert values is not None
            inputs = needed_inputs(self.data, graph.sym_name.data)
            found = encodings_of(graph, inputs, store, values, rules_of(values, table))
            _Graph(graph, found, store).rewrite()


class _Graph:
    """A graph whose values become codes, op by op.

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
        """Puts ops on codes in the place of those that have such a form."""
        for op in list(block_of(self.graph).ops):
            self.b.at = op
            if op in self.encodings.coded:
                assert isinstance(op, TflOp)
                self._encode(op)
            elif isinstance(op, TflOp | ReturnOp):
                op.operands = [self._real(v) for v in op.operands]
        remove_dead(self.graph)

    def _encode(self, op: TflOp) -> None:
        """Makes an op on codes beside one on reals, whose results are read no more."""
        encoding = self.encodings.of[op.results[0]]
        element = i8 if encoding.bits == 8 else i16
        results = [tensor_of(element, extents(r)) for r in op.results]
        properties = {k: v for k, v in op.properties.items() if not k.endswith("SegmentSizes")}
        made = type(op).call(
            self._arguments(op, encoding), results, **properties, **_named(encoding)
        )
        self.b.insert(made)
        for old, new in zip(op.results, made.results, strict=True):
            self.made[old] = self.codes[old, encoding] = new

    def _arguments(self, op: TflOp, result: Encoding) -> list[SSAValue | None]:
        if operator(op) in PER_AXIS:
            return self._product(op, result.bits)
        shared = set(moved(op))

        def argument(value: SSAValue | None) -> SSAValue | None:
            if value is None or element_of(value) != f32:
                return value
            return self._code(value, result if value in shared else None)

        return [argument(value) for value in op.arguments()]

    def _product(self, op: TflOp, bits: int) -> list[SSAValue | None]:
        """Codes, those of a weight, a scale for each channel, and a bias in steps of both."""
        x, weight, bias = op.arguments()
        assert x is not None
        assert weight is not None
        codes = self._code(x, None)
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
        return self._constant(codes, scale.reshape(-1, 1).astype(np.float32), axis)

    def _bias(self, bias: SSAValue | None, steps: Array, bits: int) -> SSAValue | None:
        kind = np.int32 if bits == 8 else np.int64
        limits = np.iinfo(np.int32)
        if bias is None:
            # TFLite sums 16 bits with a bias of 64 bits.
            return None if bits == 8 else self._constant(np.zeros(len(steps), kind), _rows(steps))
        numbers = numbers_of(bias, self.b.store)
        assert numbers is not None
        codes = np.rint(numbers.reshape(-1).astype(np.float64) / steps)
        return self._constant(np.clip(codes, limits.min, limits.max).astype(kind), _rows(steps))

    def _constant(self, codes: Array, scales: Array, axis: int = 0) -> SSAValue:
        held = [self.b.constant(codes), self.b.constant(scales)]
        return self.b.call(tfl.PseudoQconstOp, held, codes.shape, None, quantized_dimension=axis)

    def _code(self, value: SSAValue, wanted: Encoding | None) -> SSAValue:
        """The codes of a value, in its own encoding or in another."""
        encoding = wanted or self.encodings.of[value]
        key = (value, encoding)
        if key not in self.codes:
            numbers = numbers_of(value, self.b.store)
            if numbers is None:
                made = self._call(tfl.QuantizeOp, self._real(value), encoding)
            else:
                held = self.b.constant(encoding.encoded(numbers))
                made = self.b.call(
                    tfl.PseudoQconstOp, [held, None], numbers.shape, None, **_named(encoding)
                )
            self.codes[key] = made
        return self.codes[key]

    def _call(self, kind: type[TflOp], value: SSAValue, encoding: Encoding) -> SSAValue:
        element = i8 if encoding.bits == 8 else i16
        return self.b.call(kind, [value], extents(value), element, **_named(encoding))

    def _real(self, value: SSAValue) -> SSAValue:
        """A value as reals: itself, or what its codes mean."""
        made = self.made.get(value)
        if made is None:
            return value
        if value not in self.reals:
            self.reals[value] = self.b.call(tfl.DequantizeOp, [made], extents(made), f32)
        return self.reals[value]


def _rows(steps: Array) -> Array:
    """The scales of a bias, a row each."""
    return steps.reshape(-1, 1).astype(np.float32)


def _named(encoding: Encoding) -> dict[str, Attribute]:
    """An encoding as the properties of the op that makes the codes."""
    return {"scale": FloatAttr(encoding.scale, f32), "zero_point": integer(encoding.zero_point)}
