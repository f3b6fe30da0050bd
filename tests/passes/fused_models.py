"""Models of one fused operator each, seeded, as ONNX: what each is given and what it lifts to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

B, T, P, H, KV, D = 2, 3, 4, 4, 2, 8
W, S = H * D, P + T

Array = np.ndarray


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def caches(half: int = D // 2, count: int = 16) -> dict[str, Array]:
    """Tables of cosines and sines of the positions times 10000^(-i / half)."""
    inv_freq = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
    angles = np.arange(count, dtype=np.float32)[:, None] * inv_freq
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


POSITIONS = np.array([[0, 1, 2], [5, 3, 9]], np.int64)


@dataclass(frozen=True)
class Case:
    """A node with its inputs.

    Attributes:
        name: What is special.
        operator: Its operator; `com.microsoft` where a dot stands before the name.
        inputs: By name, in the order of the node; None for an absent one.
        attributes: Of the node.
        weights: The inputs that are initialisers.
        outputs: Whether each output is there.
        lifted: How many of which ops it becomes.
        runtime: Whether ONNX Runtime has a kernel; else the reference of `onnx` ops says.
        opset: Of the standard.
        kinds: The element types of outputs that are not float32.
    """

    name: str
    operator: str
    inputs: Mapping[str, Array | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    weights: Sequence[str] = ()
    outputs: Sequence[bool] = (True,)
    lifted: Mapping[str, int] = field(default_factory=dict)
    runtime: bool = True
    opset: int = 23
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.operator.strip('.')}-{self.name}"

    def model(self) -> onnx.ModelProto:
        domain = "com.microsoft" if self.operator.startswith(".") else ""
        given = {n: v for n, v in self.inputs.items() if v is not None}
        outputs = [f"y{i}" if there else "" for i, there in enumerate(self.outputs)]
        node = helper.make_node(
            self.operator.strip("."),
            [n if v is not None else "" for n, v in self.inputs.items()],
            outputs,
            name="/node",
            domain=domain,
            **self.attributes,
        )
        infos = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(v.dtype), list(v.shape)
            )
            for n, v in given.items()
            if n not in self.weights
        ]
        kinds = [self.kinds.get(o, TensorProto.FLOAT) for o in outputs]
        pairs = zip(outputs, kinds, strict=True)
        results = [helper.make_tensor_value_info(o, k, None) for o, k in pairs if o]
        initialisers = [numpy_helper.from_array(given[n], n) for n in self.weights]
        graph = helper.make_graph([node], "g", infos, results, initialisers)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=11)

    def feeds(self) -> dict[str, Array]:
        return {n: v for n, v in self.inputs.items() if v is not None and n not in self.weights}


def qkv(kv: int = H, keys: int = T) -> dict[str, Array]:
    return {
        "q": floats(1, B, T, W),
        "k": floats(2, B, keys, kv * D),
        "v": floats(3, B, keys, kv * D),
    }


def past(kv: int = H) -> dict[str, Array]:
    return {"past_k": floats(4, B, kv, P, D), "past_v": floats(5, B, kv, P, D)}


COUNTS = {"q_num_heads": H, "kv_num_heads": H}
ONE = {"mllm.attention": 1}
OTHER = {"mllm.cross_attn": 1}
"""What reads three inputs without order or bias attends to another stream."""
CACHED = {"mllm.attention": 1, "mllm.kv_append": 2}
HEADS_FIRST = {
    "q": floats(1, B, H, T, D),
    "k": floats(2, B, KV, S, D),
    "v": floats(3, B, KV, S, D),
}
LOWER = np.tril(np.ones((T, S), np.bool_), 2)

ATTENTION = [
    Case("plain", "Attention", qkv(), COUNTS, lifted=OTHER),
    Case(
        "grouped causal with a cache",
        "Attention",
        {**qkv(KV), "mask": None, **past(KV)},
        {"q_num_heads": H, "kv_num_heads": KV, "is_causal": 1, "scale": 0.25},
        outputs=(True, True, True),
        lifted=CACHED,
    ),
    Case("of four axes", "Attention", HEADS_FIRST, lifted=OTHER),
    Case("of booleans", "Attention", {**HEADS_FIRST, "mask": LOWER}, lifted=ONE),
    Case("of a bias", "Attention", {**HEADS_FIRST, "mask": floats(6, B, 1, T, S)}, lifted=ONE),
    Case("aligned above", "Attention", HEADS_FIRST, {"is_causal": 1}, lifted=ONE),
    Case(
        "with capped scores",
        "Attention",
        {**qkv(), "mask": floats(6, T, T)},
        {**COUNTS, "softcap": 5.0, "is_causal": 1},
        lifted={"mllm.softmax": 1, "mllm.matmul": 2},
    ),
]

ROPE = {"mllm.rope": 1}
X3, X4 = floats(7, B, T, W), floats(8, B, H, T, D)
SPREAD = {"cos": floats(9, 16, D // 2), "sin": floats(10, 16, D // 2)}
ROTARY = [
    Case(
        "by positions",
        "RotaryEmbedding",
        {"x": X4, **caches(), "positions": POSITIONS},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "of three axes",
        "RotaryEmbedding",
        {"x": X3, **caches(), "positions": POSITIONS},
        {"num_heads": H},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "interleaved",
        "RotaryEmbedding",
        {"x": X4, **caches(), "positions": POSITIONS},
        {"interleaved": 1},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "of the first dims",
        "RotaryEmbedding",
        {"x": X4, **caches(2), "positions": POSITIONS},
        {"rotary_embedding_dim": 4},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "by tables of no angles",
        "RotaryEmbedding",
        {"x": X4, **SPREAD, "positions": POSITIONS},
        weights=("cos", "sin"),
        lifted={"mllm.rope": 0, "mllm.concat": 1},
    ),
    Case(
        "by tables that are given",
        "RotaryEmbedding",
        {"x": X4, "cos": floats(9, B, T, D // 2), "sin": floats(10, B, T, D // 2)},
        lifted={"mllm.rope": 0, "mllm.concat": 1},
    ),
    Case(
        "by positions",
        ".RotaryEmbedding",
        {"x": X3, "positions": POSITIONS, **caches()},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "from a first position",
        ".RotaryEmbedding",
        {"x": X4, "positions": np.array([4], np.int64), **caches()},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
    Case(
        "interleaved first dims",
        ".RotaryEmbedding",
        {"x": X3, "positions": POSITIONS, **caches(2)},
        {"interleaved": 1, "num_heads": H, "rotary_embedding_dim": 4},
        weights=("cos", "sin"),
        lifted=ROPE,
    ),
]

MHA = ".MultiHeadAttention"
KEYS = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
MULTI_HEAD = [
    Case("plain", MHA, qkv(), {"num_heads": H}, lifted=OTHER),
    Case(
        "of a bias and a mask of keys",
        MHA,
        {**qkv(), "bias": floats(11, 3 * W), "mask": KEYS},
        {"num_heads": H, "scale": 0.3},
        weights=("bias",),
        lifted=OTHER,
    ),
    Case(
        "of lengths",
        MHA,
        {**qkv(), "bias": None, "mask": np.array([2, 3], np.int32)},
        {"num_heads": H},
        lifted=OTHER,
    ),
    Case(
        "packed",
        MHA,
        {"q": floats(1, B, T, H, 3, D)},
        {"num_heads": H},
        lifted=ONE,
        runtime=False,
    ),
    Case(
        "causal with a cache",
        MHA,
        {**qkv(), "bias": None, "mask": None, "extra": floats(6, B, H, T, S), **past()},
        {"num_heads": H, "unidirectional": 1},
        outputs=(True, True, True),
        lifted=CACHED,
    ),
    Case(
        "of another stream's heads",
        MHA,
        {"q": floats(1, B, T, W), "k": floats(2, B, H, S, D), "v": floats(3, B, H, S, D)},
        {"num_heads": H},
        lifted=OTHER,
    ),
]

GQA = ".GroupQueryAttention"
E = 16
"""The size of a head: ONNX Runtime rotates multiples of 16, and one sequence that has a past."""
NEW = {"q": floats(1, 1, T, H * E), "k": floats(2, 1, T, KV * E), "v": floats(3, 1, T, KV * E)}
OLD = {"past_k": floats(4, 1, KV, P, E), "past_v": floats(5, 1, KV, P, E)}
LENGTHS = {
    "seqlens_k": np.full([1], S - 1, np.int32),
    "total": np.array(S, np.int32),
}
GROUPED = {"num_heads": H, "kv_num_heads": KV}
PACKED_ROWS = floats(12, 1, T, (H + 2 * KV) * E)
GROUP_QUERY = [
    Case(
        "with a cache",
        GQA,
        {**NEW, **OLD, **LENGTHS},
        GROUPED,
        weights=("total",),
        outputs=(True, True, True),
        lifted=CACHED,
    ),
    Case(
        "packed and rotated",
        GQA,
        {"qkv": PACKED_ROWS, "k": None, "v": None, **OLD, **LENGTHS, **caches(E // 2)},
        {**GROUPED, "do_rotary": 1},
        weights=("total", "seqlens_k", "cos", "sin"),
        outputs=(True, True, True),
        lifted={**CACHED, "mllm.rope": 2},
    ),
    Case(
        "in a window",
        GQA,
        {**NEW, **OLD, **LENGTHS},
        {**GROUPED, "local_window_size": 3},
        weights=("total", "seqlens_k"),
        outputs=(True, True, True),
        lifted=CACHED,
    ),
    Case(
        "with capped scores",
        GQA,
        {**NEW, **OLD, **LENGTHS},
        {**GROUPED, "softcap": 4.0, "local_window_size": 3},
        weights=("total",),
        outputs=(True, True, True),
        lifted={"mllm.softmax": 1, "mllm.kv_append": 2},
    ),
]

ROW, GAIN, SHIFT = floats(13, B, T, W), floats(14, W), floats(15, W)
TWO = {"x": ROW, "skip": floats(16, B, T, W), "gamma": GAIN}
IDS = np.array([[1, 4, 2], [0, 3, 5]], np.int32)
BERT = {
    "ids": IDS,
    "segments": IDS % 2,
    "words": floats(17, 8, W),
    "places": floats(18, 8, W),
    "kinds": floats(19, 2, W),
    "gamma": GAIN,
    "beta": SHIFT,
    "mask": KEYS,
}
PACKED = {"x": ROW, "w": floats(20, W, 3 * W), "bias": floats(21, 3 * W)}
REST = [
    Case("plain", "RMSNormalization", {"x": ROW, "w": GAIN}, lifted={"mllm.rms_norm": 1}),
    Case(
        "with its sum",
        ".SkipLayerNormalization",
        {**TWO, "beta": SHIFT, "bias": floats(22, W)},
        outputs=(True, False, False, True),
        lifted={"mllm.layer_norm": 1, "mllm.binary": 2},
    ),
    Case(
        "with its sum",
        ".SkipSimplifiedLayerNormalization",
        TWO,
        {"epsilon": 1e-6},
        outputs=(True, False, False, True),
        lifted={"mllm.rms_norm": 1, "mllm.binary": 1},
    ),
    Case(
        "plain",
        "SimplifiedLayerNormalization",
        {"x": ROW, "w": GAIN},
        {"epsilon": 1e-6},
        lifted={"mllm.rms_norm": 1},
    ),
    Case(
        "plain",
        "SwiGLU",
        {"gate": ROW, "up": floats(26, B, T, W)},
        lifted={"mllm.unary": 1, "mllm.binary": 1},
        runtime=False,
        opset=28,
    ),
    Case("plain", ".BiasGelu", {"x": ROW, "b": GAIN}, lifted={"mllm.unary": 1, "mllm.binary": 1}),
    Case("plain", ".FastGelu", {"x": ROW}, lifted={"mllm.unary": 1}),
    Case("with bias", ".FastGelu", {"x": ROW, "b": GAIN}, lifted={"mllm.unary": 1}),
    Case("as silu", ".QuickGelu", {"x": ROW}, {"alpha": 1.0}, lifted={"mllm.unary": 1}),
    Case(
        "of a mask",
        ".EmbedLayerNormalization",
        BERT,
        weights=("words", "places", "kinds", "gamma", "beta"),
        outputs=(True, True),
        kinds={"y1": TensorProto.INT32},
        lifted={"mllm.embedding": 3, "mllm.layer_norm": 1},
    ),
    Case(
        "turned",
        ".FusedMatMul",
        {"a": floats(23, B, 5, 3), "b": floats(24, B, 4, 5)},
        {"transA": 1, "transB": 1, "alpha": 0.5},
        lifted={"mllm.matmul": 1},
    ),
    Case(
        "of a mask of keys",
        ".Attention",
        {**PACKED, "mask": KEYS},
        {"num_heads": H},
        weights=("w", "bias"),
        lifted={"mllm.attention": 1, "mllm.linear": 3},
    ),
    Case(
        "causal with a cache",
        ".Attention",
        {**PACKED, "mask": None, "past": floats(25, 2, B, H, P, D)},
        {"num_heads": H, "unidirectional": 1},
        weights=("w", "bias"),
        outputs=(True, True),
        lifted=CACHED,
    ),
]

CASES = [*ATTENTION, *ROTARY, *MULTI_HEAD, *GROUP_QUERY, *REST]
