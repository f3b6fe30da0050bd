"""`fold-constants`: computes what constants and shapes decide, and removes what does nothing.

    %s = onnx.Shape %x {onnx.contents = #mllm.dims<"2", "8">} : (tensor<2x8xf32>) -> (tensor<2xi64>)
    %c = onnx.Add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>)   // both constant
    %i = onnx.Identity %x : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
becomes
    %s = mllm.constant dense<[2, 8]> : tensor<2xi64>
    %c = mllm.constant dense<...> : tensor<4xf32>
and %x in place of %i. Values come from the reference, so that the pass is exact. Large weights are
not moved here: what only rearranges them stays for the lifting, and so does what dequantises them.
The pass runs a second time behind the lifts, over the few ops of `mllm` that they leave on weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.hints import isa

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import DimsAttr
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import (
    LARGEST_CONSTANT,
    BinaryOp,
    BlobAttr,
    CastOp,
    ConstantOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    UnaryOp,
    WeightOp,
)
from mllm_compiler.dialects.onnx_attributes import array_of_dense, tensor_attribute
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_types import NUMPY, element_of_numpy, element_type
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.infer_shapes import CONTENTS, infer_function
from mllm_compiler.reference import Frame, meaning_of
from mllm_compiler.weights import DTYPES, WeightStore

MOST_BYTES: Final = 256 << 20
"""The largest result that is computed here."""

SMALL_BYTES: Final = 1 << 20
"""The largest result of operators that only rearrange or repeat."""

REARRANGING: Final = frozenset(
    f"onnx.{name}"
    for name in [
        "Concat",
        "ConstantOfShape",
        "Expand",
        "EyeLike",
        "Flatten",
        "Gather",
        "OneHot",
        "Pad",
        "Range",
        "Reshape",
        "Resize",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Operators whose result is a weight again, or larger than what it is made from."""

MOVING: Final = (ReshapeOp, SliceOp, TransposeOp)
"""Ops of `mllm` whose result is a weight again."""

LIFTED: Final = (*MOVING, BinaryOp, CastOp, UnaryOp)
"""Ops of `mllm` that are computed here: what the lifts leave between weights and their readers."""

DEQUANTISING: Final = ("onnx.DequantizeLinear", "onnx.microsoft.DequantizeLinear")


@dataclass(frozen=True)
class FoldConstants(ModulePass):
    """Replaces operators that constants or shapes decide by constants."""

    name = "fold-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Runs the pass."""
        store = store_of(ctx)
        for function in [f for f in op.ops if isinstance(f, FuncOp)]:
            folding = _Folding(store)
            folding.block(function.body.block)
            if folding.revealed:
                # Integers that only now became known may decide shapes.
                infer_function(function)
                folding.block(function.body.block)
            remove_dead(function.body.block)
            function.update_function_type()


@dataclass
class _Folding:
    store: WeightStore
    revealed: bool = False
    frame: Frame = field(init=False)

    def __post_init__(self) -> None:
        self.frame = Frame({}, self.store)

    def block(self, block: Block) -> None:
        """Folds the operators of a block in order, those of inner regions too."""
        for op in list(block.ops):
            if isinstance(op, LIFTED) and _is_static(op.result):
                self._compute(op)
            if not isinstance(op, OnnxOp):
                continue
            same = forwarded(op)
            if same is not None:
                _forward(op, same)
                continue
            for region in op.regions:
                self.block(region.block)
            if op.name == "onnx.If" and self._inline_branch(op):
                continue
            self._fold(op)

    def _fold(self, op: OnnxOp) -> None:
        known = _static_contents(op)
        if known is not None:
            self._replace(op, [known])
            return
        results = self._compute(op)
        self.revealed |= any(r.dtype.kind in "iub" and r.size <= 64 for r in results)

    def _compute(self, op: Operation) -> Sequence[NDArray[Any]]:
        """Puts the results of an op in its place, where they are known, and answers with them."""
        if not op.has_trait(Pure) or not self._is_worth_computing(op):
            return ()
        operands = [self._value(v) for v in op.operands]
        meaning = meaning_of(op)
        if meaning is None or any(v is None for v in operands):
            return ()
        try:
            with np.errstate(all="ignore"):
                results = meaning(op, cast("list[NDArray[Any]]", operands), self.frame)
        except CompileError:
            # What cannot be computed now is told where it is needed, with the target's name.
            return ()
        if not all(_is_foldable(r) for r in results):
            return ()
        self._replace(op, results)
        return results

    def _is_worth_computing(self, op: Operation) -> bool:
        if op.name == "onnx.Transpose" and isinstance(op.operands[0].owner, WeightOp):
            return False  # a linear reads it as it is, and it may be an embedding too
        if op.name in DEQUANTISING and element_type(op.operands[0].type) != i32:
            return False  # codes stay codes, also where they are few; i32 is a bias
        limit = SMALL_BYTES if op.name in REARRANGING or isinstance(op, MOVING) else MOST_BYTES
        return all(isinstance(v.owner, ConstantOp | WeightOp) for v in op.operands) and all(
            _bytes_of(r.type) <= limit for r in op.results
        )

    def _value(self, value: SSAValue) -> NDArray[Any] | None:
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return array_of_dense(owner.value)
        if isinstance(owner, WeightOp):
            blob = owner.value
            dtype = str(blob.element)
            if blob.digest.data in self.store and dtype in DTYPES:
                return self.store.array(blob.digest.data, dtype, blob.dims)
        return None

    def _replace(self, op: Operation, arrays: Sequence[NDArray[Any]]) -> None:
        block = op.parent
        assert block is not None
        for result, array in zip(op.results, arrays, strict=True):
            made = self._constant(op, array)
            block.insert_op_before(made, op)
            made.results[0].name_hint = result.name_hint
            result.replace_all_uses_with(made.results[0])
        op.detach()
        op.erase()

    def _constant(self, op: Operation, array: NDArray[Any]) -> Operation:
        if array.size <= LARGEST_CONSTANT:
            made: Operation = ConstantOp(cast(DenseIntOrFPElementsAttr, tensor_attribute(array)))
        else:
            digest = self.store.add(array)
            blob = BlobAttr.of(digest, element_of_numpy(array.dtype), array.shape)
            made = WeightOp(blob, location_name(op) or None)
        made.location = op.location
        return made

    def _inline_branch(self, op: OnnxOp) -> bool:
        """Puts the branch that a constant condition takes in the operator's place."""
        condition = self._value(op.operands[0])
        if condition is None or op.parent is None:
            return False
        taken = op.regions[0 if bool(condition.reshape(-1)[0]) else 1].block
        last = taken.last_op
        assert last is not None
        for result, value in zip(op.results, last.operands, strict=True):
            result.replace_all_uses_with(value)
        last.detach()
        last.erase()
        for inner in list(taken.ops):
            inner.detach()
            op.parent.insert_op_before(inner, op)
        op.detach()
        op.erase()
        return True


def forwarded(op: OnnxOp) -> SSAValue | None:
    """The operand that an operator without effect passes on."""
    if op.name == "onnx.Identity":
        return op.input(0)
    if op.name == "onnx.Dropout" and _is_inference(op):
        return op.input(0)
    if op.name in ("onnx.Cast", "onnx.CastLike"):
        before, after = op.operands[0].type, op.results[0].type
        element = element_type(before)
        if element is not None and element == element_type(after):
            return op.input(0)
    return None


def _is_inference(op: OnnxOp) -> bool:
    """Whether a dropout passes everything on, and nobody asks for its mask."""
    if any(r is not None and r.first_use is not None for r in op.outputs[1:]):
        return False
    if op.schema.since < 7:
        return bool(op.attribute("is_test"))
    training = op.input(2)
    if training is None:
        return True
    owner = training.owner
    return isinstance(owner, ConstantOp) and not bool(array_of_dense(owner.value).reshape(-1)[0])


def _forward(op: OnnxOp, value: SSAValue) -> None:
    if value.name_hint is None:
        value.name_hint = op.results[0].name_hint
    op.results[0].replace_all_uses_with(value)
    op.detach()
    op.erase()


def _static_contents(op: OnnxOp) -> NDArray[Any] | None:
    """The result that `infer-shapes` found, where all of it is numbers."""
    contents = op.attributes.get(CONTENTS)
    if not isinstance(contents, DimsAttr) or len(op.results) != 1:
        return None
    type = op.results[0].type
    if not isa(type, TensorType[Attribute]) or not type.has_static_shape():
        return None
    numbers = [n for d in contents.data if (n := d.as_int()) is not None]
    if len(numbers) < len(contents.data) or len(numbers) != prod(type.get_shape()):
        return None
    try:
        return np.array(numbers, NUMPY[type.element_type]).reshape(type.get_shape())
    except OverflowError:
        # The operator wraps around where the expression does not.
        return None


def _is_static(value: SSAValue) -> bool:
    return all(d.as_int() is not None for d in shape_of(value))


def _bytes_of(type: Attribute) -> int:
    if not isa(type, TensorType[Attribute]) or not type.has_static_shape():
        return 0
    return prod(type.get_shape()) * NUMPY[type.element_type].itemsize


def _is_foldable(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    array = cast("NDArray[Any]", value)
    if array.dtype.kind in "OUS":
        return False
    return array.size <= LARGEST_CONSTANT or str(element_of_numpy(array.dtype)) in DTYPES


def remove_dead(block: Block) -> None:
    """Erases the ops of a block, and of its regions, that nothing needs."""
    for op in reversed(list(block.ops)):
        if op.has_trait(IsTerminator) or any(r.first_use is not None for r in op.results):
            for region in op.regions:
                remove_dead(region.block)
        elif op.has_trait(Pure) or _is_unused_control(op):
            op.detach()
            op.erase()


def _is_unused_control(op: Operation) -> bool:
    """Whether an operator with regions does nothing but make values, and nobody uses those."""
    return isinstance(op, OnnxOp) and bool(op.regions)
