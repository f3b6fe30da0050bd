"""The meanings of ONNX Runtime's operators, against onnxruntime itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from mllm_compiler.dialects import make_context
from mllm_compiler.importer import import_model
from mllm_compiler.passes.infer_shapes import InferShapes
from mllm_compiler.reference import run_function

Arrays = Mapping[str, np.ndarray | None]
RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def tables(rows: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(rows)[:, None] / 100 ** (np.arange(half) / half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


COS, SIN = tables(16, 4)
WIDE_COS, WIDE_SIN = tables(16, 8)
MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)

CASES: list[tuple[str, str, Arrays, dict[str, Any], int]] = [
    ("gelu", "Gelu", {"x": f32(3, 8)}, {}, 1),
    ("fast gelu", "FastGelu", {"x": f32(3, 8), "b": f32(8)}, {}, 1),
    ("fast gelu, no bias", "FastGelu", {"x": f32(3, 8)}, {}, 1),
    ("bias gelu", "BiasGelu", {"x": f32(3, 8), "b": f32(8)}, {}, 1),
    ("quick gelu", "QuickGelu", {"x": f32(3, 8)}, {"alpha": 1.5}, 1),
    (
        "skip layer norm",
        "SkipLayerNormalization",
        {"x": f32(2, 3, 8), "s": f32(2, 3, 8), "g": f32(8), "b": f32(8), "bias": f32(8)},
        {"epsilon": 1e-3},
        4,
    ),
    (
        "skip layer norm, no beta",
        "SkipLayerNormalization",
        {"x": f32(2, 3, 8), "s": f32(2, 3, 8), "g": f32(8)},
        {},
        1,
    ),
    (
        "skip rms norm",
        "SkipSimplifiedLayerNormalization",
        {"x": f32(2, 3, 8), "s": f32(2, 3, 8), "g": f32(8), "bias": f32(8)},
        {},
        4,
    ),
    (
        "embed layer norm",
        "EmbedLayerNormalization",
        {
            "ids": RNG.integers(0, 9, (2, 4), dtype=np.int32),
            "segments": RNG.integers(0, 2, (2, 4), dtype=np.int32),
            "words": f32(9, 8),
            "positions": f32(6, 8),
            "kinds": f32(2, 8),
            "g": f32(8),
            "b": f32(8),
            "mask": MASK,
        },
        {},
        2,
    ),
    ("fused matmul", "FusedMatMul", {"a": f32(2, 5, 3), "b": f32(2, 4, 5)},
     {"alpha": 0.5, "transA": 1, "transB": 1}, 1),
    ("fused matmul, batch", "FusedMatMul", {"a": f32(3, 2, 5), "b": f32(2, 5, 4)},
     {"transBatchA": 1}, 1),
    ("matmul 4 bits", "MatMulNBits",
     {"a": f32(2, 3, 40), "b": u8(6, 3, 8), "s": f32(18)},
     {"K": 40, "N": 6, "bits": 4, "block_size": 16}, 1),
    ("matmul 4 bits, zero points", "MatMulNBits",
     {"a": f32(2, 64), "b": u8(6, 2, 16), "s": f32(12), "z": u8(6)},
     {"K": 64, "N": 6, "bits": 4, "block_size": 32}, 1),
    ("matmul 8 bits", "MatMulNBits",
     {"a": f32(2, 32), "b": u8(6, 1, 32), "s": f32(6)},
     {"K": 32, "N": 6, "bits": 8, "block_size": 32}, 1),
    ("dynamic matmul", "DynamicQuantizeMatMul",
     {"a": f32(3, 8), "b": u8(8, 5), "s": np.array([0.1], np.float32), "z": u8(1), "c": f32(5)},
     {}, 1),
    ("integer matmul", "MatMulIntegerToFloat",
     {"a": u8(3, 8), "b": u8(8, 5), "sa": np.array(0.1, np.float32),
      "sb": np.array(0.2, np.float32), "za": np.array(3, np.uint8), "zb": np.array(9, np.uint8)},
     {}, 1),
    ("quantize", "QuantizeLinear",
     {"x": f32(3, 4), "s": np.abs(f32(4)) / 50 + 0.01, "z": u8(4)}, {"axis": 1}, 1),
    ("dequantize", "DequantizeLinear",
     {"x": u8(3, 4), "s": f32(3), "z": u8(3)}, {"axis": 0}, 1),
    ("rotary", "RotaryEmbedding",
     {"x": f32(2, 3, 16), "p": np.array([[0, 1, 2], [4, 5, 6]]), "c": COS, "s": SIN}, {}, 1),
    ("rotary, interleaved", "RotaryEmbedding",
     {"x": f32(2, 3, 16), "p": np.array([3]), "c": COS, "s": SIN}, {"interleaved": 1}, 1),
    ("rotary, part of a head", "RotaryEmbedding",
     {"x": f32(2, 2, 3, 12), "p": np.array([3]), "c": COS, "s": SIN},
     {"rotary_embedding_dim": 8, "num_heads": 2}, 1),
    ("attention", "Attention",
     {"x": f32(2, 4, 8), "w": f32(8, 24), "b": f32(24), "mask": MASK}, {"num_heads": 2}, 1),
    ("attention, causal with past", "Attention",
     {"x": f32(2, 4, 8), "w": f32(8, 24), "b": f32(24), "mask": None, "past": f32(2, 2, 2, 3, 4)},
     {"num_heads": 2, "unidirectional": 1}, 2),
    ("multi head attention", "MultiHeadAttention",
     {"q": f32(2, 3, 8), "k": f32(2, 4, 8), "v": f32(2, 4, 8), "b": f32(24), "m": MASK},
     {"num_heads": 2}, 1),
    ("multi head attention, cache", "MultiHeadAttention",
     {"q": f32(2, 3, 8), "k": f32(2, 3, 8), "v": f32(2, 3, 8), "b": None, "m": None,
      "bias": f32(1, 2, 3, 5), "pk": f32(2, 2, 2, 4), "pv": f32(2, 2, 2, 4)},
     {"num_heads": 2, "scale": 0.3}, 3),
    ("grouped attention", "GroupQueryAttention",
     {"q": f32(1, 3, 64), "k": f32(1, 3, 32), "v": f32(1, 3, 32), "pk": f32(1, 2, 2, 16),
      "pv": f32(1, 2, 2, 16), "l": np.array([4], np.int32), "t": np.array(5, np.int32),
      "c": WIDE_COS, "s": WIDE_SIN},
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3),
    ("grouped attention, window", "GroupQueryAttention",
     {"q": f32(1, 6, 64), "k": None, "v": None, "pk": None, "pv": None,
      "l": np.array([5], np.int32), "t": np.array(6, np.int32)},
     {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 2}, 1),
]  # fmt: skip


def model_of(op: str, arrays: Arrays, attributes: dict[str, Any], outputs: int) -> onnx.ModelProto:
    names = [name if array is not None else "" for name, array in arrays.items()]
    results = [f"out{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in arrays.items()
        if a is not None
    ]
    out = [helper.make_empty_tensor_value_info(r) for r in results]
    graph = helper.make_graph([node], "g", inputs, out)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "outputs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_equals_onnxruntime(
    op: str, arrays: Arrays, attributes: dict[str, Any], outputs: int, tmp_path: Path
) -> None:
    model = model_of(op, arrays, attributes, outputs)
    feeds = {n: a for n, a in arrays.items() if a is not None}
    session = ort.InferenceSession(model.SerializeToString())
    expected = session.run(None, feeds)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    imported = import_model(path)
    InferShapes().apply(make_context(imported.store), imported.module)
    imported.module.verify()
    # The executor compares each result with the type that shape inference gave it.
    results = run_function(imported.module, "m", feeds, imported.store)
    for name, reference in zip((o.name for o in session.get_outputs()), expected, strict=True):
        if np.asarray(reference).size == 0:
            continue
        assert results[name].dtype == reference.dtype
        np.testing.assert_allclose(results[name], reference, rtol=2e-4, atol=2e-5)
