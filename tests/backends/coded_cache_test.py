"""A cache of f16 or of codes in the pages of the C runtime, against the reference.

Keys and values are inputs, so that what is present is equal bit for bit; what attention makes of
it has the tolerance of real numbers. The lowered module has the same meaning on NumPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, f16, f32

from mllm_compiler.backends.c.compile import compile_module
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.fuse_cached_attention import FuseCachedAttention
from mllm_compiler.passes.graphs import argument_names
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.place import Place
from mllm_compiler.passes.plan_memory import PlanMemory
from mllm_compiler.passes.quantise_cache import QuantiseCache
from mllm_compiler.reference import run_function
from mllm_compiler.reference.cpu import CacheState, run_lowered
from mllm_compiler.reference.executor import find_function
from mllm_compiler.reference.kv_cache import half_tokens
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, module_of
from tests.backends.small_pipelines import features, whisper

F32 = NDArray[np.float32]
Arrays = dict[str, NDArray[np.generic]]
HEADS, KV_HEADS, MOST = 4, 2, 1200
T, P = Dim.symbol("sequence_length"), Dim.symbol("past_sequence_length")


def attention(
    bits: int, size: int, *, window: int | None = None, masked: bool = False
) -> tuple[ModuleOp, WeightStore]:
    """One attention over a cache that grows; a key mask where it is asked for."""
    store = WeightStore()
    kinds = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
    types = {n: tensor_of(f32, (Dim.const(1), T, Dim.const(h * size))) for n, h in kinds.items()}
    past = tensor_of(f32, (Dim.const(1), Dim.const(KV_HEADS), P, Dim.const(size)))
    types |= {"past.0.key": past, "past.0.value": past}
    if masked:
        types["bias"] = tensor_of(f32, (Dim.const(1), Dim.const(1), T, P + T))
    g = Graph("decoder", "language-model", store, dict(types))
    scale = None
    if bits < 16:
        blob = store.add(g.rng.uniform(0.5, 3, (KV_HEADS, size)).astype(np.float16))
        weight = mllm.WeightOp(mllm.BlobAttr.of(blob, f16, (KV_HEADS, size)), "k_scale")
        scale = g.add(weight)
    present = tensor_of(f32, (Dim.const(1), Dim.const(KV_HEADS), P + T, Dim.const(size)))
    op = mllm.CachedAttentionOp(
        *(g[n] for n in ("q", "k", "v", "past.0.key", "past.0.value")),
        heads=HEADS,
        kv_heads=KV_HEADS,
        scale=size**-0.5,
        causal=True,
        window=window,
        bias=g["bias"] if masked else None,
        results=[g["q"].type, present, present],
        k_scale=scale,
        cache_bits=bits,
    )
    g.add(op)
    results = {"y": op.result, "present.0.key": op.present_k, "present.0.value": op.present_v}
    names = "past.{layer}.key", "past.{layer}.value", "present.{layer}.{kind}"
    cache = mllm.CacheAttr.of("decoder", *names, 1)
    bounds = {"sequence_length": MOST, "past_sequence_length": MOST}
    module = module_of(g.finish(results), caches=[cache], bounds=bounds)
    module.verify()
    return module, store


def tokens(count: int, size: int, *, masked: bool = False) -> Arrays:
    """Queries, keys and values of many tokens, keys with a loud channel."""
    rng = np.random.default_rng(count)
    made: Arrays = {
        n: rng.standard_normal((1, count, heads * size)).astype(np.float32)
        for n, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    }
    made["k"][:, :, 3] *= 9  # type: ignore[operator]
    if masked:
        made["bias"] = rng.standard_normal((1, 1, count, count)).astype(np.float32)
    return made


def part(given: Arrays, start: int, stop: int) -> Arrays:
    cut = {n: x[:, start:stop] for n, x in given.items() if n != "bias"}
    return cut | {n: x[:, :, start:stop, :stop] for n, x in given.items() if n == "bias"}


def without_past(size: int) -> Arrays:
    return {f"past.0.{k}": np.zeros((1, KV_HEADS, 0, size), np.float32) for k in ("key", "value")}


def by_c(module: ModuleOp, store: WeightStore, given: Arrays, cuts: Sequence[int]) -> Arrays:
    """The results of all runs together, and what is present at the end."""
    run_passes(module, [Place(target="c"), LowerToCpu(), PlanMemory()], make_context(store))
    module.verify()
    parts, last = list[F32](), Arrays()
    with CRunner(emit(module), store, threads=2) as runner:
        for start, stop in itertools.pairwise(cuts):
            last = runner.run("decoder", part(given, start, stop))
            parts.append(last["y"].astype(np.float32))
    return last | {"y": np.concatenate(parts, 1)}


def by_lowered(module: ModuleOp, store: WeightStore, given: Arrays, cuts: Sequence[int]) -> Arrays:
    """The same of the lowered module on NumPy."""
    state, parts = CacheState(), list[F32]()
    for start, stop in itertools.pairwise(cuts):
        y = run_lowered(module, "decoder", part(given, start, stop), store, state)["y"]
        parts.append(y.astype(np.float32))
    present = {"present.0.key": state.keys[0], "present.0.value": state.values[0]}
    return {"y": np.concatenate(parts, 1), **present}


CUTS = {
    "whole": (0, 1100),
    "tokens at the border": (0, 765, 766, 767, 768, 769, 770, 1022, 1023, 1024, 1025, 1100),
    "chunks": (0, 256, 512, 768, 1024, 1100),
    "odd": (0, 1, 300, 769, 1000, 1100),
}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("size", [16, 80])
def test_c_stores_what_the_reference_means(bits: int, size: int, cuts: Sequence[int]) -> None:
    """Queries behind token 768 read older ones by 4 bits, but the sinks, however runs are cut."""
    module, store = attention(bits, size)
    given = tokens(cuts[-1], size)
    want = run_function(module, "decoder", given | without_past(size), store)
    found = by_c(module, store, given, cuts)
    lowered = by_lowered(module, store, given, cuts)
    for name in ("present.0.key", "present.0.value"):
        np.testing.assert_array_equal(lowered[name], want[name])
        recent = slice(None) if bits > 4 else slice(-512, None)
        np.testing.assert_array_equal(found[name][:, :, recent], want[name][:, :, recent])
        np.testing.assert_array_equal(found[name][:, :, :32], want[name][:, :, :32])
    np.testing.assert_allclose(lowered["y"], want["y"], rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(found["y"], want["y"], rtol=1e-4, atol=5e-6)


@pytest.mark.parametrize("cuts", [(0, 1100), (0, 1090, 1091, 1092, 1100)])
@pytest.mark.parametrize("window", [None, 900, 1001])
def test_masks_and_windows_reach_into_pages_of_4_bits(
    window: int | None, cuts: Sequence[int]
) -> None:
    """Windows that begin within a group of 32 tokens."""
    module, store = attention(4, 16, window=window, masked=True)
    given = tokens(cuts[-1], 16, masked=True)
    want = run_function(module, "decoder", given | without_past(16), store)
    found = by_c(module, store, given, cuts)
    np.testing.assert_allclose(found["y"], want["y"], rtol=1e-4, atol=5e-6)


def test_four_bits_are_not_eight() -> None:
    """What the other tests compare does differ: by more than their tolerance."""
    given = tokens(1100, 16) | without_past(16)
    module, store = attention(4, 16)
    four = run_function(module, "decoder", given, store)["y"]
    module, store = attention(8, 16)
    eight = run_function(module, "decoder", given, store)["y"]
    np.testing.assert_allclose(four[:, :768], eight[:, :768], rtol=1e-4, atol=5e-6)
    assert np.abs(four[:, 768:].astype(float) - eight[:, 768:].astype(float)).max() > 1e-3


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_a_past_that_was_read_is_written_again(bits: int) -> None:
    """What is present is what codes mean, and those are codes of themselves."""
    module, store = attention(bits, 16)
    given = tokens(40, 16)
    want = run_function(module, "decoder", given | without_past(16), store)
    run_passes(module, [Place(target="c"), LowerToCpu(), PlanMemory()], make_context(store))
    past = {n.replace("present", "past"): want[n][:, :, :30] for n in want if n != "y"}
    with CRunner(emit(module), store) as runner:
        found = runner.run("decoder", part(given, 30, 40) | past)
    np.testing.assert_array_equal(found["present.0.key"], want["present.0.key"])
    np.testing.assert_array_equal(found["present.0.value"], want["present.0.value"])
    np.testing.assert_allclose(found["y"], want["y"][:, 30:], rtol=1e-4, atol=2e-6)


def test_the_tokens_of_a_first_step_are_stored_alike() -> None:
    """A decoder without a past attends to what it makes, and keeps what pages hold of it."""
    module, store = whisper()
    passes = [FuseCachedAttention(), QuantiseCache(recipe="kv16")]
    run_passes(module, passes, make_context(store))
    ids = np.array([[3, 1, 4, 1]])
    hidden = run_function(module, "encoder", {"input_features": features()}, store)
    state = hidden["last_hidden_state"]
    given = {"input_ids": ids[:, :3], "encoder_hidden_states": state}
    first = run_function(module, "decoder", given, store)
    past: Arrays = {n.replace("present", "past_key_values"): x for n, x in first.items()}
    past = {n: half_tokens(x) if ".decoder." in n else x for n, x in past.items()}
    taken = argument_names(find_function(module, "decoder_with_past"))
    later = {n: x for n, x in {**past, "input_ids": ids[:, 3:]}.items() if n in taken}
    want = run_function(module, "decoder_with_past", later, store)
    with CRunner(compile_module(module), store) as runner:
        runner.run("encoder", {"input_features": features()}, only=())
        found = runner.run("decoder", {"input_ids": ids[:, :3]}, only=("logits",))
        np.testing.assert_allclose(found["logits"], first["logits"], rtol=1e-4, atol=1e-5)
        found = runner.run("decoder_with_past", {"input_ids": ids[:, 3:]})
    np.testing.assert_allclose(found["logits"], want["logits"], rtol=1e-4, atol=1e-5)
    for kind in ("key", "value"):
        name = f"present.0.decoder.{kind}"
        np.testing.assert_allclose(found[name], want[name], rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(half_tokens(found[name]), found[name])
