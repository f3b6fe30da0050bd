"""A graph of qnn ops as an ONNX model of reals between QuantizeLinear and DequantizeLinear.

Each op becomes the standard's operator of its name, on reals; where its result has codes, a
QuantizeLinear of its encoding stands behind it, and a DequantizeLinear before what reads it. What
the model computes is what ONNX Runtime says, on its CPU provider; what Qualcomm's provider makes of
it shares no code with `lower-to-qnn` nor with the emitter of the target `qnn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.qnn import QnnOp
from mllm_compiler.dialects.qnn.linalg import NormOp, ReduceOp
from mllm_compiler.dialects.qnn.vision import ConvolutionOp, PoolOp
from mllm_compiler.dialects.types import dtype_of, element_of, extents, is_float
from mllm_compiler.passes.graphs import argument_names, block_of, result_names, return_of
from mllm_compiler.weights import WeightStore

OPSET = 23
NCHW, NHWC = [0, 3, 1, 2], [0, 2, 3, 1]
OTHERS = {
    "ElementWiseSubtract": "Sub",
    "ElementWiseMultiply": "Mul",
    "ElementWiseDivide": "Div",
    "ElementWiseMaximum": "Max",
    "ElementWiseMinimum": "Min",
    "ElementWisePower": "Pow",
    "ElementWiseSquareRoot": "Sqrt",
    "ElementWiseSelect": "Where",
    "ElementWiseLessEqual": "LessOrEqual",
    "ElementWiseGreaterEqual": "GreaterOrEqual",
    "RmsNorm": "RMSNormalization",
    "LayerNorm": "LayerNormalization",
}
"""Operators that the standard names otherwise; others lose `ElementWise` at most."""


def model_of(graph: FuncOp, store: WeightStore) -> onnx.ModelProto:
    """The model; arguments and results keep names, shapes and types."""
    writer, block = Writer(store), block_of(graph)
    for name, value in zip(argument_names(graph), block.args, strict=True):
        writer.names[value] = name
    for op in block.ops:
        if isinstance(op, QnnOp) and not isinstance(op, qnn.StaticTensorOp):
            writer.scope = op.operator()
            writer.names[op.y] = writer.coded(op, WRITERS.get(type(op), _same)(writer, op))
    made = return_of(graph).operands
    for name, value in zip(result_names(graph), made, strict=True):
        writer.nodes.append(helper.make_node("Identity", [writer.real(value)], [name]))
    return helper.make_model(
        helper.make_graph(
            writer.nodes,
            graph.sym_name.data,
            [_port(n, v) for n, v in zip(argument_names(graph), block.args, strict=True)],
            [_port(n, v) for n, v in zip(result_names(graph), made, strict=True)],
            writer.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=11,
    )


@dataclass
class Writer:
    """A model while it is made.

    Attributes:
        store: The bytes of weights.
        names: What was made for each value: reals, or codes.
        scope: What names of nodes begin with.
    """

    store: WeightStore
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    scope: str = ""

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; the answer is the name of its result."""
        name = f"{self.scope}_{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [*inputs], [name], name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Adds numbers."""
        name = f"constant_{len(self.initializers)}"
        if array.dtype == ml_dtypes.int4:
            raw = array.astype(np.int8)
            self.initializers.append(helper.make_tensor(name, TensorProto.INT4, raw.shape, raw))
        else:
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def coded(self, op: QnnOp, real: str) -> str:
        """A result as its codes, where it has some."""
        return real if not _is_coded(op.y) else self.node("QuantizeLinear", real, *self._says(op))

    def real(self, value: SSAValue, perm: Sequence[int] = ()) -> str:
        """What a value means, made anew for each reader; with `perm`, its axes in another order."""
        owner = value.owner
        if isinstance(owner, WeightOp | ConstantOp):
            array = self._stored(value)
            array = array.astype(np.float32) if array.dtype.kind == "f" else array
            return self.constant(array.transpose(perm) if perm else array)
        if isinstance(owner, qnn.StaticTensorOp):
            return self._static(owner, perm)
        real = self.names[value]
        if _is_coded(value):
            assert isinstance(owner, QnnOp)
            real = self.node("DequantizeLinear", real, *self._says(owner))
        if not perm:
            return real
        turned = self.node("Transpose", real, perm=perm)
        if not _is_coded(value):
            return turned
        assert isinstance(owner, QnnOp)
        codes = self.node("QuantizeLinear", turned, *self._says(owner))
        return self.node("DequantizeLinear", codes, *self._says(owner))

    def turned(self, op: QnnOp, real: str, perm: Sequence[int]) -> str:
        """A result that was made with its axes in another order."""
        if _is_coded(op.y):
            codes = self.node("QuantizeLinear", real, *self._says(op))
            real = self.node("DequantizeLinear", codes, *self._says(op))
        return self.node("Transpose", real, perm=perm)

    def _says(self, op: QnnOp) -> tuple[str, str]:
        """Scale and zero point of a result."""
        assert op.scale is not None
        zero = np.array(op.zero, dtype_of(element_of(op.y)))
        return self.constant(np.array(op.scale.value.data, np.float32)), self.constant(zero)

    def _static(self, op: qnn.StaticTensorOp, perm: Sequence[int]) -> str:
        codes, scales = self._stored(op.codes), self._stored(op.scales).astype(np.float32)
        axis, perm = op.axis.value.data, perm or range(codes.ndim)
        assert not op.block_size.value.data, "the standard has no blocks of whole multiples"
        scale = scales if axis >= 0 else scales.reshape(())
        zero = np.full(scale.shape, op.zero, codes.dtype)
        parts = [self.constant(p) for p in (codes.transpose(perm), scale, zero)]
        more = {"axis": list(perm).index(axis)} if axis >= 0 else {}
        return self.node("DequantizeLinear", *parts, **more)

    def _stored(self, value: SSAValue) -> np.ndarray:
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return array_of(owner.value)
        assert isinstance(owner, WeightOp)
        blob = owner.value
        return self.store.array(blob.digest.data, str(blob.element), blob.dims)


def _is_coded(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, QnnOp) and owner.scale is not None


def _port(name: str, value: SSAValue) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(dtype_of(element_of(value)))
    return helper.make_tensor_value_info(name, kind, extents(value))


def _same(w: Writer, op: QnnOp) -> str:
    operator = op.operator()
    word = OTHERS.get(operator, operator.removeprefix("ElementWise"))
    return w.node(word, *(w.real(v) for v in op.operands))


def _passed(w: Writer, op: QnnOp) -> str:
    """Quantize, Dequantize and Convert are what stands between any two ops."""
    return w.real(op.operands[0])


def _cast(w: Writer, op: qnn.CastOp) -> str:
    if is_float(element_of(op.x)) and is_float(element_of(op.y)):
        return w.real(op.x)
    element = dtype_of(element_of(op.y))
    to = TensorProto.FLOAT if element.kind == "f" else helper.np_dtype_to_tensor_dtype(element)
    return w.node("Cast", w.real(op.x), to=to)


def _rsqrt(w: Writer, op: qnn.ElementWiseRsqrtOp) -> str:
    return w.node("Reciprocal", w.node("Sqrt", w.real(op.x)))


def _not_equal(w: Writer, op: qnn.ElementWiseNotEqualOp) -> str:
    return w.node("Not", w.node("Equal", *(w.real(v) for v in op.operands)))


def _fully_connected(w: Writer, op: qnn.FullyConnectedOp) -> str:
    return w.node("Gemm", *(w.real(v) for v in op.operands), transB=1)


def _mat_mul(w: Writer, op: qnn.MatMulOp) -> str:
    rank = len(extents(op.a))
    last = (*range(rank - 2), rank - 1, rank - 2)
    sides = ((op.a, op.transpose_in0), (op.b, op.transpose_in1))
    return w.node("MatMul", *(w.real(v, last if turned else ()) for v, turned in sides))


def _softmax(w: Writer, op: qnn.SoftmaxOp) -> str:
    assert op.beta.value.data == 1
    return w.node("Softmax", w.real(op.x), axis=-1)


def _norm(w: Writer, op: NormOp) -> str:
    word = OTHERS[op.operator()]
    epsilon = op.epsilon.value.data
    return w.node(word, *(w.real(v) for v in op.operands), axis=-1, epsilon=epsilon)


def _rotary_embedding(w: Writer, op: qnn.RotaryEmbeddingOp) -> str:
    paired = int(bool(op.interleaved))
    return w.node("RotaryEmbedding", *(w.real(v) for v in op.operands), interleaved=paired)


def _reduce(w: Writer, op: ReduceOp) -> str:
    axes = w.constant(np.array(ints(op.axes), np.int64))
    return w.node(op.operator(), w.real(op.x), axes, keepdims=int(bool(op.keep_dims)))


def _reshape(w: Writer, op: qnn.ReshapeOp) -> str:
    return w.node("Reshape", w.real(op.x), w.constant(np.array(extents(op.y), np.int64)))


def _transpose(w: Writer, op: qnn.TransposeOp) -> str:
    return w.node("Transpose", w.real(op.x), perm=ints(op.perm))


def _concat(w: Writer, op: qnn.ConcatOp) -> str:
    return w.node("Concat", *(w.real(v) for v in op.xs), axis=op.axis.value.data)


def _strided_slice(w: Writer, op: qnn.StridedSliceOp) -> str:
    starts, ends, steps = np.array(op.sides(), np.int64).T
    axes = np.arange(len(starts))
    return w.node("Slice", w.real(op.x), *map(w.constant, (starts, ends, axes, steps)))


def _gather(w: Writer, op: qnn.GatherOp) -> str:
    return w.node("Gather", w.real(op.x), w.real(op.indices), axis=op.axis.value.data)


def _tile(w: Writer, op: qnn.TileOp) -> str:
    return w.node("Tile", w.real(op.x), w.constant(np.array(ints(op.multiples), np.int64)))


def _conv(w: Writer, op: ConvolutionOp) -> str:
    groups = op.group.value.data if isinstance(op, qnn.Conv2dOp) else extents(op.x)[3]
    bias = [] if op.bias is None else [w.real(op.bias)]
    made = w.node(
        "Conv",
        *(w.real(op.x, NCHW), w.real(op.weights, (3, 2, 0, 1)), *bias),
        kernel_shape=extents(op.weights)[:2],
        strides=ints(op.stride),
        pads=_around(op),
        dilations=ints(op.dilation),
        group=groups,
    )
    return w.turned(op, made, NHWC)


def _pool(w: Writer, op: PoolOp) -> str:
    largest = isinstance(op, qnn.PoolMax2dOp)
    counted = isinstance(op, qnn.PoolAvg2dOp) and bool(op.count_pad_for_edges)
    made = w.node(
        "MaxPool" if largest else "AveragePool",
        w.real(op.x, NCHW),
        kernel_shape=ints(op.filter_size),
        strides=ints(op.stride),
        pads=_around(op),
        **({} if largest else {"count_include_pad": int(counted)}),
    )
    return w.turned(op, made, NHWC)


def _around(op: ConvolutionOp | PoolOp) -> list[int]:
    """All begins, then all ends."""
    top, bottom, left, right = ints(op.pad_amount)
    return [top, left, bottom, right]


WRITERS: dict[type[QnnOp], Callable[[Writer, Any], str]] = {
    qnn.CastOp: _cast,
    qnn.QuantizeOp: _passed,
    qnn.DequantizeOp: _passed,
    qnn.ConvertOp: _passed,
    qnn.ElementWiseRsqrtOp: _rsqrt,
    qnn.ElementWiseNotEqualOp: _not_equal,
    qnn.FullyConnectedOp: _fully_connected,
    qnn.MatMulOp: _mat_mul,
    qnn.SoftmaxOp: _softmax,
    qnn.RmsNormOp: _norm,
    qnn.LayerNormOp: _norm,
    qnn.RotaryEmbeddingOp: _rotary_embedding,
    **dict.fromkeys((qnn.ReduceMeanOp, qnn.ReduceSumOp, qnn.ReduceMaxOp, qnn.ReduceMinOp), _reduce),
    qnn.ReshapeOp: _reshape,
    qnn.TransposeOp: _transpose,
    qnn.ConcatOp: _concat,
    qnn.StridedSliceOp: _strided_slice,
    qnn.GatherOp: _gather,
    qnn.TileOp: _tile,
    qnn.Conv2dOp: _conv,
    qnn.DepthWiseConv2dOp: _conv,
    qnn.PoolAvg2dOp: _pool,
    qnn.PoolMax2dOp: _pool,
}
"""What writes each op; `_same` writes the others."""
