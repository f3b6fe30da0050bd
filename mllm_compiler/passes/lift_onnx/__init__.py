"""`lift-onnx`: each ONNX operator with an exact form in `mllm` becomes that form; exact.

    %t = onnx.Transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> (tensor<8x4xf32>)
    %y = onnx.MatMul %x, %t : (tensor<2x8xf32>, tensor<8x4xf32>) -> (tensor<2x4xf32>)

becomes

    %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %y = mllm.matmul %x, %t : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>

Shapes come from the result types that `infer-shapes` wrote; an integer tensor whose elements it
knows becomes a constant or an `mllm.iota`, so that shape arithmetic ends here. What has no exact
form stays as it is. Ops that are left without a user are erased, and the rest is canonical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import dims_of, tensor_of
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_verify import broken_node
from mllm_compiler.dialects.types import Tensor, dtype_of, ranked
from mllm_compiler.passes.canonical_form import CANONICAL
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.lift_onnx import (
    attention,
    einsum,
    elementwise,
    indexing,
    linear,
    losses,
    microsoft,
    microsoft_quantised,
    movement,
    quantised,
    rotary,
    scatter,
    vision,
)
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, is_symbolic_result
from mllm_compiler.passes.rewrite import rewrite
from mllm_compiler.weights import WeightStore

FAMILIES = (
    attention,
    einsum,
    elementwise,
    indexing,
    linear,
    losses,
    microsoft,
    microsoft_quantised,
    movement,
    quantised,
    rotary,
    scatter,
    vision,
)

CONVERTERS: dict[str, Converter] = {
    f"onnx.{name}": converter
    for family in FAMILIES
    for name, converter in family.CONVERTERS.items()
}
"""Op name to converter."""


@dataclass(frozen=True)
class LiftOnnx(ModulePass):
    """Converts ONNX operators one by one into `mllm` ops."""

    name = "lift-onnx"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lifts every operator that has an exact form."""
        store = store_of(ctx)
        for operator in [o for o in op.walk() if isinstance(o, OnnxOp)]:
            convert(operator, store)
        rewrite(op, *CANONICAL)
        for graph in graphs(op):
            graph.update_function_type()


def convert(op: OnnxOp, store: WeightStore) -> bool:
    """Replaces one operator; answers whether it had an exact form.

    Raises:
        CompileError: `MLC-I014`, its attributes make no sense, for example no heads.
    """
    values = [*op.operands, *op.results]
    if not all(_has_dtype(v) for v in values):
        return False
    emit = Emit(op, store)
    contents = is_symbolic_result(op)
    if contents is not None:
        return _replace(op, [emit.dims(contents, emit.result_dims)])
    converter = CONVERTERS.get(op.name)
    if converter is None or op.regions:
        return False
    try:
        made = converter(op, emit)
        return made is not None and _replace(op, [made] if isinstance(made, SSAValue) else made)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        message = f"'{op.name}' cannot have operands and attributes like these: {error}"
        raise broken_node(message[:300], location_name(op)) from error


def _has_dtype(value: SSAValue) -> bool:
    kind = ranked(value)
    if kind is None:
        return False
    try:
        dtype_of(kind.element_type)
    except TypeError:
        return False
    return True


def _replace(op: OnnxOp, made: Sequence[SSAValue]) -> bool:
    """Replaces the first results; where another one is used, nothing is replaced."""
    if any(r.first_use is not None for r in op.results[len(made) :]):
        return False
    for old, new in zip(op.results, made, strict=False):
        kind, fresh = ranked(old), ranked(new)
        assert kind is not None
        assert fresh is not None
        if new not in op.operands and (merged := _merged(kind, fresh)) != fresh:
            new = Rewriter.replace_value_with_new_type(new, merged)
        new.name_hint = new.name_hint or old.name_hint
        old.replace_all_uses_with(new)
    Rewriter.erase_op(op)
    return True


def _merged(kind: Tensor, fresh: Tensor) -> Tensor:
    """The type that shape inference gave, its unknown dims taken from the op's own rule."""
    dims = zip(dims_of(kind), dims_of(fresh), strict=True)
    return tensor_of(kind.element_type, [f if k.unknown else k for k, f in dims])
