"""Dropping tokens: held to an encoder and a choice written out in NumPy, and to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import SSAValue

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind, EdgeAttr
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import cost_of
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.drop_tokens import DropTokens
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.pipelines import LOWER, PLACE, PLAN, pass_class
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, module_of
from tests.benchmarks.photos import crops, right_neighbours
from tests.benchmarks.quality_dinov2 import CHOSEN, SIZE, flops, lifted, runner

HEADS, WIDTH, SIDE, LAYERS = 2, 12, 6, 3
TOKENS = 1 + SIDE * SIDE
BATCH = Dim.symbol("batch_size")


def encoder(*, heads_scale: float = 1.0) -> tuple[ModuleOp, Graph]:
    """Three pre-norm layers over a class token and 6 x 6 patches."""
    arguments = {"x": tensor_of(f32, (BATCH, TOKENS, WIDTH))}
    g = Graph("eye", "encoder", WeightStore(), arguments)
    x = g["x"]
    for layer in range(LAYERS):
        normed = g.add(mllm.LayerNormOp(x, epsilon=1e-6))
        q, k, v = (g.linear(normed, f"{layer}.{n}", WIDTH, bias=True) for n in "qkv")
        scale = heads_scale * (WIDTH / HEADS) ** -0.5
        mixed = g.add(mllm.AttentionOp(q, k, v, heads=HEADS, kv_heads=HEADS, scale=scale))
        x = g.add(mllm.BinaryOp(BinaryKind.ADD, g.linear(mixed, f"{layer}.o", WIDTH), x))
        normed = g.add(mllm.LayerNormOp(x, epsilon=1e-6))
        x = g.add(mllm.BinaryOp(BinaryKind.ADD, g.linear(normed, f"{layer}.f", WIDTH), x))
    return module_of(g.finish({"y": x}), bounds={"batch_size": 2}), g


@dataclass
class Plain:
    """The same encoder for one image, in NumPy, out of the same weights."""

    weights: Mapping[str, Any]
    scale: float = (WIDTH / HEADS) ** -0.5

    def run(self, x: Any, after: tuple[int, ...], keep: tuple[int, ...], **how: Any) -> Any:
        places = np.arange(SIDE * SIDE)
        for layer in range(LAYERS):
            normed = self.norm(x)
            q, k, v = (self.linear(normed, f"{layer}.{n}") for n in "qkv")
            shares = self.shares(q, k)
            mixed = np.concatenate([s @ v[:, self.head(h)] for h, s in enumerate(shares)], 1)
            before, x = x, x + self.linear(mixed, f"{layer}.o")
            if layer + 1 in after:
                budget = keep[after.index(layer + 1)]
                score = np.mean([s[0] for s in shares], 0)
                if how["score"] == "norm":
                    score = np.sqrt((before**2).sum(1))
                chosen = best(score[1:], places, budget, how["cover"])
                x, places = x[[0, *(chosen + 1)]], places[chosen]
            x = x + self.linear(self.norm(x), f"{layer}.f")
        return x

    def head(self, number: int) -> slice:
        return slice(number * WIDTH // HEADS, (number + 1) * WIDTH // HEADS)

    def shares(self, q: Any, k: Any) -> list[Any]:
        logits = [q[:, self.head(h)] @ k[:, self.head(h)].T * self.scale for h in range(HEADS)]
        raised = [np.exp(s - s.max(1, keepdims=True)) for s in logits]
        return [e / e.sum(1, keepdims=True) for e in raised]

    def norm(self, x: Any) -> Any:
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)

    def linear(self, x: Any, name: str) -> Any:
        bias = self.weights.get(f"{name}.bias", np.zeros(WIDTH))
        return x @ self.weights[f"{name}.weight"].T + bias


def best(score: Any, places: Any, budget: int, cover: int) -> Any:
    """Tokens one by one: the winner of each cell, then the best that are left."""
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))
    chosen: list[int] = []
    for row in range(cover):
        for column in range(cover):
            cell = [
                i
                for i in order
                if (places[i] // SIDE * cover // SIDE, places[i] % SIDE * cover // SIDE)
                == (row, column)
            ]
            chosen += cell[:1]
    chosen += [i for i in order if i not in chosen][: budget - len(chosen)]
    return np.array(sorted(chosen))


def plain(g: Graph) -> Plain:
    weights = {
        op.weight_name.data: g.store.array(op.value.digest.data, "f32", op.value.dims)
        for op in block_of(g.func).ops
        if isinstance(op, mllm.WeightOp) and op.weight_name is not None
    }
    return Plain({name: array.astype(np.float64) for name, array in weights.items()})


def image(count: int = 2) -> Any:
    return np.random.default_rng(3).standard_normal((count, TOKENS, WIDTH)).astype(np.float32)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, int]] = {
    "attention": ((2,), (11,), "attention", 0),
    "attention and a cover": ((1,), (11,), "attention", 3),
    "norm and a cover that does not divide the side": ((2,), (20,), "norm", 4),
    "norm": ((3,), (1,), "norm", 0),
    "two stages": ((1, 3), (20, 9), "attention", 3),
    "three stages by norm": ((1, 2, 3), (30, 12, 4), "norm", 2),
}


@pytest.mark.parametrize("case", CASES)
def test_keeps_what_plain_numpy_keeps(case: str) -> None:
    after, keep, score, cover = CASES[case]
    module, g = encoder()
    want = [plain(g).run(x, after, keep, score=score, cover=cover) for x in image().astype(float)]
    this = DropTokens(after=after, keep=keep, score=score, cover=cover)
    run_passes(module, [this], make_context(g.store))
    got = run_function(module, "eye", {"x": image()}, g.store)["y"]
    assert got.shape == (2, 1 + keep[-1], WIDTH)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["attention and a cover", "two stages"])
def test_runs_on_c(case: str) -> None:
    after, keep, score, cover = CASES[case]
    module, g = encoder()
    context = make_context(g.store)
    run_passes(module, [DropTokens(after=after, keep=keep, score=score, cover=cover)], context)
    want = run_function(module, "eye", {"x": image()}, g.store)["y"]
    lowering = [*PLACE.passes, *LOWER.passes, *PLAN.passes]
    run_passes(module, [pass_class(name)() for name in lowering], context)
    with CRunner(emit(module), g.store) as runner:
        got = runner.run("eye", {"x": image()})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("score", ["attention", "norm"])
def test_onnx_runtime_gives_the_same_of_the_exported_graph(score: str) -> None:
    module, g = encoder()
    this = DropTokens(after=(1, 3), keep=(20, 11), score=score, cover=3)
    run_passes(module, [this], make_context(g.store))
    want = run_function(module, "eye", {"x": image()}, g.store)["y"]
    model = serialised(export_graph(graphs(module)[0], g.store))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    got = session.run(None, {"x": image()})[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_real_encoder_costs_a_seventh_and_tells_photos_apart() -> None:
    """Four crops of two photos each at 672x672, 196 of 2,304 patches, on the target c."""
    module, store = lifted()
    whole = flops(module)
    run_passes(module, [CHOSEN], make_context(store))
    assert flops(module) <= whole / 6
    images, photo = crops(SIZE)
    with runner(module, store) as eyes:
        runs = [eyes.run("vision", {"pixel_values": x[None]}) for x in images[:8]]
    features = np.concatenate([results["last_hidden_state"] for results in runs])
    assert features.shape == (8, 197, 384)
    assert right_neighbours(features[:, 0], photo[:8]) >= 7


def test_a_budget_of_each_run_is_the_length_of_an_input() -> None:
    module, g = encoder()
    numpy = plain(g)
    this = DropTokens(after=(2,), keep=(20,), cover=3, budget="kept")
    run_passes(module, [this], make_context(g.store))
    for budget in (9, 14, 20):
        inputs = {"x": image(), "kept": np.zeros(budget, np.int64)}
        got = run_function(module, "eye", inputs, g.store)["y"]
        want = [
            numpy.run(x, (2,), (budget,), score="attention", cover=3) for x in image().astype(float)
        ]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert '#mllm.bound<9 <= "kept" <= 20>' in str(module)


def test_a_scale_that_is_not_the_usual_one_scores_as_the_layer_attends() -> None:
    module, g = encoder(heads_scale=3.0)
    reference = plain(g)
    reference.scale *= 3
    want = [reference.run(x, (2,), (9,), score="attention", cover=0) for x in image().astype(float)]
    run_passes(module, [DropTokens(after=(2,), keep=(9,), cover=0)], make_context(g.store))
    got = run_function(module, "eye", {"x": image()}, g.store)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_an_even_grid_is_every_second_patch_of_every_second_row() -> None:
    module, g = encoder()
    this = DropTokens(after=(1,), keep=(9,), score="uniform", cover=0)
    run_passes(module, [this], make_context(g.store))
    np.testing.assert_array_equal(choice(module, g, image(1)), [[7, 9, 11, 19, 21, 23, 31, 33, 35]])


def choice(module: ModuleOp, g: Graph, x: Any) -> Any:
    """The patches that a run keeps."""
    chosen: list[Any] = []

    def listen(op: Any, results: Any) -> None:
        if isinstance(op, mllm.TopKOp):
            chosen.append(results[1])

    run_function(module, "eye", {"x": x}, g.store, listener=listen)
    return chosen[-1]


def test_equal_scores_are_taken_by_position() -> None:
    module, g = encoder()
    same = np.repeat(image(1)[:, :1], TOKENS, axis=1)
    this = DropTokens(after=(1,), keep=(4,), score="norm", cover=0)
    run_passes(module, [this], make_context(g.store))
    np.testing.assert_array_equal(choice(module, g, same), [[0, 1, 2, 3]])


def test_the_layer_that_chooses_computes_kept_queries_alone() -> None:
    module, g = encoder()
    run_passes(module, [DropTokens(after=(1,), keep=(9,), cover=3)], make_context(g.store))
    flops = [
        cost_of(op, {"batch_size": 1}).flops
        for op in block_of(graphs(module)[0]).ops
        if isinstance(op, mllm.AttentionOp)
    ]
    assert flops == [4 * 10 * TOKENS * WIDTH, 4 * 10 * 10 * WIDTH, 4 * 10 * 10 * WIDTH]


def test_a_reader_of_fixed_size_reads_fewer_tokens() -> None:
    module, g = encoder()
    reader = Graph("projector", "projector", g.store, {"f": tensor_of(f32, (BATCH, TOKENS, WIDTH))})
    made = reader.finish({"tokens": reader.linear(reader["f"], "p", 5)})
    both = module_of(
        graphs(module)[0].clone(),
        made,
        edges=[EdgeAttr.of("projector", "f", "eye", "y")],
        bounds={"batch_size": 2},
    )
    run_passes(both, [DropTokens(after=(1,), keep=(9,), cover=3)], make_context(g.store))
    features = run_function(both, "eye", {"x": image()}, g.store)["y"]
    assert run_function(both, "projector", {"f": features}, g.store)["tokens"].shape == (2, 10, 5)


OPTIONS: dict[str, dict[str, Any]] = {
    "have one number a stage": {"after": (1, 2), "keep": (9,)},
    "count from 1": {"after": (0,), "keep": (9,)},
    "budgets of keep fall": {"after": (1, 2), "keep": (9, 9)},
    "an even grid is taken once": {"after": (1, 2), "keep": (9, 4), "cover": 0, "score": "uniform"},
    "score is attention, norm or uniform": {"after": (1,), "keep": (9,), "score": "value"},
    "the first token pays": {"after": (1,), "keep": (9,), "cover": 3, "prefix": 0},
    "a token for each cell": {"after": (1,), "keep": (8,), "cover": 3},
}


@pytest.mark.parametrize("rule", OPTIONS)
def test_options_that_fit_no_model_are_a_line(rule: str) -> None:
    module, g = encoder()
    with pytest.raises(CompileError, match=rule) as caught:
        DropTokens(**OPTIONS[rule]).apply(make_context(g.store), module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-P020", 2)


def refused(module: ModuleOp, store: WeightStore, **options: Any) -> CompileError:
    given: dict[str, Any] = {"after": (2,), "keep": (9,), "cover": 3, **options}
    with pytest.raises(CompileError) as caught:
        DropTokens(**given).apply(make_context(store), module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-P021", 1)
    return caught.value


def test_a_model_that_has_no_such_layer_graph_or_image_is_refused() -> None:
    module, g = encoder()
    assert "it has 3 layers" in str(refused(module, g.store, after=(4,)))
    assert "no graph" in str(refused(module, g.store, graph="ear"))
    assert "no square image" in str(refused(module, g.store, prefix=2))
    assert "has an input or symbol x already" in str(refused(module, g.store, budget="x"))


def test_an_op_that_needs_all_tokens_is_refused_by_name() -> None:
    module, g = encoder()
    end = block_of(g.func).last_op
    assert end is not None
    image_again = mllm.ReshapeOp(end.operands[0], (BATCH, TOKENS * WIDTH))
    block_of(g.func).insert_op_before(image_again, end)
    end.operands[0] = image_again.result
    assert "'mllm.reshape' needs all of them" in str(refused(module, g.store))


def test_masked_attention_is_refused() -> None:
    module, g = encoder()
    attention = next(o for o in block_of(g.func).ops if isinstance(o, mllm.AttentionOp))
    q: SSAValue = attention.q
    masked = mllm.AttentionOp(
        q, attention.k, attention.v, heads=2, kv_heads=2, scale=0.4, causal=True
    )
    block_of(g.func).insert_op_before(masked, attention)
    attention.result.replace_all_uses_with(masked.result)
    attention.detach()
    assert "masked" in str(refused(module, g.store, after=(1,)))
