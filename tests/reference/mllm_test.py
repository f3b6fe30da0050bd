"""The meanings of the `mllm` dialect against the ONNX standard's own reference implementation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from xdsl.builder import Builder, InsertPoint
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind, CompareKind, PoolKind, ReduceKind, UnaryKind
from mllm_compiler.dialects.types import ELEMENTS
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore

Array = npt.NDArray[np.generic]
RNG = np.random.default_rng(7)


def real(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def run(make, *arrays: Array) -> list[Array]:
    """Runs the op that `make` builds from one value an array."""
    block = Block(arg_types=[tensor_of(ELEMENTS[a.dtype], a.shape) for a in arrays])
    builder = Builder(InsertPoint.at_end(block))
    op: Operation = make(*block.args)
    builder.insert(op)
    builder.insert(ReturnOp(*op.results))
    types = ([a.type for a in block.args], [r.type for r in op.results])
    module = ModuleOp([FuncOp("f", types, Region(block))])
    module.verify()
    inputs = {f"arg{i}": a for i, a in enumerate(arrays)}
    return list(run_function(module, "f", inputs, WeightStore()).values())


def standard(
    op_type: str, arrays: Sequence[Array | None], *, outputs: int = 1, opset=23, **attributes
) -> list[Array]:
    """Runs one ONNX operator in the standard's reference."""
    names = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    outs = [helper.make_tensor_value_info(r, TensorProto.UNDEFINED, None) for r in results]
    graph = helper.make_graph([node], "g", inputs, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, given)


def close(ours: Array, theirs: Array) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


UNARY = {
    UnaryKind.NEG: ("Neg", {}),
    UnaryKind.ABS: ("Abs", {}),
    UnaryKind.SIGN: ("Sign", {}),
    UnaryKind.CEIL: ("Ceil", {}),
    UnaryKind.FLOOR: ("Floor", {}),
    UnaryKind.ROUND: ("Round", {}),
    UnaryKind.EXP: ("Exp", {}),
    UnaryKind.LOG: ("Log", {}),
    UnaryKind.SQRT: ("Sqrt", {}),
    UnaryKind.RECIPROCAL: ("Reciprocal", {}),
    UnaryKind.SIN: ("Sin", {}),
    UnaryKind.COS: ("Cos", {}),
    UnaryKind.TAN: ("Tan", {}),
    UnaryKind.TANH: ("Tanh", {}),
    UnaryKind.ERF: ("Erf", {}),
    UnaryKind.SIGMOID: ("Sigmoid", {}),
    UnaryKind.RELU: ("Relu", {}),
    UnaryKind.GELU: ("Gelu", {}),
    UnaryKind.GELU_TANH: ("Gelu", {"approximate": "tanh"}),
    UnaryKind.SOFTPLUS: ("Softplus", {}),
    UnaryKind.HARD_SWISH: ("HardSwish", {}),
    UnaryKind.HARD_SIGMOID: ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    UnaryKind.MISH: ("Mish", {}),
    UnaryKind.ISNAN: ("IsNaN", {}),
    UnaryKind.ISINF: ("IsInf", {}),
}


@pytest.mark.parametrize("kind", UNARY)
def test_unary(kind: UnaryKind) -> None:
    x = real(3, 5) * 3
    if kind in (UnaryKind.LOG, UnaryKind.SQRT):
        x = np.abs(x)
    op_type, attributes = UNARY[kind]
    close(run(lambda v: mllm.UnaryOp(kind, v), x)[0], standard(op_type, [x], **attributes)[0])


def test_unary_kinds_without_an_onnx_operator() -> None:
    x = np.abs(real(3, 5)) + 1
    close(run(lambda v: mllm.UnaryOp(UnaryKind.RSQRT, v), x)[0], 1 / np.sqrt(x))
    close(run(lambda v: mllm.UnaryOp(UnaryKind.SILU, v), x)[0], x / (1 + np.exp(-x)))
    flags = np.array([True, False])
    assert run(lambda v: mllm.UnaryOp(UnaryKind.NOT, v), flags)[0].tolist() == [False, True]
    assert len(UNARY) + 3 == len(UnaryKind)


BINARY = {
    BinaryKind.ADD: "Add",
    BinaryKind.SUB: "Sub",
    BinaryKind.MUL: "Mul",
    BinaryKind.DIV: "Div",
    BinaryKind.MIN: "Min",
    BinaryKind.MAX: "Max",
}


@pytest.mark.parametrize("kind", BINARY)
def test_binary_broadcasts(kind: BinaryKind) -> None:
    a, b = real(2, 1, 5), real(3, 1)
    close(run(lambda x, y: mllm.BinaryOp(kind, x, y), a, b)[0], standard(BINARY[kind], [a, b])[0])


def test_power_modulo_and_integer_division() -> None:
    a, b = np.abs(real(4)), real(4)
    close(
        run(lambda x, y: mllm.BinaryOp(BinaryKind.POW, x, y), a, b)[0], standard("Pow", [a, b])[0]
    )
    m, n = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2])
    close(
        run(lambda x, y: mllm.BinaryOp(BinaryKind.MOD, x, y), m, n)[0], standard("Mod", [m, n])[0]
    )
    fractions = standard("Mod", [b, a], fmod=1)[0]
    close(run(lambda x, y: mllm.BinaryOp(BinaryKind.MOD, x, y), b, a)[0], fractions)
    quotient = run(lambda x, y: mllm.BinaryOp(BinaryKind.DIV, x, y), m, n)[0]
    assert quotient.tolist() == [-3, -3, 3, 3]


@pytest.mark.parametrize(
    ("kind", "op_type"),
    [(BinaryKind.AND, "And"), (BinaryKind.OR, "Or"), (BinaryKind.XOR, "Xor")],
)
def test_logic(kind: BinaryKind, op_type: str) -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    close(run(lambda x, y: mllm.BinaryOp(kind, x, y), a, b)[0], standard(op_type, [a, b])[0])


@pytest.mark.parametrize(
    ("kind", "op_type"),
    [
        (CompareKind.EQ, "Equal"),
        (CompareKind.LT, "Less"),
        (CompareKind.LE, "LessOrEqual"),
        (CompareKind.GT, "Greater"),
        (CompareKind.GE, "GreaterOrEqual"),
    ],
)
def test_compare_and_select(kind: CompareKind, op_type: str) -> None:
    a, b = RNG.integers(0, 3, (4, 4)), RNG.integers(0, 3, 4)
    ours = run(lambda x, y: mllm.CompareOp(kind, x, y), a, b)[0]
    close(ours, standard(op_type, [a, b])[0])
    chosen = run(lambda c, x, y: mllm.SelectOp(c, x, y), ours, a, b)[0]
    close(chosen, standard("Where", [ours, a, b])[0])


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


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(kv_heads: int, causal: bool) -> None:
    q, k, v = real(2, 3, 32), real(2, 3, 8 * kv_heads), real(2, 3, 8 * kv_heads)
    shape = {"heads": 4, "kv_heads": kv_heads, "scale": 0.3}
    theirs = standard(
        "Attention",
        [q, k, v],
        q_num_heads=4,
        kv_num_heads=kv_heads,
        scale=0.3,
        is_causal=int(causal),
    )[0]
    close(
        run(lambda q, k, v: mllm.AttentionOp(q, k, v, causal=causal, **shape), q, k, v)[0], theirs
    )
    if not causal:
        close(run(lambda q, k, v: mllm.CrossAttnOp(q, k, v, **shape), q, k, v)[0], theirs)


def test_attention_with_cache_bias_and_key_mask() -> None:
    q, k, v = real(2, 3, 32), real(2, 2, 7, 8), real(2, 2, 7, 8)
    mask, bias = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1]]), real(1, 4, 3, 7)
    seen = np.arange(7)[None] <= np.arange(3)[:, None] + 4
    allowed = seen[None, None] & (mask[:, None, None, :] != 0)
    total = np.where(allowed, bias, np.float32(-1e30)).astype(np.float32)
    heads = q.reshape(2, 3, 4, 8).swapaxes(1, 2).copy()
    theirs = standard("Attention", [heads, k, v, total], scale=0.5)[0]
    ours = run(
        lambda q, k, v, m, b: mllm.AttentionOp(
            q, k, v, heads=4, kv_heads=2, scale=0.5, causal=True, key_mask=m, bias=b
        ),
        *(q, k, v, mask, bias),
    )[0]
    close(ours, theirs.swapaxes(1, 2).reshape(2, 3, 32))


def test_a_window_leaves_the_nearest_keys() -> None:
    q, k, v = real(1, 5, 8), real(1, 5, 8), real(1, 5, 8)
    index = np.arange(5)
    seen = (index[None] <= index[:, None]) & (index[None] > index[:, None] - 2)
    theirs = standard("Attention", [q, k, v, seen], q_num_heads=1, kv_num_heads=1, scale=1.0)[0]
    ours = run(
        lambda q, k, v: mllm.AttentionOp(
            q, k, v, heads=1, kv_heads=1, scale=1.0, causal=True, window=2
        ),
        *(q, k, v),
    )[0]
    close(ours, theirs)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [8, 4])
def test_rope(interleaved: bool, rotary: int) -> None:
    x, positions = real(2, 3, 32), RNG.integers(0, 100, (2, 3))
    inv_freq = (1e4 ** -(np.arange(rotary // 2) / (rotary // 2))).astype(np.float32)
    angles = np.arange(100, dtype=np.float32)[:, None] * inv_freq
    theirs = standard(
        "RotaryEmbedding",
        [x, np.cos(angles), np.sin(angles), positions],
        interleaved=int(interleaved),
        num_heads=4,
        rotary_embedding_dim=0 if rotary == 8 else rotary,
    )[0]
    ours = run(
        lambda x, p, f: mllm.RopeOp(x, p, f, heads=4, interleaved=interleaved),
        *(x, positions, inv_freq),
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_alibi_falls_with_distance_from_the_query() -> None:
    block = mllm.AlibiOp(ELEMENTS[np.dtype(np.float32)], Dim.const(2), Dim.const(4), heads=8)
    ours = run_constant(block)
    assert ours.shape == (1, 8, 2, 4)
    np.testing.assert_allclose(ours[0, 0], [[-1.0, -0.5, 0.0, 0.5], [-1.5, -1.0, -0.5, 0.0]])
    np.testing.assert_allclose(ours[0, :, 1, 2], [-(2.0 ** -(h + 1)) for h in range(8)])


def run_constant(op: Operation) -> Array:
    return run(lambda *_: op)[0]


def test_feed_forward_blocks() -> None:
    x, gate, up, down = real(2, 3, 8), real(16, 8), real(16, 8), real(8, 16)
    b1, b2 = real(16), real(8)
    g = x @ gate.T
    theirs = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    ours = run(lambda *v: mllm.GatedMlpOp(mllm.Activation.SILU, *v), x, gate, up, down)[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    theirs = np.maximum(x @ up.T + b1, 0) @ down.T + b2
    ours = run(
        lambda x, u, d, b, c: mllm.MlpOp(mllm.Activation.RELU, x, u, d, b1=b, b2=c),
        *(x, up, down, b1, b2),
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_cache() -> None:
    past, new = real(2, 3, 5, 4), real(2, 2, 12)
    theirs = np.concatenate([past, new.reshape(2, 2, 3, 4).swapaxes(1, 2)], 2)
    close(run(lambda p, n: mllm.KvAppendOp(p, n, kv_heads=3), past, new)[0], theirs)
    pages, table = real(6, 3, 4, 2), np.array([[5, 0, 3], [1, 2, 4]])
    ours = run(lambda p, t: mllm.KvViewOp(p, t, 10), pages, table)[0]
    for batch, token in np.ndindex(2, 10):
        theirs = pages[table[batch, token // 4], :, token % 4]
        np.testing.assert_array_equal(ours[batch, :, token], theirs)


def test_choice_of_tokens() -> None:
    x = real(2, 9)
    ours = run(lambda x: mllm.TopKOp(x, 3, 1), x)
    theirs = standard("TopK", [x, np.array([3])], outputs=2, axis=1)
    close(ours[0], theirs[0])
    close(ours[1], theirs[1])
    ordered = run(lambda x: mllm.TopKOp(x, 3, 1, by_index=True), x)[1]
    np.testing.assert_array_equal(ordered, np.sort(theirs[1], 1))
    tokens = real(2, 9, 4)
    kept = run(mllm.TokenGatherOp, tokens, ordered)[0]
    np.testing.assert_array_equal(kept[1, 2], tokens[1, ordered[1, 2]])
    score = run(lambda q: mllm.TokenImportanceOp(q, q, heads=2), tokens)[0]
    np.testing.assert_allclose(score.sum(1), np.ones(2), rtol=1e-5)


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


def test_quantisation() -> None:
    x, scale = real(4, 8), np.abs(real(4)) / 50
    zero = RNG.integers(-5, 5, 4).astype(np.int8)
    ours = run(lambda *v: mllm.QuantizeOp(*v, axis=0), x, scale, zero)[0]
    close(ours, standard("QuantizeLinear", [x, scale, zero], axis=0)[0])
    back = run(lambda *v: mllm.DequantizeOp(*v, axis=0), ours, scale, zero)[0]
    close(back, standard("DequantizeLinear", [ours, scale, zero], axis=0)[0])
    sums = RNG.integers(-(1 << 20), 1 << 20, (4, 8)).astype(np.int32)
    multiplier = np.array([1e-4, 2e-4, 1e-3, 5e-5], np.float32)
    ours = run(lambda *v: mllm.RequantizeOp(*v, axis=0), sums, multiplier, zero)[0]
    exact = (
        np.rint(sums.astype(np.float64) * multiplier[:, None].astype(np.float64)) + zero[:, None]
    )
    np.testing.assert_array_equal(ours, exact.clip(-128, 127))
