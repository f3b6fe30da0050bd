"""Small pipelines of several graphs, made by hand: eyes with a projector, and a Whisper."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import Activation, BinaryKind, CacheAttr, EdgeAttr, UnaryKind
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, module_of

B, T, P = (Dim.symbol(s) for s in ("batch_size", "decoder_sequence_length", "past_length"))


def attend(
    g: Graph, x: SSAValue, source: SSAValue, name: str, heads: int, *, causal: bool = False
) -> SSAValue:
    """Multi-head attention of x to a source, with projections."""
    width = shape_of(x)[-1].as_int() or 0
    q = g.linear(x, f"{name}.q", width, bias=True)
    k, v = (g.linear(source, f"{name}.{n}", width) for n in ("k", "v"))
    options = {"heads": heads, "kv_heads": heads, "scale": (width // heads) ** -0.5}
    if x is source:
        return g.linear(g.add(mllm.AttentionOp(q, k, v, causal=causal, **options)), name, width)
    return g.linear(g.add(mllm.CrossAttnOp(q, k, v, **options)), name, width)


def norm(g: Graph, x: SSAValue, name: str) -> SSAValue:
    width = shape_of(x)[-1].as_int() or 0
    weights = [g.weight(f"{name}.{n}", width) for n in ("weight", "bias")]
    return g.add(mllm.LayerNormOp(x, *weights, epsilon=1e-5))


def plus(g: Graph, a: SSAValue, b: SSAValue) -> SSAValue:
    return g.add(mllm.BinaryOp(BinaryKind.ADD, a, b))


def feed_forward(g: Graph, x: SSAValue, name: str) -> SSAValue:
    width = shape_of(x)[-1].as_int() or 0
    w1, w2 = g.weight(f"{name}.1", 3 * width, width), g.weight(f"{name}.2", width, 3 * width)
    biases = {"b1": g.weight(f"{name}.b1", 3 * width), "b2": g.weight(f"{name}.b2", width)}
    return g.add(mllm.MlpOp(Activation.GELU, x, w1, w2, **biases))


def eyes() -> tuple[ModuleOp, WeightStore]:
    """A vision encoder with a class token, and a projector that pools 4 x 4 patches to 2 x 2."""
    store, width = WeightStore(), 16
    g = Graph("vision", "encoder", store, {"pixel_values": tensor_of(f32, (B, 3, 12, 12))})
    patches = mllm.PatchEmbedOp(
        g["pixel_values"],
        g.weight("patch.weight", width, 3, 3, 3),
        bias=g.weight("patch.bias", width),
        cls=g.weight("cls", 1, 1, width),
        position=g.weight("position", 1, 17, width),
    )
    x = g.add(patches)
    for layer in range(2):
        y = norm(g, x, f"{layer}.norm1")
        y = attend(g, y, y, f"{layer}.attention", 2)
        scaled = g.add(mllm.BinaryOp(BinaryKind.MUL, y, g.weight(f"{layer}.scale", width)))
        x = plus(g, x, scaled)
        x = plus(g, x, feed_forward(g, norm(g, x, f"{layer}.norm2"), f"{layer}.mlp"))
    x = norm(g, x, "norm")
    vision = g.finish({"last_hidden_state": x})
    p = Graph("projector", "projector", store, {"features": tensor_of(f32, (B, 17, width))}, seed=1)
    y = p.add(mllm.SliceOp(p["features"], (0, 1, 0), (B, 16, width)))
    y = p.add(mllm.TransposeOp(p.add(mllm.ReshapeOp(y, (B, 4, 4, width))), (0, 3, 1, 2)))
    pool = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)}
    y = p.add(mllm.PoolOp(mllm.PoolKind.AVERAGE, y, **pool))
    y = p.add(mllm.ReshapeOp(p.add(mllm.TransposeOp(y, (0, 2, 3, 1))), (B, 4, width)))
    y = p.add(mllm.UnaryOp(UnaryKind.GELU, p.linear(y, "fc1", 24, bias=True)))
    projector = p.finish({"tokens": p.linear(y, "fc2", 20)})
    edges = [EdgeAttr.of("projector", "features", "vision", "last_hidden_state")]
    return module_of(vision, projector, edges=edges, bounds={"batch_size": 2}), store


MELS, FRAMES, WIDTH, HEADS, VOCABULARY = 8, 12, 12, 2, 30


def whisper() -> tuple[ModuleOp, WeightStore]:
    """Encoder, first decoder step and decoder with past; equal weights in both decoders."""
    store = WeightStore()
    g = Graph("encoder", "encoder", store, {"input_features": tensor_of(f32, (B, MELS, FRAMES))})
    x = g["input_features"]
    for i, stride in enumerate((1, 2)):
        channels = MELS if i == 0 else WIDTH
        weight, bias = g.weight(f"conv{i}", WIDTH, channels, 3), g.weight(f"conv{i}.bias", WIDTH)
        windows = {"strides": (stride,), "pads": (1, 1), "dilations": (1,)}
        x = g.add(mllm.UnaryOp(UnaryKind.GELU, g.add(mllm.ConvOp(x, weight, bias, **windows))))
    x = g.add(mllm.TransposeOp(x, (0, 2, 1)))
    x = plus(g, x, g.weight("positions", FRAMES // 2, WIDTH))
    y = norm(g, x, "norm1")
    x = plus(g, x, attend(g, y, y, "attention", HEADS))
    x = plus(g, x, feed_forward(g, norm(g, x, "norm2"), "mlp"))
    encoder = g.finish({"last_hidden_state": norm(g, x, "norm")})
    first, later = decoder(store, with_past=False), decoder(store, with_past=True)
    edges = [EdgeAttr.of("decoder", "encoder_hidden_states", "encoder", "last_hidden_state")]
    for kind in ("key", "value"):
        past, present = f"past_key_values.0.encoder.{kind}", f"present.0.encoder.{kind}"
        edges.append(EdgeAttr.of("decoder_with_past", past, "decoder", present))
    names = ("past_key_values.{layer}.decoder.key", "past_key_values.{layer}.decoder.value")
    caches = [
        CacheAttr.of(graph, *names, "present.{layer}.decoder.{kind}", 1)
        for graph in ("decoder", "decoder_with_past")
    ]
    bounds = {"batch_size": 1, "decoder_sequence_length": 8, "past_length": 16}
    return module_of(encoder, first, later, edges=edges, caches=caches, bounds=bounds), store


def decoder(store: WeightStore, *, with_past: bool) -> object:
    size, role = WIDTH // HEADS, "decoder-with-past" if with_past else "decoder"
    arguments: dict[str, Attribute] = {"input_ids": tensor_of(i64, (B, T))}
    if with_past:
        for side, length in (("decoder", P), ("encoder", Dim.const(FRAMES // 2))):
            for kind in ("key", "value"):
                past = tensor_of(f32, (B, HEADS, length, size))
                arguments[f"past_key_values.0.{side}.{kind}"] = past
    else:
        hidden = tensor_of(f32, (B, FRAMES // 2, WIDTH))
        arguments["encoder_hidden_states"] = hidden
    g = Graph(role.replace("-", "_"), role, store, arguments, seed=5)
    names = ("table", "positions", "q", "k", "v", "o", "cq", "co")
    shapes = {"table": (VOCABULARY, WIDTH), "positions": (16, WIDTH)}
    w = {n: g.weight(n, *shapes.get(n, (WIDTH, WIDTH))) for n in names}
    sides = {n: g.weight(n, WIDTH) for n in ("norm.weight", "norm.bias")}
    cross = {n: g.weight(n, WIDTH, WIDTH) for n in ("ck", "cv")}
    start = P if with_past else Dim.const(0)
    place = g.add(mllm.IotaOp(T, start))
    x = plus(
        g,
        g.add(mllm.EmbeddingOp(w["table"], g["input_ids"])),
        g.add(mllm.EmbeddingOp(w["positions"], place)),
    )
    y = g.add(mllm.LayerNormOp(x, *sides.values(), epsilon=1e-5))
    q, k, v = (g.add(mllm.LinearOp(y, w[n])) for n in "qkv")
    options = {"heads": HEADS, "kv_heads": HEADS, "scale": size**-0.5}
    results: dict[str, SSAValue] = {}
    if with_past:
        pasts = [g[f"past_key_values.0.decoder.{kind}"] for kind in ("key", "value")]
        k, v = (
            g.add(mllm.KvAppendOp(p, n, kv_heads=HEADS)) for p, n in zip(pasts, (k, v), strict=True)
        )
        results = {"present.0.decoder.key": k, "present.0.decoder.value": v}
    else:
        results = {f"present.0.decoder.{n}": split(g, x) for n, x in (("key", k), ("value", v))}
    attended = g.add(mllm.AttentionOp(q, k, v, causal=True, **options))
    x = plus(g, x, g.add(mllm.LinearOp(attended, w["o"])))
    y = g.add(mllm.LayerNormOp(x, *sides.values(), epsilon=1e-5))
    if with_past:
        keys, values = (g[f"past_key_values.0.encoder.{kind}"] for kind in ("key", "value"))
    else:
        hidden = g["encoder_hidden_states"]
        keys, values = (split(g, g.add(mllm.LinearOp(hidden, cross[n]))) for n in ("ck", "cv"))
        results |= {"present.0.encoder.key": keys, "present.0.encoder.value": values}
    y = g.add(mllm.CrossAttnOp(g.add(mllm.LinearOp(y, w["cq"])), keys, values, **options))
    x = plus(g, x, g.add(mllm.LinearOp(y, w["co"])))
    return g.finish({"logits": g.add(mllm.LinearOp(x, w["table"])), **results})


def split(g: Graph, x: SSAValue) -> SSAValue:
    """[B, S, H*D] -> [B, H, S, D]."""
    batch, tokens, _ = shape_of(x)
    parted = g.add(mllm.ReshapeOp(x, (batch, tokens, HEADS, WIDTH // HEADS)))
    return g.add(mllm.TransposeOp(parted, (0, 2, 1, 3)))


def features(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, MELS, FRAMES)).astype(np.float32)
