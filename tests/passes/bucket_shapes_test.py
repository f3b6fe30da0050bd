"""Padded graphs give what the graph of dynamic shapes gives, at every length: the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import import_model, read_dims
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import find_function, run_function
from mllm_compiler.weights import WeightStore

Arrays = dict[str, np.ndarray]
TOLERANCE = 1e-5
LENGTHS = 24


@dataclass(frozen=True)
class Both:
    """A recipe with dynamic shapes, and the same one in buckets."""

    dynamic: ModuleOp
    padded: NumpyRunner
    store: WeightStore

    def compare(self, entry: str, inputs: Arrays) -> None:
        want = run_function(self.dynamic, entry, inputs, self.store)
        got = self.padded.run(entry, inputs)
        assert got.keys() == want.keys()
        for name, array in want.items():
            assert got[name].shape == array.shape, name
            error = np.abs(got[name] - array).max(initial=0)
            assert error <= TOLERANCE * max(np.abs(array).max(initial=0), 1), (entry, name, error)


@lru_cache(maxsize=4)
def both(recipe: str, *dims: str) -> Both:
    imported = import_model(build_recipe(recipe, lambda line: None), dims=read_dims(dims))
    context = make_context(imported.store)
    run_passes(imported.module, [pass_class(p)() for p in pass_names("lift")], context)
    dynamic = imported.module.clone()
    run_passes(imported.module, [pass_class("bucket-shapes")()], context)
    return Both(dynamic, NumpyRunner(imported.module, imported.store), imported.store)


def symbols_in(module: ModuleOp) -> Iterator[str]:
    for graph in graphs(module):
        yield from (str(v.type) for v in graph.args if "?" in str(v.type))
        yield from (str(r.type) for op in graph.walk() for r in op.results if "?" in str(r.type))


def llama(tokens: int, past: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed + 1000 * tokens + past)
    made: Arrays = {
        "input_ids": rng.integers(0, 200, (1, tokens)),
        "attention_mask": np.ones((1, past + tokens), np.int64),
        "position_ids": np.arange(past, past + tokens)[None],
    }
    for layer in range(2):
        for kind in ("key", "value"):
            cache = rng.standard_normal((1, 2, past, 8)).astype(np.float32)
            made[f"past_key_values.{layer}.{kind}"] = cache
    return made


LLAMA = ("tiny-llama", "sequence_length=1,4,24", "past_sequence_length=8,40")


def test_every_shape_is_static_and_every_weight_is_there_once() -> None:
    made = both(*LLAMA)
    assert [g.sym_name.data for g in graphs(made.padded.module)] == [
        f"decoder_{past}_{tokens}" for past in (8, 40) for tokens in (1, 4, 24)
    ]
    assert not list(symbols_in(made.padded.module))
    digests = {
        frozenset(str(op.attributes | op.properties) for op in g.walk() if op.name == "mllm.weight")
        for g in graphs(made.padded.module)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("tokens", range(1, LENGTHS + 1))
def test_a_prompt_of_every_length(tokens: int) -> None:
    both(*LLAMA).compare("decoder", llama(tokens, 0))


@pytest.mark.parametrize("past", range(1, 41))
def test_tokens_behind_a_past_of_every_length(past: int) -> None:
    for tokens in (1, 3, 7):
        both(*LLAMA).compare("decoder", llama(tokens, past))


def test_tokens_that_the_mask_of_a_user_leaves_out() -> None:
    for tokens, past in ((5, 6), (3, 6), (1, 9)):
        inputs = llama(tokens, past)
        inputs["attention_mask"][0, : past - 1] = 0
        both(*LLAMA).compare("decoder", inputs)


@pytest.mark.parametrize("batch", range(1, 6))
def test_a_batch_of_every_size(batch: int) -> None:
    pixels = np.random.default_rng(batch).standard_normal((batch, 3, 56, 56)).astype(np.float32)
    both("tiny-vit", "batch_size=1,2,5").compare("vision", {"pixel_values": pixels})


WHISPER = (
    "tiny-whisper",
    "decoder_sequence_length=2,9",
    "past_decoder_sequence_length=3,16",
    "batch_size=1,3",
)


def seeded(graph: FuncOp, sizes: dict[str, int]) -> Arrays:
    rng, made = np.random.default_rng(sum(sizes.values())), Arrays()
    for name, value in zip(argument_names(graph), graph.args, strict=True):
        shape = [dim.evaluate(sizes) for dim in shape_of(value)]
        whole = "i64" in str(value.type)
        if "mask" in name:
            made[name] = np.ones(shape, np.int64)
            continue
        drawn = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        made[name] = drawn if whole else drawn.astype(np.float32)
    return made


@pytest.mark.parametrize("entry", ["encoder", "decoder", "decoder_with_past"])
def test_a_decoder_over_sound_at_every_length(entry: str) -> None:
    made = both(*WHISPER)
    graph = find_function(made.dynamic, entry)
    symbols = sorted({s for v in graph.args for d in shape_of(v) for s in d.symbols()})
    ranges = {"batch_size": range(1, 4), "decoder_sequence_length": range(1, 10)}
    for sizes in product(*(ranges.get(s, range(1, 17)) for s in symbols)):
        made.compare(entry, seeded(graph, dict(zip(symbols, sizes, strict=True))))
    assert symbols


RECIPES = sorted(p.name for p in Path("models").glob("tiny-*"))
REFUSED = {"tiny-clip": "/text_model/GatherND: error: 'mllm.reshape' cannot be padded"}
"""Recipes with an op that has no padded form: a row found by its number in a whole batch."""


MOST = 60
"""Choices of sizes that are run of one graph."""

FLAT = ("tiny-gpt2",)
"""Recipes that join batch and tokens to one axis before a product: one sequence can be padded."""


def buckets_of(symbol: str, recipe: str) -> tuple[int, ...]:
    if recipe == "tiny-wav2vec2" and "sequence" in symbol:
        return (300, 512)
    if "batch" in symbol:
        return (1, 1) if recipe in FLAT else (1, 3)
    return (4, 7) if "past" in symbol else (3, 6)


def sizes_of(symbol: str, recipe: str) -> range:
    large = buckets_of(symbol, recipe)[1]
    if large > 100:
        return range(110, large + 1, 67)
    return range(0 if "past" in symbol else 1, large + 1)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_architecture_at_every_length(recipe: str) -> None:
    imported = import_model(build_recipe(recipe, lambda line: None))
    symbols = [b.symbol.data for b in pipeline_of(imported.module).bounds]
    symbols = [s for s in symbols if "total" not in s]
    dims = [f"{s}={','.join(map(str, sorted({*buckets_of(s, recipe)})))}" for s in symbols]
    if recipe in REFUSED:
        with pytest.raises(CompileError, match=re.escape(REFUSED[recipe])):
            both(recipe, *dims)
        return
    made = both(recipe, *dims)
    for graph in graphs(made.dynamic):
        names = sorted({s for v in graph.args for d in shape_of(v) for s in d.symbols()})
        choices = list(product(*(sizes_of(s, recipe) for s in names)))
        for sizes in choices[:: 1 + len(choices) // MOST]:
            inputs = seeded(graph, dict(zip(names, sizes, strict=True)))
            made.compare(graph.sym_name.data, inputs)
