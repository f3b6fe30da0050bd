"""Pruning heads: held to plain NumPy (`lstsq`, entropies written out) and to held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.head_choice import Moments, channels, loss, resolved
from mllm_compiler.passes.prune_heads import PruneHeads
from mllm_compiler.pipelines import LOWER, PLACE, PLAN, SPLIT, pass_class
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, module_of

HEADS, SIZE, WIDTH, TOKENS = 4, 3, 12, 7
BATCH = Dim.symbol("batch_size")


def attention(*, fused: bool = False, bias: bool = True) -> tuple[ModuleOp, Graph]:
    """One attention of four heads over tokens, from three products or one, and its output."""
    g = Graph("eye", "encoder", WeightStore(), {"x": tensor_of(f32, (BATCH, TOKENS, WIDTH))})
    x = g["x"]
    if fused:
        rows = g.linear(x, "qkv", 3 * WIDTH, bias=bias)
        ends = (BATCH, TOKENS, WIDTH)
        q, k, v = (g.add(mllm.SliceOp(rows, (0, 0, i * WIDTH), ends)) for i in range(3))
    else:
        q, k, v = (g.linear(x, n, WIDTH, bias=bias) for n in "qkv")
    mixed = mllm.AttentionOp(q, k, v, heads=HEADS, kv_heads=HEADS, scale=1.5)
    y = g.linear(g.add(mixed), "o", WIDTH, bias=bias)
    return module_of(g.finish({"y": y}), bounds={"batch_size": 8}), g


def tokens(seed: int, count: int = 8) -> Any:
    """Tokens that vary in few directions, so that heads tell much the same."""
    random = np.random.default_rng(seed)
    basis = np.random.default_rng(99).standard_normal((2, WIDTH))
    rough = random.standard_normal((count, TOKENS, WIDTH)) * 0.05
    return (random.standard_normal((count, TOKENS, 2)) @ basis + rough).astype(np.float32)


def write(folder: Path, graph: str, **arrays: Any) -> str:
    (folder / graph).mkdir(parents=True)
    np.savez(folder / graph / "0.npz", **arrays)
    return str(folder)


def traced(module: ModuleOp, g: Graph, x: Any) -> dict[str, Any]:
    """What the attention makes, and the model."""
    made: dict[str, Any] = {}

    def listen(op: Any, results: Any) -> None:
        if isinstance(op, mllm.AttentionOp):
            made["heads"] = results[0]

    return made | run_function(module, "eye", {"x": x}, g.store, listener=listen)


def weights(g: Graph, graph: Any = None) -> dict[str, Any]:
    return {
        op.weight_name.data: g.store.array(op.value.digest.data, "f32", op.value.dims)
        for op in block_of(graph or g.func).ops
        if isinstance(op, mllm.WeightOp) and op.weight_name is not None
    }


def entropies(g: Graph, x: Any) -> Any:
    """The mean entropy of each head's attention, from the weights, one query after another."""
    w, sums = weights(g), np.zeros(HEADS)
    for image in x.astype(np.float64):
        q, k = (image @ w[f"{n}.weight"].T + w[f"{n}.bias"] for n in "qk")
        for head in range(HEADS):
            part = slice(head * SIZE, (head + 1) * SIZE)
            for query in q[:, part]:
                raised = np.exp(1.5 * k[:, part] @ query)
                shares = raised / raised.sum()
                sums[head] -= (shares * np.log(shares)).sum()
    return sums


@pytest.mark.parametrize("fused", [False, True])
def test_the_output_is_the_least_squares_fit_of_the_heads_that_look_somewhere(
    tmp_path: Path, fused: bool
) -> None:
    plain, g = attention()
    module, other = attention(fused=fused)
    if fused:
        fuse_weights(other, weights(g))
    data = write(tmp_path, "eye", x=tokens(1))
    full = traced(plain, g, tokens(1))
    kept = sorted(np.argsort(entropies(g, tokens(1)))[:2])
    columns = channels([int(h) for h in kept], SIZE)
    inputs = full["heads"].reshape(-1, WIDTH).astype(np.float64)[:, columns]
    wanted = full["y"].reshape(-1, WIDTH).astype(np.float64)
    fit = np.linalg.lstsq(np.c_[inputs, np.ones(len(inputs))], wanted, rcond=None)[0]
    run_passes(module, [PruneHeads(data=data, heads=2, ridge=0.0)], make_context(other.store))
    got = traced(module, other, tokens(1))
    np.testing.assert_allclose(got["heads"], full["heads"][..., columns], rtol=1e-4, atol=1e-5)
    want = np.c_[inputs, np.ones(len(inputs))] @ fit
    np.testing.assert_allclose(got["y"].reshape(-1, WIDTH), want, rtol=1e-3, atol=1e-4)


def fuse_weights(g: Graph, parts: dict[str, Any]) -> None:
    """Gives the fused graph the weights of the graph of three products."""
    stacked = {f"qkv.{s}": np.concatenate([parts[f"{n}.{s}"] for n in "qkv"]) for s in SIDES}
    parts = parts | stacked
    for op in list(block_of(g.func).ops):
        if isinstance(op, mllm.WeightOp) and op.weight_name is not None:
            array = np.ascontiguousarray(parts[op.weight_name.data])
            op.properties["value"] = mllm.BlobAttr.of(g.store.add(array), f32, array.shape)


SIDES = ("weight", "bias")


def test_fitting_again_beats_cutting_on_data_that_it_has_not_seen(tmp_path: Path) -> None:
    plain, g = attention()
    data = write(tmp_path, "eye", x=tokens(1, 40))
    held, errors = traced(plain, g, tokens(2)), dict[bool, float]()
    for refit in (False, True):
        module = plain.clone()
        this = PruneHeads(data=data, heads=2, refit=refit)
        run_passes(module, [this], make_context(g.store))
        got = traced(module, g, tokens(2))
        errors[refit] = float(np.square(got["y"] - held["y"]).mean())
    kept = sorted(np.argsort(entropies(g, tokens(1, 40)))[:2])
    columns, w = channels([int(h) for h in kept], SIZE), weights(g)
    cut = held["heads"][..., columns] @ w["o.weight"][:, columns].T + w["o.bias"]
    assert errors[False] == pytest.approx(float(np.square(cut - held["y"]).mean()), rel=1e-4)
    assert errors[True] < 0.6 * errors[False]


def test_heads_by_error_leave_less_than_heads_by_entropy(tmp_path: Path) -> None:
    plain, g = attention(bias=False)
    data = write(tmp_path, "eye", x=tokens(1))
    errors: list[float] = []
    for score in ("error", "entropy"):
        module = plain.clone()
        run_passes(module, [PruneHeads(data=data, heads=1, score=score)], make_context(g.store))
        got, full = traced(module, g, tokens(1)), traced(plain, g, tokens(1))
        errors.append(float(np.square(got["y"] - full["y"]).mean()))
    assert errors[0] <= errors[1]


def test_the_loss_is_what_lstsq_leaves() -> None:
    random = np.random.default_rng(5)
    outputs = random.standard_normal((3, 20, WIDTH)) @ random.standard_normal((WIDTH, WIDTH))
    moments = Moments.none(HEADS, WIDTH)
    shares = np.full((3, HEADS, 20, 20), 1 / 20)
    moments.add(outputs, shares)
    weight, kept = random.standard_normal((5, WIDTH)), channels([1, 3], SIZE)
    flat = outputs.reshape(-1, WIDTH)
    inputs = np.c_[flat[:, kept], np.ones(len(flat))]
    fit, left, _, _ = np.linalg.lstsq(inputs, flat @ weight.T, rcond=None)
    made, bias = resolved(moments, weight, 0.0, kept, 0.0)
    np.testing.assert_allclose(made, fit[:-1].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(bias, fit[-1], rtol=1e-6, atol=1e-9)
    assert loss(moments, weight, kept, 0.0) == pytest.approx(left.sum() / len(flat))
    assert moments.information == pytest.approx(np.zeros(HEADS), abs=1e-9)


def test_a_head_that_looks_at_one_token_tells_all() -> None:
    moments = Moments.none(2, 2)
    shares = np.stack([np.eye(4), np.full((4, 4), 0.25)])[None]
    moments.add(np.zeros((1, 4, 2)), np.tril(shares))
    assert moments.information[0] == pytest.approx(moments.queries)
    assert moments.queries == 3


def test_groups_of_a_decoder_go_together_and_its_cache_gets_narrower(tmp_path: Path) -> None:
    module, store = llama()
    random = np.random.default_rng(0)
    sample: dict[str, Any] = {
        "input_ids": random.integers(0, 40, (1, 9)),
        "attention_mask": np.ones((1, 9), np.int64),
        "position_ids": np.arange(9)[None],
    }
    names = [a.data["mllm.name"].data for a in graphs(module)[0].arg_attrs]  # type: ignore[union-attr]
    for name in names:
        if name.startswith("past"):
            sample[name] = np.zeros((1, 2, 0, 4), np.float32)
    sample = {name: sample[name] for name in names}
    graph = graphs(module)[0].sym_name.data
    data = write(tmp_path, graph, **sample)
    context = make_context(store)
    run_passes(module, [PruneHeads(data=data, heads=2)], context)
    narrow = {n: a[:, :1] if n.startswith("past") else a for n, a in sample.items()}
    results = run_function(module, graph, narrow, store)
    assert {a.shape for n, a in results.items() if n.startswith("present")} == {(1, 1, 9, 4)}
    counts = {
        (op.head_count, op.kv_head_count)
        for op in block_of(graphs(module)[0]).ops
        if isinstance(op, mllm.AttentionOp)
    }
    assert counts == {(2, 1)}
    lowering = [*PLACE.passes, *SPLIT.passes, *LOWER.passes, *PLAN.passes]
    run_passes(module, [pass_class(name)() for name in lowering], context)
    with CRunner(emit(module), store) as runner:
        last = runner.run("prefill", {k: v for k, v in sample.items() if k == "input_ids"})
    np.testing.assert_allclose(
        last["logits"].reshape(-1), results["logits"][0, -1], rtol=1e-3, atol=1e-4
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "give heads, or a share": {},
    "give heads, or a share between": {"heads": 2, "share": 0.5},
    "score is entropy or error": {"heads": 2, "score": "norm"},
    "ridge is no negative": {"heads": 2, "ridge": -1.0},
}


@pytest.mark.parametrize("rule", OPTIONS)
def test_options_that_fit_no_model_are_a_line(rule: str) -> None:
    module, g = attention()
    with pytest.raises(CompileError, match=rule) as caught:
        PruneHeads(data="nowhere", **OPTIONS[rule]).apply(make_context(g.store), module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-P020", 2)


def refused(module: ModuleOp, g: Graph, data: str, **options: Any) -> str:
    with pytest.raises(CompileError) as caught:
        PruneHeads(data=data, **{"heads": 2, **options}).apply(make_context(g.store), module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-P021", 1)
    return str(caught.value)


def test_a_model_that_cannot_be_cut_so_is_refused(tmp_path: Path) -> None:
    module, g = attention()
    data = write(tmp_path, "eye", x=tokens(1))
    assert "it has 4 heads" in refused(module, g, data, heads=4)
    assert "no calibration inputs" in refused(module, g, str(tmp_path / "none"))
    assert "no attention has heads" in refused(module, g, data, graph="ear")


def test_attention_whose_output_is_read_twice_stays() -> None:
    module, g = attention()
    site = next(op for op in block_of(g.func).ops if isinstance(op, mllm.AttentionOp))
    end = block_of(g.func).last_op
    assert end is not None
    both = mllm.BinaryOp(mllm.BinaryKind.ADD, end.operands[0], site.result)
    block_of(g.func).insert_op_before(both, end)
    end.operands[0] = both.result
    assert "no attention has heads" in refused(module, g, "nowhere")
