"""Small modules of the mllm dialect, made by hand, with seeded weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, StringAttr, f32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.locations import named as location
from mllm_compiler.dialects.mllm import Activation, BinaryKind, BoundAttr, CacheAttr, PipelineOp
from mllm_compiler.passes.graphs import block_of, named
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]


@dataclass
class Graph:
    """A function under construction."""

    name: str
    role: str
    store: WeightStore
    arguments: dict[str, Attribute]
    seed: int = 0
    func: FuncOp = field(init=False)

    def __post_init__(self) -> None:
        self.func = FuncOp(self.name, (list(self.arguments.values()), []))
        self.func.properties["arg_attrs"] = named(self.arguments)
        self.func.attributes["mllm.role"] = StringAttr(self.role)
        self.rng = np.random.default_rng(self.seed)

    def __getitem__(self, name: str) -> SSAValue:
        return block_of(self.func).args[list(self.arguments).index(name)]

    def add(self, op: Operation) -> SSAValue:
        op.location = location(f"/{self.name}/{len(list(block_of(self.func).ops))}")
        block_of(self.func).add_op(op)
        return op.results[0]

    def weight(self, name: str, *shape: int) -> SSAValue:
        array = (self.rng.standard_normal(shape) / max(1, shape[-1]) ** 0.5).astype(np.float32)
        return self.tensor(name, array)

    def tensor(self, name: str, array: Array) -> SSAValue:
        blob = mllm.BlobAttr.of(self.store.add(array), f32, array.shape)
        return self.add(mllm.WeightOp(blob, name))

    def linear(self, x: SSAValue, name: str, rows: int, *, bias: bool = False) -> SSAValue:
        columns = x.type.get_shape()[-1]  # type: ignore[attr-defined]
        weight = self.weight(f"{name}.weight", rows, columns)
        return self.add(
            mllm.LinearOp(x, weight, self.weight(f"{name}.bias", rows) if bias else None)
        )

    def finish(self, results: dict[str, SSAValue]) -> FuncOp:
        block_of(self.func).add_op(ReturnOp(*results.values()))
        self.func.properties["res_attrs"] = named(results)
        self.func.update_function_type()
        return self.func


def module_of(
    *functions: FuncOp,
    caches: Sequence[CacheAttr] = (),
    edges: Sequence[mllm.EdgeAttr] = (),
    bounds: dict[str, int] | None = None,
) -> ModuleOp:
    listed = [BoundAttr.of(s, n) for s, n in (bounds or {}).items()]
    return ModuleOp([*functions, PipelineOp("small", edges=edges, caches=caches, bounds=listed)])


B, T, P = (Dim.symbol(s) for s in ("batch_size", "sequence_length", "past_sequence_length"))
BOUNDS = {"batch_size": 1, "sequence_length": 32, "past_sequence_length": 64}


def llama(
    folder: Path | None = None,
    *,
    embeds: bool = False,
    layers: int = 2,
    vocabulary: int = 40,
    width: int = 16,
    heads: int = 4,
    kv_heads: int = 2,
    hidden: int = 24,
    max_past: int = 64,
) -> tuple[ModuleOp, WeightStore]:
    """A decoder of SmolLM2's kind with past and present tensors and a tied head."""
    store = WeightStore(folder)
    size = width // heads
    arguments: dict[str, Attribute] = (
        {"inputs_embeds": tensor_of(f32, (B, T, width))}
        if embeds
        else {"input_ids": tensor_of(i64, (B, T))}
    )
    arguments["attention_mask"] = tensor_of(i64, (B, P + T))
    arguments["position_ids"] = tensor_of(i64, (B, T))
    for layer in range(layers):
        for kind in ("key", "value"):
            past = tensor_of(f32, (B, kv_heads, P, size))
            arguments[f"past_key_values.{layer}.{kind}"] = past
    g = Graph("decoder", "language-model", store, arguments)
    table = g.weight("model.embed_tokens.weight", vocabulary, width)
    x = g["inputs_embeds"] if embeds else g.add(mllm.EmbeddingOp(table, g["input_ids"]))
    frequency = g.tensor("inv_freq", np.array([1.0, 0.1][: size // 2], np.float32))
    results: dict[str, SSAValue] = {}
    for layer in range(layers):
        name = f"model.layers.{layer}"
        y = g.add(mllm.RmsNormOp(x, g.weight(f"{name}.norm1", width), epsilon=1e-5))
        q = g.linear(y, f"{name}.q", heads * size)
        k = g.linear(y, f"{name}.k", kv_heads * size)
        v = g.linear(y, f"{name}.v", kv_heads * size)
        q = g.add(mllm.RopeOp(q, g["position_ids"], frequency, heads=heads))
        k = g.add(mllm.RopeOp(k, g["position_ids"], frequency, heads=kv_heads))
        pasts = [g[f"past_key_values.{layer}.{kind}"] for kind in ("key", "value")]
        k, v = (
            g.add(mllm.KvAppendOp(p, n, kv_heads=kv_heads))
            for p, n in zip(pasts, (k, v), strict=True)
        )
        results |= {f"present.{layer}.key": k, f"present.{layer}.value": v}
        attended = mllm.AttentionOp(
            q,
            k,
            v,
            heads=heads,
            kv_heads=kv_heads,
            scale=size**-0.5,
            causal=True,
            key_mask=g["attention_mask"],
        )
        y = g.linear(g.add(attended), f"{name}.o", width)
        x = g.add(mllm.BinaryOp(BinaryKind.ADD, x, y))
        y = g.add(mllm.RmsNormOp(x, g.weight(f"{name}.norm2", width), epsilon=1e-5))
        gate, up = (g.weight(f"{name}.{n}", hidden, width) for n in ("gate", "up"))
        down = g.weight(f"{name}.down", width, hidden)
        y = g.add(mllm.GatedMlpOp(Activation.SILU, y, gate, up, down))
        x = g.add(mllm.BinaryOp(BinaryKind.ADD, x, y))
    x = g.add(mllm.RmsNormOp(x, g.weight("model.norm", width), epsilon=1e-5))
    logits = g.add(mllm.LinearOp(x, table))
    func = g.finish({"logits": logits, **results})
    names = ("past_key_values.{layer}.key", "past_key_values.{layer}.value")
    cache = CacheAttr.of("decoder", *names, "present.{layer}.{kind}", layers)
    bounds = BOUNDS | {"past_sequence_length": max_past}
    return module_of(func, caches=[cache], bounds=bounds), store


def llama_inputs(module: ModuleOp, *, past: int, tokens: int, seed: int = 0) -> dict[str, Array]:
    """Random inputs of a decoder, in the order of its arguments."""
    rng = np.random.default_rng(seed)
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    env = {"batch_size": 1, "sequence_length": tokens, "past_sequence_length": past}
    made: dict[str, Array] = {}
    from mllm_compiler.dialects.types import element_of, shape_of
    from mllm_compiler.passes.graphs import argument_names

    for name, value in zip(argument_names(func), block_of(func).args, strict=True):
        shape = tuple(d.evaluate(env) for d in shape_of(value))
        if name == "attention_mask":
            made[name] = np.ones(shape, np.int64)
        elif name == "position_ids":
            made[name] = np.arange(past, past + tokens, dtype=np.int64)[None]
        elif element_of(value) == i64:
            made[name] = rng.integers(0, 40, shape)
        else:
            made[name] = rng.standard_normal(shape).astype(np.float32)
    return made
