"""`lift-patch-embed`: patches of an image become tokens by one op; tolerance 1e-5.

    %0 = mllm.conv %pixels, %w, %b {strides = array<i64: 4, 4>, ...} : (...) -> tensor<1x5x2x2xf32>
    %1 = mllm.reshape %0 : (tensor<1x5x2x2xf32>) -> tensor<1x5x4xf32>
    %2 = mllm.transpose %1 {perm = array<i64: 0, 2, 1>} : (tensor<1x5x4xf32>) -> tensor<1x4x5xf32>
    %3 = mllm.concat %cls, %2 {axis = 1 : i64} : (tensor<1x1x5xf32>, ...) -> tensor<1x5x5xf32>
    %4 = mllm.binary add %3, %position : (tensor<1x5x5xf32>, tensor<1x5x5xf32>) -> tensor<1x5x5xf32>

becomes

    %4 = mllm.patch_embed %pixels, %w bias(%b : tensor<5xf32>) cls(%cls : tensor<1x1x5xf32>)
      position(%position : tensor<1x5x5xf32>) {patch = 4 : i64} : (...) -> tensor<1x5x5xf32>

where the kernel is its own stride. Class token and position join where they follow. The sums are
taken in another order, hence the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    BroadcastOp,
    ConcatOp,
    ConvOp,
    PatchEmbedOp,
    ReshapeOp,
    TransposeOp,
)
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _patches(op: TransposeOp, rewriter: PatternRewriter) -> None:
    flat = made_by(op.x, ReshapeOp) if op.permutation == (0, 2, 1) else None
    conv = made_by(flat.x, ConvOp) if flat is not None else None
    if flat is None or conv is None or not _cuts_patches(conv):
        return
    if not flat.x.has_one_use() or not op.x.has_one_use():
        return
    if shape_of(flat.result)[:2] != shape_of(conv.result)[:2]:
        return
    substitute(rewriter, op, PatchEmbedOp(conv.x, conv.weight, bias=conv.bias))


def _cuts_patches(conv: ConvOp) -> bool:
    """Whether the windows of a convolution tile the image, in squares."""
    strides, pads, dilations = conv.window
    kernel = [k.as_int() for k in shape_of(conv.weight)[2:]]
    square = len(kernel) == 2 and kernel[0] == kernel[1] is not None
    square = square and list(strides) == kernel and not any(pads)
    return square and set(dilations) == {1} and conv.groups.value.data == 1


def _class_token(op: ConcatOp, rewriter: PatternRewriter) -> None:
    if len(op.xs) != 2 or op.axis.value.data != 1:
        return
    embed = made_by(op.xs[1], PatchEmbedOp)
    if embed is None or embed.cls is not None or embed.position is not None:
        return
    token = _same_for_all(op.xs[0])
    width = shape_of(embed.weight)[0]
    if token is None or not op.xs[1].has_one_use() or shape_of(token)[2] != width:
        return
    made = PatchEmbedOp(embed.pixels, embed.weight, bias=embed.bias, cls=token)
    substitute(rewriter, op, made)


def _same_for_all(value: SSAValue) -> SSAValue | None:
    """[1, 1, N], of which the value [B, 1, N] repeats the batch."""
    wide = made_by(value, BroadcastOp)
    token = wide.x if wide is not None else value
    dims = [d.as_int() for d in shape_of(token)]
    return token if len(dims) == 3 and dims[:2] == [1, 1] else None


def _position(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not BinaryKind.ADD:
        return
    for tokens, position in ((op.a, op.b), (op.b, op.a)):
        embed = made_by(tokens, PatchEmbedOp)
        if embed is None or embed.position is not None or not tokens.has_one_use():
            continue
        dims = shape_of(tokens)
        if shape_of(position) != (type(dims[0]).const(1), *dims[1:]):
            continue
        made = PatchEmbedOp(
            embed.pixels, embed.weight, bias=embed.bias, cls=embed.cls, position=position
        )
        substitute(rewriter, op, made)
        return


@dataclass(frozen=True)
class LiftPatchEmbed(ModulePass):
    """Recognises patch embeddings."""

    name = "lift-patch-embed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(
            op,
            On(TransposeOp, _patches),
            On(ConcatOp, _class_token),
            On(BinaryOp, _position),
        )
