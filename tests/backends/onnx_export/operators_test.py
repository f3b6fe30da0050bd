"""Each op of `mllm` as nodes of the standard: ONNX Runtime computes what the reference does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from xdsl.builder import Builder, InsertPoint
from xdsl.dialects.builtin import ModuleOp, f32, i8
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from mllm_compiler.backends.onnx.export import EXPORTERS, export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import Activation, UnaryKind
from mllm_compiler.dialects.types import ELEMENTS, i4, shape_of, ui8
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.fused_parts import PARTS
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.onnx_export.roundtrip import answers
from tests.passes.fused_parts_test import CASES as FUSED

RNG = np.random.default_rng(11)
Shape = tuple[int | str, ...]
Make = Callable[..., Operation]


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ids(limit: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, limit, shape)


def of_op(
    make: Callable[..., Operation], arrays: list[np.ndarray], shapes: list[Shape]
) -> ModuleOp:
    """A module of one op; a shape may name symbols."""
    return of_ops(lambda *values: [make(*values)], arrays, shapes)


def of_ops(
    make: Callable[..., list[Operation]], arrays: list[np.ndarray], shapes: list[Shape]
) -> ModuleOp:
    """A module of ops, the results of the last of which are its own."""
    types = [
        tensor_of(ELEMENTS[a.dtype], [Dim.parse(d) if isinstance(d, str) else d for d in s])
        for a, s in zip(arrays, shapes, strict=True)
    ]
    block = Block(arg_types=types)
    builder = Builder(InsertPoint.at_end(block))
    made = make(*block.args)
    for op in made:
        builder.insert(op)
    op = made[-1]
    builder.insert(ReturnOp(*op.results))
    module = ModuleOp([FuncOp("f", (types, [r.type for r in op.results]), Region(block))])
    module.verify()
    return module


CODES = ids(256, 5, 8).astype(np.uint8)
B, T, S = Dim.symbol("b"), Dim.symbol("t"), Dim.symbol("s")
Q: Shape = ("b", "t", 32)
K: Shape = ("b", "s", 16)
CACHE: Shape = ("b", 2, "s", 8)


def fused_qkv(x, weight, bias, positions=None, inv_freq=None):
    types = [tensor_of(f32, (*shape_of(x)[:2], n)) for n in (8, 4, 4)]
    turn = {"positions": positions, "inv_freq": inv_freq}
    return mllm.QkvOp(x, weight, bias, results=types, heads=4, kv_heads=2, **turn)


def attention(**options: object) -> Make:
    def make(q, k, v, *masks):
        names = [n for n in ("key_mask", "bias") if options.get(n)]
        given = dict(zip(names, masks, strict=True))
        rest = {n: o for n, o in options.items() if n not in names}
        return mllm.AttentionOp(q, k, v, heads=4, kv_heads=2, scale=0.3, **given, **rest)

    return make


KEEP = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]])
CASES: dict[str, tuple[Make, list[np.ndarray], list[Shape]]] = {
    "attention": (attention(), [real(2, 3, 32), real(2, 5, 16), real(2, 5, 16)], [Q, K, K]),
    "attention-cache-layout": (
        attention(causal=True),
        [real(2, 3, 32), real(2, 2, 5, 8), real(2, 2, 5, 8)],
        [Q, CACHE, CACHE],
    ),
    "attention-square-causal": (
        attention(causal=True),
        [real(2, 5, 32), real(2, 5, 16), real(2, 5, 16)],
        [("b", "t", 32), ("b", "t", 16), ("b", "t", 16)],
    ),
    "attention-sees-nothing": (
        attention(causal=True, key_mask=True),
        [real(1, 3, 32), real(1, 3, 16), real(1, 3, 16), np.array([[0, 1, 1]])],
        [("b", "t", 32), ("b", "t", 16), ("b", "t", 16), ("b", "t")],
    ),
    "attention-window": (
        attention(causal=True, window=2),
        [real(2, 3, 32), real(2, 5, 16), real(2, 5, 16)],
        [Q, K, K],
    ),
    "attention-masks": (
        attention(causal=True, key_mask=True, bias=True),
        [real(2, 3, 32), real(2, 5, 16), real(2, 5, 16), KEEP, real(1, 4, 3, 5)],
        [Q, K, K, ("b", "s"), (1, 4, "t", "s")],
    ),
    "attention-key-mask": (
        attention(key_mask=True),
        [real(2, 3, 32), real(2, 5, 16), real(2, 5, 16), KEEP],
        [Q, K, K, ("b", "s")],
    ),
    "cross_attn": (
        lambda q, k, v, m: mllm.CrossAttnOp(q, k, v, heads=4, kv_heads=2, scale=0.3, key_mask=m),
        [real(2, 3, 32), real(2, 5, 16), real(2, 5, 16), KEEP == 1],
        [Q, K, K, ("b", "s")],
    ),
    "rope": (
        lambda x, p, f: mllm.RopeOp(x, p, f, heads=4),
        [real(2, 3, 32), ids(50, 2, 3), np.float32([1, 0.3, 0.1, 0.01])],
        [Q, ("b", "t"), (4,)],
    ),
    "rope-part": (
        lambda x, p, f: mllm.RopeOp(x, p, f, heads=2),
        [real(2, 3, 32), ids(50, 1, 3), np.float32([1, 0.3, 0.1, 0.01])],
        [Q, (1, "t"), (4,)],
    ),
    "rope-pairs": (
        lambda x, p, f: mllm.RopeOp(x, p, f, heads=4, interleaved=True),
        [real(2, 3, 32), ids(50, 2, 3), np.float32([1, 0.3, 0.1])],
        [Q, ("b", "t"), (3,)],
    ),
    "alibi": (
        lambda x: mllm.AlibiOp(f32, T, T + S, heads=6),
        [real(3, 4)],
        [("t", "s")],
    ),
    "kv_append": (
        lambda past, new: mllm.KvAppendOp(past, new, kv_heads=2),
        [real(2, 2, 5, 8), real(2, 3, 16)],
        [CACHE, ("b", "t", 16)],
    ),
    "kv_view": (
        lambda pages, table: mllm.KvViewOp(pages, table, 7),
        [real(5, 2, 4, 3), ids(5, 2, 2)],
        [("n", 2, 4, 3), ("b", 2)],
    ),
    "token_importance": (
        lambda q, k: mllm.TokenImportanceOp(q, k, heads=4),
        [real(2, 5, 32), real(2, 5, 32)],
        [("b", "t", 32)] * 2,
    ),
    "top_k": (lambda x: mllm.TopKOp(x, 3, 1), [real(2, 6, 4)], [("b", 6, 4)]),
    "top_k-by-index": (
        lambda x: mllm.TopKOp(x, T - 2, 1, smallest=True, by_index=True),
        [real(2, 6)],
        [("b", "t")],
    ),
    "token_gather": (mllm.TokenGatherOp, [real(2, 6, 4), ids(6, 2, 3)], [("b", "t", 4), ("b", 3)]),
    "layer_norm-plain": (
        lambda x, b: mllm.LayerNormOp(x, bias=b, epsilon=1e-3),
        [real(2, 6), real(6)],
        [("b", 6), (6,)],
    ),
    "patch_embed": (
        lambda p, w, c: mllm.PatchEmbedOp(p, w, cls=c),
        [real(2, 3, 9, 8), real(5, 3, 4, 4), real(1, 1, 5)],
        [("b", 3, 9, "t"), (5, 3, 4, 4), (1, 1, 5)],
    ),
    "mlp": (
        lambda x, u, d, b: mllm.MlpOp(Activation.GELU_TANH, x, u, d, b2=b),
        [real(2, 3, 4), real(8, 4), real(4, 8), real(4)],
        [("b", "t", 4), (8, 4), (4, 8), (4,)],
    ),
    "quantize-token": (
        lambda x, s: mllm.QuantizeOp(x, s, None, i8),
        [real(2, 3, 8), np.abs(real(2, 3, 1)) / 50 + 0.01],
        [("b", "t", 8), ("b", "t", 1)],
    ),
    "dequantize-token": (
        mllm.DequantizeOp,
        [CODES[:2], np.abs(real(2, 1)), np.uint8([[3], [200]])],
        [("b", 8), ("b", 1), ("b", 1)],
    ),
    "dynamic_quantize": (
        lambda x: mllm.DynamicQuantizeOp(x, ui8, symmetric=False),
        [real(3, 8)],
        [("b", 8)],
    ),
    "dynamic_quantize-token": (
        lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=True, axis=1),
        [real(3, 8)],
        [("b", 8)],
    ),
    "dynamic_quantize-token-asymmetric": (
        lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=False, axis=1),
        [real(3, 8)],
        [("b", 8)],
    ),
    "dynamic_quantize-blocks": (
        lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=True, axis=2, block_size=4),
        [real(2, 3, 8)],
        [("b", "t", 8)],
    ),
    "dynamic_quantize-blocks-asymmetric": (
        lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=False, axis=1, block_size=4),
        [real(2, 8, 3)],
        [("b", 8, "t")],
    ),
    "quantized_linear": (
        lambda x, s, w, v, z, b: mllm.QuantizedLinearOp(x, s, w, v, x_zero=z, bias=b),
        [
            CODES,
            np.array(0.02, np.float32),
            CODES[:4].astype(np.int8),
            np.abs(real(4, 1)) / 50,
            np.array(120, np.uint8),
            real(4),
        ],
        [("b", 8), (), (4, 8), (4, 1), (), (4,)],
    ),
    "quantized_linear-half-scales": (
        mllm.QuantizedLinearOp,
        [
            CODES.astype(np.int8),
            np.abs(real(*CODES.shape[:1], 1)) / 50,
            CODES[:4].astype(np.int8),
            (np.abs(real(4, 1)) / 50).astype(np.float16),
        ],
        [("b", 8), ("b", 1), (4, 8), (4, 1)],
    ),
    **{name: (make, arrays, [a.shape for a in arrays]) for name, (make, arrays) in FUSED.items()},
    "qkv-of-symbols": (
        fused_qkv,
        [real(2, 3, 8), real(16, 8), real(16), ids(9, 2, 3), real(1)],
        [("b", "t", 8), (16, 8), (16,), ("b", "t"), (1,)],
    ),
    "integer_matmul": (
        lambda a, b, z: mllm.IntegerMatmulOp(a, b, a_zero=z),
        [CODES, CODES.T.astype(np.int8), np.array(9, np.uint8)],
        [("b", 8), (8, 5), ()],
    ),
    "integer_matmul-columns": (
        lambda a, b, z: mllm.IntegerMatmulOp(a, b, b_zero=z),
        [CODES, CODES.T.astype(np.int8), np.int8([1, -2, 3, 4, 5])],
        [("b", 8), (8, 5), (5,)],
    ),
    "integer_conv": (
        lambda x, w, z: mllm.IntegerConvOp(
            x, w, x_zero=z, strides=[2, 1], pads=[1, 0, 1, 0], dilations=[1, 1], groups=2
        ),
        [
            ids(256, 1, 4, 6, 5).astype(np.uint8),
            ids(100, 6, 2, 3, 3).astype(np.int8),
            np.array(7, np.uint8),
        ],
        [("b", 4, 6, 5), (6, 2, 3, 3), ()],
    ),
    "slice-back": (
        lambda x: mllm.SliceOp(x, (T - 1, Dim()), (T, Dim.const(2)), (-1, 2)),
        [real(5, 4)],
        [("t", 4)],
    ),
    "cumsum": (
        lambda x: mllm.CumsumOp(x, 1, exclusive=True, reverse=True),
        [real(2, 5)],
        [("b", "t")],
    ),
    "selective_scan": (
        mllm.SelectiveScanOp,
        [
            *(real(2, 5, 3), np.abs(real(2, 5, 3)), -np.abs(real(3, 4))),
            *(real(2, 5, 4), real(2, 5, 4), real(2, 3, 4)),
        ],
        [("b", "t", 3), ("b", "t", 3), (3, 4), ("b", "t", 4), ("b", "t", 4), ("b", 3, 4)],
    ),
    "iota": (
        lambda x: mllm.IotaOp(Dim.parse("((t + 1) floordiv 2) * b"), T - 7, 3),
        [real(2, 5)],
        [("b", "t")],
    ),
    "broadcast-floor": (
        lambda x, y: mllm.BroadcastOp(x, (B, (T - 9) // 2 + 6, Dim.const(3))),
        [real(2, 1, 3), real(4)],
        [("b", 1, 3), ("t",)],
    ),
}
"""An op, its operands, and their dims."""


@pytest.mark.parametrize("opset", [17, 21, 23])
@pytest.mark.parametrize("name", CASES)
def test_an_op_keeps_its_meaning(name: str, opset: int, tmp_path: Path) -> None:
    make, arrays, shapes = CASES[name]
    module = of_op(make, arrays, shapes)
    inputs = {f"arg{i}": a for i, a in enumerate(arrays)}
    wanted = run_function(module, "f", inputs, WeightStore())
    path = tmp_path / "op.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], WeightStore(), opset)))
    for output, got in answers(path, inputs).items():
        assert got.dtype == wanted[output].dtype
        np.testing.assert_allclose(got, wanted[output], rtol=2e-5, atol=2e-5)


def test_blocks_keep_their_meaning_since_opset_21(tmp_path: Path) -> None:
    x, scale = real(4, 8), np.abs(real(4, 2)) + 0.1
    blocks = {"axis": 1, "block_size": 4}

    def make(x: SSAValue, scale: SSAValue) -> list[Operation]:
        codes = mllm.QuantizeOp(x, scale, None, i4, **blocks)
        return [codes, mllm.DequantizeOp(codes.result, scale, **blocks)]

    module = of_ops(make, [x, scale], [x.shape, scale.shape])
    inputs = {"arg0": x, "arg1": scale}
    wanted = run_function(module, "f", inputs, WeightStore())["result0"]
    path = tmp_path / "op.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], WeightStore(), 21)))
    np.testing.assert_allclose(answers(path, inputs)["result0"], wanted, rtol=1e-6)
    with pytest.raises(CompileError, match="MLC-U014"):
        export_graph(graphs(module)[0], WeightStore(), 20)


def test_rows_in_blocks_keep_their_meaning_since_opset_21(tmp_path: Path) -> None:
    x, scale = real(2, 3, 8), np.abs(real(4, 2)) / 50
    weight = ids(100, 4, 8).astype(np.int8)

    def make(x: SSAValue, weight: SSAValue, scale: SSAValue) -> list[Operation]:
        rows = mllm.DynamicQuantizeOp(x, i8, symmetric=False, axis=2, block_size=4)
        product = mllm.QuantizedLinearOp(
            rows.codes, rows.scale, weight, scale, x_zero=rows.zero_point, block_size=4
        )
        return [rows, product]

    arrays = [x, weight, scale]
    module = of_ops(make, arrays, [("b", "t", 8), weight.shape, scale.shape])
    inputs = {f"arg{i}": a for i, a in enumerate(arrays)}
    wanted = run_function(module, "f", inputs, WeightStore())["result0"]
    path = tmp_path / "op.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], WeightStore(), 21)))
    np.testing.assert_allclose(answers(path, inputs)["result0"], wanted, rtol=2e-5, atol=2e-5)
    with pytest.raises(CompileError, match="MLC-U014"):
        export_graph(graphs(module)[0], WeightStore(), 20)


def test_a_block_that_is_cut_short_is_refused() -> None:
    x = real(2, 7)
    module = of_op(
        lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=True, axis=1, block_size=4),
        [x],
        [x.shape],
    )
    with pytest.raises(CompileError, match="MLC-U014"):
        export_graph(graphs(module)[0], WeightStore(), 23)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("kind", list(UnaryKind), ids=str)
def test_a_unary_function_keeps_its_meaning(kind: UnaryKind, opset: int, tmp_path: Path) -> None:
    if kind is UnaryKind.NOT:
        x = np.array([True, False])
    else:
        x = np.float32([0.1, 0.45, 0.8]) + (1 if kind is UnaryKind.ACOSH else 0)
    module = of_op(lambda v: mllm.UnaryOp(kind, v), [x], [x.shape])
    wanted = run_function(module, "f", {"arg0": x}, WeightStore())["result0"]
    path = tmp_path / "op.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], WeightStore(), opset)))
    np.testing.assert_allclose(answers(path, {"arg0": x})["result0"], wanted, rtol=1e-5, atol=1e-6)


def test_every_op_has_an_exporter() -> None:
    assert {*EXPORTERS, *PARTS} == {*mllm.OPS} - {mllm.PipelineOp}
    assert not {*EXPORTERS} & {*PARTS}
