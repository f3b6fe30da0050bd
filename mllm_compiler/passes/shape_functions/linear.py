"""Shapes of matrix products, reductions and normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from xdsl.dialects.builtin import f32, i32, i64

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.equations import read_equation
from mllm_compiler.passes.shape_functions.knowledge import (
    Dims,
    Known,
    ShapeFunction,
    Shapes,
    broadcast,
    broadcast_dim,
    normal_axis,
    tensor,
)
from mllm_compiler.passes.shape_functions.layout import ints_of, is_given

if TYPE_CHECKING:
    from xdsl.ir import Attribute

    from mllm_compiler.dialects.onnx_op import OnnxOp


def product_dims(shapes: Shapes, op: OnnxOp, a: Dims | None, b: Dims | None) -> Dims | None:
    """The dims of NumPy's matrix product."""
    if a is None or b is None or not a or not b:
        return None
    shapes.equate(a[-1], b[-2:][0], op)
    batch = broadcast(shapes, op, [a[:-2], b[:-2]])
    if batch is None:
        return None
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


def matmul(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """NumPy's matrix product."""
    a, b = shapes.of(op.input(0)), shapes.of(op.input(1))
    return [tensor(a.element, product_dims(shapes, op, a.dims, b.dims))]


def matmul_integer(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The product of integers, exact in i32."""
    a, b = shapes.of(op.input(0)), shapes.of(op.input(1))
    return [tensor(i32, product_dims(shapes, op, a.dims, b.dims))]


def qlinear_matmul(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The quantised product; the type is that of the result's zero point."""
    a, b, zero = (shapes.of(op.input(i)) for i in (0, 3, 7))
    return [tensor(zero.element, product_dims(shapes, op, a.dims, b.dims))]


def float_product(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """A product with a quantised second operand; the result is f32."""
    a, b = shapes.of(op.input(0)), shapes.of(op.input(1))
    return [tensor(f32, product_dims(shapes, op, a.dims, b.dims))]


def matmul_n_bits(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[..., K] -> [..., N]."""
    a = shapes.of(op.input(0))
    return [tensor(a.element, a.dims and (*a.dims[:-1], Dim.const(cast(int, op.attribute("N")))))]


def fused_matmul(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The product of transposed operands."""
    operands = [shapes.of(op.input(i)) for i in range(2)]
    if op.attribute("transBatchA") or op.attribute("transBatchB"):
        return [tensor(operands[0].element, None)]
    turned = [
        k.dims and ((*k.dims[:-2], k.dims[-1], k.dims[-2]) if op.attribute(flag) else k.dims)
        for k, flag in zip(operands, ("transA", "transB"), strict=True)
    ]
    return [tensor(operands[0].element, product_dims(shapes, op, turned[0], turned[1]))]


def gemm(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Alpha A B + beta C of matrices, transposed where told."""
    return _gemm(op, shapes, 1, shapes.of(op.input(0)).element)


def qgemm(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The same of codes; the type is that of the result's zero point, f32 where there is none."""
    zero = op.input(8)
    return _gemm(op, shapes, 3, f32 if zero is None else shapes.of(zero).element)


def _gemm(op: OnnxOp, shapes: Shapes, right: int, element: Attribute | None) -> list[Known]:
    a, b = shapes.of(op.input(0)), shapes.of(op.input(right))
    if a.dims is None or b.dims is None:
        return [tensor(element, [UNKNOWN, UNKNOWN])]
    m, k = reversed(a.dims) if op.attribute("transA") else a.dims
    k2, n = reversed(b.dims) if op.attribute("transB") else b.dims
    shapes.equate(k, k2, op)
    return [tensor(element, [m, n])]


def reduce(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The axes shrink to 1 or vanish; no axes means all of them."""
    data = shapes.of(op.input(0))
    axes = ints_of(op, shapes, 1, "axes")
    keep = bool(op.attribute("keepdims"))
    given = is_given(op, 1, "axes") and (axes is None or axes)
    if data.dims is None or (given and axes is None):
        dims = [UNKNOWN] * len(data.dims) if keep and data.dims is not None else None
        return [tensor(data.element, dims)]
    if not given:
        if "noop_with_empty_axes" in op.properties and op.attribute("noop_with_empty_axes"):
            return [tensor(data.element, data.dims)]
        axes = list(range(len(data.dims)))
    return [tensor(data.element, _reduced(data.dims, axes or [], keep))]


def _reduced(dims: Dims, axes: list[int], keep: bool) -> list[Dim]:
    gone = {normal_axis(a, len(dims)) for a in axes}
    if keep:
        return [Dim.const(1) if i in gone else d for i, d in enumerate(dims)]
    return [d for i, d in enumerate(dims) if i not in gone]


def arg_reduce(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The index of the largest or smallest along an axis."""
    dims = shapes.of(op.input(0)).dims
    if dims is None:
        return [tensor(i64, None)]
    axes = [cast(int, op.attribute("axis"))]
    return [tensor(i64, _reduced(dims, axes, bool(op.attribute("keepdims"))))]


def layer_norm(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Like the data; then mean and inverse deviation, 1 along the normalised axes."""
    data = shapes.of(op.input(0))
    dims = data.dims
    if dims is not None:
        axis = normal_axis(cast(int, op.attribute("axis")), len(dims))
        dims = (*dims[:axis], *(Dim.const(1) for _ in dims[axis:]))
    statistic = tensor(f32, dims)
    return [tensor(data.element, data.dims), statistic, statistic]


def skip_norm(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Like the data; then mean and inverse deviation over the last axis, and the sum."""
    data = shapes.of(op.input(0))
    statistic = tensor(f32, data.dims and (*data.dims[:-1], Dim.const(1)))
    like = tensor(data.element, data.dims)
    return [like, statistic, statistic, like]


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"


def einsum(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The axes that the equation keeps; an axis of several operands is that of one of them."""
    operands = [shapes.of(value) for value in op.operands]
    given = [known.dims for known in operands if known.dims is not None]
    equation = None
    if len(given) == len(operands):
        equation = read_equation(str(op.attribute("equation")), [len(dims) for dims in given])
    if equation is None:
        return [tensor(operands[0].element, None)]
    extents: dict[str, Dim] = {}
    for term, dims in zip(equation.terms, given, strict=True):
        for axis, dim in zip(term, dims, strict=True):
            known = extents.get(axis, dim)
            extents[axis] = broadcast_dim(shapes, known, dim, op)
    return [tensor(operands[0].element, [extents[axis] for axis in equation.output])]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    **{f"onnx.Reduce{name}": reduce for name in _REDUCTIONS.split()},
    "onnx.ArgMax": arg_reduce,
    "onnx.ArgMin": arg_reduce,
    "onnx.MatMul": matmul,
    "onnx.MatMulInteger": matmul_integer,
    "onnx.QLinearMatMul": qlinear_matmul,
    "onnx.Gemm": gemm,
    "onnx.Einsum": einsum,
    "onnx.LayerNormalization": layer_norm,
    "onnx.RMSNormalization": layer_norm,
    "onnx.microsoft.SimplifiedLayerNormalization": layer_norm,
    "onnx.microsoft.SkipLayerNormalization": skip_norm,
    "onnx.microsoft.SkipSimplifiedLayerNormalization": skip_norm,
    "onnx.microsoft.FusedMatMul": fused_matmul,
    "onnx.microsoft.MatMulNBits": matmul_n_bits,
    "onnx.microsoft.QGemm": qgemm,
    "onnx.microsoft.DynamicQuantizeMatMul": float_product,
    "onnx.microsoft.MatMulIntegerToFloat": float_product,
}
"""Shape functions by operator."""
