"""The meanings of ops of the `mllm` dialect, against the ONNX standard's own reference."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import TensorType

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import PoolKind, ReduceKind
from mllm_compiler.dialects.types import ELEMENTS
from tests.reference.single_op import RNG, close, real, run, run_constant, standard

REDUCE = {
    ReduceKind.SUM: "ReduceSum",
    ReduceKind.MEAN: "ReduceMean",
    ReduceKind.MAX: "ReduceMax",
    ReduceKind.MIN: "ReduceMin",
    ReduceKind.PROD: "ReduceProd",
    ReduceKind.L1: "ReduceL1",
    ReduceKind.L2: "ReduceL2",
    ReduceKind.SUM_SQUARE: "ReduceSumSquare",
    ReduceKind.LOG_SUM: "ReduceLogSum",
    ReduceKind.LOG_SUM_EXP: "ReduceLogSumExp",
}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("kind", REDUCE)
def test_reduce(kind: ReduceKind, keepdims: bool) -> None:
    x = np.abs(real(2, 3, 4))
    ours = run(lambda v: mllm.ReduceOp(kind, v, [0, 2], keepdims=keepdims), x)[0]
    axes = np.array([0, 2])
    close(ours, standard(REDUCE[kind], [x, axes], keepdims=int(keepdims))[0])


def test_norms_and_softmax() -> None:
    x, w, b = real(2, 3, 8), real(8), real(8)
    ours = run(lambda x, w, b: mllm.LayerNormOp(x, w, b, epsilon=1e-3), x, w, b)[0]
    close(ours, standard("LayerNormalization", [x, w, b], epsilon=1e-3)[0])
    ours = run(lambda x, w: mllm.RmsNormOp(x, w, epsilon=1e-3), x, w)[0]
    close(ours, standard("RMSNormalization", [x, w], epsilon=1e-3)[0])
    close(run(lambda x: mllm.SoftmaxOp(x, 1), x)[0], standard("Softmax", [x], axis=1)[0])


def test_products_and_tables() -> None:
    x, w, b = real(2, 3, 8), real(5, 8), real(5)
    close(
        run(mllm.LinearOp, x, w, b)[0],
        standard("Gemm", [x.reshape(6, 8), w, b], transB=1)[0].reshape(2, 3, 5),
    )
    other = real(2, 8, 4)
    close(run(mllm.MatmulOp, x, other)[0], standard("MatMul", [x, other])[0])
    ids = np.array([[0, 4], [2, 1]])
    close(run(mllm.EmbeddingOp, w, ids)[0], standard("Gather", [w, ids])[0])
    close(
        run(lambda x, i: mllm.GatherOp(x, i, 2), x, ids)[0], standard("Gather", [x, ids], axis=2)[0]
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(groups: int) -> None:
    x, w, b = real(2, 4, 9, 8), real(6, 4 // groups, 3, 2), real(6)
    shape = {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 1]}
    ours = run(lambda x, w, b: mllm.ConvOp(x, w, b, groups=groups, **shape), x, w, b)[0]
    close(ours, standard("Conv", [x, w, b], group=groups, **shape)[0])


@pytest.mark.parametrize("padded", [False, True])
def test_pooling(padded: bool) -> None:
    x = real(1, 2, 7, 7)
    shape = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    ours = run(lambda x: mllm.PoolOp(PoolKind.MAX, x, kernel=[3, 3], **shape), x)[0]
    close(ours, standard("MaxPool", [x], kernel_shape=[3, 3], **shape)[0])
    ours = run(
        lambda x: mllm.PoolOp(
            PoolKind.AVERAGE, x, kernel=[3, 3], count_include_pad=padded, **shape
        ),
        x,
    )[0]
    theirs = standard(
        "AveragePool", [x], kernel_shape=[3, 3], count_include_pad=int(padded), **shape
    )[0]
    close(ours, theirs)


@pytest.mark.parametrize("coordinates", mllm.Coordinates)
@pytest.mark.parametrize("mode", mllm.ResizeMode)
def test_resize(mode: mllm.ResizeMode, coordinates: mllm.Coordinates) -> None:
    x, out = real(1, 2, 4, 5), (1, 2, 7, 3)
    kind = TensorType(ELEMENTS[x.dtype], out)
    ours = run(lambda x: mllm.ResizeOp(mode, coordinates, x, kind), x)[0]
    theirs = standard(
        "Resize",
        [x, None, None, np.array(out)],
        mode=str(mode),
        coordinate_transformation_mode=str(coordinates),
        nearest_mode="round_prefer_floor",
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_patch_embedding_is_a_convolution_with_tokens_in_rows() -> None:
    x, w, b = real(2, 3, 8, 12), real(5, 3, 4, 4), real(5)
    cls, position = real(1, 1, 5), real(1, 7, 5)
    conv = standard("Conv", [x, w, b], strides=[4, 4])[0].reshape(2, 5, 6).swapaxes(1, 2)
    theirs = np.concatenate([np.broadcast_to(cls, (2, 1, 5)), conv], 1) + position
    ours = run(
        lambda x, w, b, c, p: mllm.PatchEmbedOp(x, w, bias=b, cls=c, position=p),
        *(x, w, b, cls, position),
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum(exclusive: bool, reverse: bool) -> None:
    flags = {"exclusive": exclusive, "reverse": reverse}
    for x in (real(2, 3, 4), RNG.integers(-9, 9, (2, 3, 4))):
        ours = run(lambda x: mllm.CumsumOp(x, 1, **flags), x)[0]
        numbers = {name: int(flag) for name, flag in flags.items()}
        close(ours, standard("CumSum", [x, np.array(1)], **numbers)[0])


def test_selective_scan() -> None:
    """Against the recurrence solved: what came in at s decays by the steps behind s."""
    x, b, c, state = real(2, 7, 3), real(2, 7, 4), real(2, 7, 4), real(2, 3, 4)
    step, a = np.abs(real(2, 7, 3)), -np.abs(real(3, 4))
    y, last = run(mllm.SelectiveScanOp, x, step, a, b, c, state)
    rate = np.cumsum(step, 1)[..., None] * a
    inputs = (step * x)[..., None] * b[:, :, None]
    for t in range(7):
        kept = np.exp(rate[:, t, None] - rate[:, : t + 1]) * inputs[:, : t + 1]
        states = kept.sum(1) + np.exp(rate[:, t]) * state
        np.testing.assert_allclose(y[:, t], (states * c[:, t, None]).sum(-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last, states, rtol=1e-5, atol=1e-5)


def test_movement() -> None:
    x = real(2, 3, 4)
    close(
        run(lambda x: mllm.TransposeOp(x, [2, 0, 1]), x)[0],
        standard("Transpose", [x], perm=[2, 0, 1])[0],
    )
    close(run(lambda x: mllm.ConcatOp([x, x], -1), x)[0], standard("Concat", [x, x], axis=-1)[0])
    close(run(lambda x: mllm.ReshapeOp(x, [6, 4]), x)[0], x.reshape(6, 4))
    close(
        run(lambda x: mllm.BroadcastOp(x, [5, 2, 3, 4]), x)[0],
        standard("Expand", [x, np.array([5, 2, 3, 4])])[0],
    )
    ours = run(lambda x: mllm.SliceOp(x, [1, 2, 0], [1, 3, 2], [1, -1, 3]), x)[0]
    close(ours, x[1:, ::-1, ::3])
    ours = run(lambda x: mllm.PadOp(x, [0, 1, 0], [2, 0, 1], 9.0), x)[0]
    theirs = standard("Pad", [x, np.array([0, 1, 0, 2, 0, 1]), np.array(9.0, np.float32)])[0]
    close(ours, theirs)
    close(run(lambda x: mllm.PadOp(x, [0, -1, 0], [0, 0, -1]), x)[0], x[:, 1:, :-1])
    close(run_constant(mllm.IotaOp(4, 3, -2)), np.array([3, 1, -1, -3]))
    close(run(lambda x: mllm.CastOp(x, ELEMENTS[np.dtype(np.int64)]), x)[0], x.astype(np.int64))
