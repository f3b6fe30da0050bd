"""What `encode-tfl` must know of operators of TFLite: which can compute on codes, and how."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr, f32
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import FIXED, FORMS, PER_AXIS, moved, operator
from mllm_compiler.dialects.types import element_of, i4, i8
from mllm_compiler.hal import Target
from mllm_compiler.passes.encodings import Rules
from mllm_compiler.passes.graphs import users
from mllm_compiler.passes.lowering import HALF_HIDDEN
from mllm_compiler.passes.matching import made_by
from mllm_compiler.quantisation.recipe import Values
from mllm_compiler.quantisation.values import UNSEEN, Encoding


def rules_of(values: Values, table: Target) -> Rules:
    """The rules for codes as a recipe asks for them, on the operators of a target."""
    bits, operators = values.bits, table.operators

    def fixed(op: Operation) -> Encoding | None:
        code = FIXED[bits].get(operator(op))
        return None if code is None else Encoding(*code, bits)

    def coded(op: Operation) -> bool:
        known = isinstance(op, TflOp) and (not operators or op.operator() in operators)
        return known and _coded(op, bits) and not (values.real_norms and _is_norm(op))

    return Rules(
        coded=coded,
        operands=_operands,
        moves=_moved,
        fixed=fixed,
        symmetric=lambda value: bits == 16 or _is_second(value),
        unseen=HALF_HIDDEN / 2 if table.halves else UNSEEN,
    )


def _coded(op: Operation, bits: int) -> bool:
    """Whether an op has a form on codes, as it is."""
    if not isinstance(op, tfl.TflOp) or operator(op) not in FORMS[bits] - {"quantize"}:
        return False
    ending = op.properties.get("fused_activation_function")
    if isinstance(ending, StringAttr) and ending.data != "NONE":
        return False
    if operator(op) not in PER_AXIS:
        return True
    _, weight, bias = op.arguments()
    return weight is not None and _has_rows(op, weight) and (bias is None or _is_stored(bias))


def _is_norm(op: Operation) -> bool:
    """Whether an op is a part of a norm, whose squares and roots have few codes in 8 bits."""
    return isinstance(op, tfl.RsqrtOp) or _measures(op) or _scales(op)


def _measures(op: Operation) -> bool:
    """Whether an op makes a mean, or what the root of a norm is taken of, and nothing else."""
    fits = isinstance(op, tfl.MeanOp)
    fits = fits or (isinstance(op, tfl.AddOp) and _is_stored(op.b))
    fits = fits or (isinstance(op, tfl.MulOp) and op.a is op.b)
    fits = fits or (isinstance(op, tfl.SubOp) and isinstance(op.b.owner, tfl.MeanOp))
    return fits and all(_is_norm(user) for user in users(op.results[0]))


def _scales(op: Operation) -> bool:
    """Whether an op multiplies by the root of a norm, or by its gain, or adds its bias."""
    if isinstance(op, tfl.MulOp) and any(isinstance(v.owner, tfl.RsqrtOp) for v in op.operands):
        return True
    if not isinstance(op, tfl.MulOp | tfl.AddOp) or not _is_stored(op.b):
        return False
    return isinstance(op.a.owner, Operation) and _scales(op.a.owner)


def _has_rows(op: Operation, weight: SSAValue) -> bool:
    """Whether a weight has codes of 8 or 4 bits, a scale for each row; a filter can have them."""
    if not isinstance(op, tfl.FullyConnectedOp):
        return _is_stored(weight)
    real = made_by(weight, tfl.DequantizeOp)
    codes = None if real is None else made_by(real.x, tfl.PseudoQconstOp)
    rows = codes is not None and codes.scales is not None and codes.block_size.value.data == 0
    return rows and codes is not None and element_of(codes.codes) in (i8, i4)


def _is_stored(value: SSAValue) -> bool:
    return isinstance(value.owner, WeightOp | ConstantOp)


def _operands(op: Operation) -> Sequence[SSAValue]:
    """What an op reads that has codes of one scale."""
    if operator(op) in PER_AXIS:
        return op.operands[:1]
    if isinstance(op, tfl.PadV2Op):
        return op.operands[:1]
    return [v for v in op.operands if element_of(v) == f32]


def _moved(op: Operation) -> Sequence[SSAValue]:
    """What shares the result's encoding; the number around a padded tensor takes it as it is."""
    return moved(op)[:1] if isinstance(op, tfl.PadV2Op) else moved(op)


def _is_second(value: SSAValue) -> bool:
    """Whether a product of matrices reads a value second."""
    return any(isinstance(op, tfl.BatchMatmulOp) and op.b is value for op in users(value))
