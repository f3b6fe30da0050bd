"""Placement: a home and a reason for every op, or one located line."""

from __future__ import annotations

import re

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, f32
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.hal import PlaceAttr
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import target
from mllm_compiler.passes.device_plan import Call
from mllm_compiler.passes.graphs import block_of, fallback_of, graphs, pipeline_of, plan_of
from mllm_compiler.passes.place import Place, Total, explain
from mllm_compiler.passes.placed_graphs import spelled_out
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, module_of


def scoring() -> ModuleOp:
    g = Graph("eye", "encoder", WeightStore(), {"x": TensorType(f32, [1, 4, 8])})
    scores = mllm.AlibiOp(f32, Dim.const(4), Dim.const(8), heads=2)
    return module_of(g.finish({"y": g.add(mllm.UnaryOp(mllm.UnaryKind.RELU, g.add(scores)))}))


def test_every_op_that_computes_gets_a_place() -> None:
    module, _ = llama()
    Place().apply(Context(), module)
    module.verify()
    for op in block_of(graphs(module)[0]).ops:
        placed = isinstance(op.attributes.get("place"), PlaceAttr)
        data = isinstance(op, mllm.WeightOp) or op.name == "func.return"
        assert placed != data
    text = str(module)
    assert '#hal.place<"c", "f32_linear">' in text


def test_an_op_without_a_home_is_one_located_line_with_exit_status_3() -> None:
    with pytest.raises(CompileError) as caught:
        Place().apply(Context(), scoring())
    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        "/eye/0: error: 'mllm.alibi' has no home on 'c': no kernel [MLC-R001] "
        "(compile with --target numpy, or make it a constant)"
    )


def test_a_fallback_takes_what_the_target_lacks() -> None:
    module = scoring()
    Place("c", "numpy").apply(Context(), module)
    places = [op.attributes.get("place") for op in block_of(graphs(module)[0]).ops]
    assert places[:2] == [
        PlaceAttr.of("numpy", "c: no kernel"),
        PlaceAttr.of("c", "f32_elementwise or i64_elementwise"),
    ]


def test_explain_answers_without_refusing_or_changing() -> None:
    module = scoring()
    before = str(module)
    placement = explain(module, "c")
    assert str(module) == before
    assert [(row.home, row.why) for row in placement.rows] == [
        (None, "no kernel"),
        ("c", "f32_elementwise or i64_elementwise"),
    ]
    assert [row.location for row in placement.rows] == ["/eye/0", "/eye/1"]
    assert placement.rows[1].type == "f32[1, 2, 4, 8]"
    assert len(placement.homeless) == 1
    assert placement.share("c") == 1 / 2
    homes = placement.totals(lambda row: row.home or "none")
    assert list(homes) == ["c", "none"]
    assert homes["none"] == Total(operations=1, flops=64, read=0, written=4 * 64)
    rules = placement.totals(lambda row: row.refusal and row.refusal.rule)
    assert list(rules) == ["operator"]


def eye(width: int) -> ModuleOp:
    """Two products, and between them a scan along an axis that only the host has."""
    g = Graph("eye", "encoder", WeightStore(), {"x": TensorType(f32, [1, width, width])})
    scanned = g.add(mllm.CumsumOp(g.linear(g["x"], "a", width), 1))
    y = g.linear(g.linear(scanned, "b", width), "c", width)
    return module_of(g.finish({"y": y}))


def test_a_graph_is_divided_by_cost_and_told_in_whole_numbers() -> None:
    """The figures are counted by hand from sizes, and from the rates in the tables."""
    module, n = eye(1024), 1024
    before = str(module)
    placement = explain(module, "c", "c", {"eye": "qnn"})
    assert str(module) == before
    assert [row.home for row in placement.rows] == ["qnn", "c", "qnn", "qnn"]
    assert placement.rows[1].why == "qnn: no kernel"
    plan = placement.plans["eye"]
    product = 2 * n**3
    assert plan.calls == (
        Call(operations=1, flops=product, bytes_in=4 * n * n, bytes_out=4 * n * n),
        Call(operations=2, flops=2 * product, bytes_in=4 * n * n, bytes_out=4 * n * n),
    )
    device, host = target("qnn").rates, target("c").rates
    copies = 4 * 4 * n * n / device.copy_gb_per_s / 1e3
    scan = host.startup_us + 8 * n * n / host.gb_per_s / 1e3
    on_device = 3 * product / device.gflop_per_s / 1e3
    assert plan.cost_us == pytest.approx(2 * device.startup_us + copies + scan + on_device)
    products = 3 * product / host.gflop_per_s / 1e3
    assert plan.host_us == pytest.approx(scan + 3 * host.startup_us + products)
    assert plan.facts["device_operations"] == 3


def test_an_island_that_saves_too_little_stays_with_the_numbers_why() -> None:
    small = explain(eye(64), "c", "c", {"eye": "qnn"})
    assert {row.home for row in small.rows} == {"c"}
    why = small.rows[2].why
    assert re.fullmatch(
        r"qnn: its island of 2 operations saves less than its calls and copies cost: "
        r"\d+\.\d us < 10\d\.\d us",
        why,
    )
    most = explain(eye(64), "c", "c", {"eye": "qnn"}, partition="most")
    assert [row.home for row in most.rows] == ["qnn", "c", "qnn", "qnn"]
    one = explain(eye(1024), "c", "c", {"eye": "qnn"}, max_partitions=1)
    assert [row.home for row in one.rows] == ["c", "c", "qnn", "qnn"]
    assert "saves the least, and --max-partitions 1 allows no call more" in one.rows[0].why


def test_the_plan_stands_on_the_graph_and_reads_back() -> None:
    module = eye(1024)
    Place("c", "c", ("eye=qnn",)).apply(Context(), module)
    (graph,) = graphs(module)
    assert list(fallback_of(graph)) == ["/eye/2"]
    plan = plan_of(graph)
    assert (plan["device_operations"], plan["operations"]) == (3, 4)
    text = str(module)
    assert '#hal.plan<"qnn", device_operations = 3, operations = 4, ' in text
    assert str(Parser(make_context(WeightStore()), text).parse_module()) == text


def test_of_a_decoder_on_a_device_the_host_keeps_what_touches_the_cache() -> None:
    module, _ = llama(width=64)
    placement = explain(module, "c", "c", {"decoder": "numpy"}, partition="most")
    left = [row for row in placement.rows if row.home == "c"]
    assert {row.operation for row in left} == {"mllm.kv_append", "mllm.attention"}
    why = "numpy: it reads or appends to the KV cache, which the host keeps"
    assert {row.why for row in left} == {why}
    (alone,) = {row.why for row in explain(module, "c", places={"decoder": "numpy"}).homeless}
    assert alone == why.removeprefix("numpy: ")


def test_what_an_npu_refuses_passes_over_a_gpu_without_a_backend() -> None:
    """MediaTek's plugin takes no EXP, LiteRT's delegate of GPUs does; neither takes SIN."""
    g = Graph("eye", "encoder", WeightStore(), {"x": TensorType(f32, [2, 8])})
    grown = g.add(mllm.UnaryOp(mllm.UnaryKind.EXP, g["x"]))
    module = module_of(g.finish({"y": g.add(mllm.UnaryOp(mllm.UnaryKind.SIN, grown))}))
    assert [target(name).falls_to for name in ("neuron", "gpu")] == [("gpu", "c"), ("c",)]
    rows = explain(module, "c", "c", {"eye": "neuron"}).rows
    assert [(row.home, row.why) for row in rows] == [
        ("c", "neuron: 'exp' has no f32 kernel; gpu: could, but has no backend"),
        ("c", "neuron: 'sin' has no f32 kernel"),
    ]
    alone = explain(module, "neuron").homeless
    assert [row.remedy.split(",")[0] for row in alone] == ["compile with --target c"] * 2


def test_a_star_means_every_graph_and_one_with_a_cache_where_its_sizes_have_buckets() -> None:
    module, _ = llama()
    assert spelled_out(module, {"*": "qnn"}) == {}
    assert spelled_out(module, {"*": "qnn", "decoder": "tflite"}) == {"decoder": "tflite"}
    pipeline = pipeline_of(module)
    bound = mllm.BoundAttr.of("sequence_length", 32, buckets=(1, 32))
    pipeline.properties["bounds"] = ArrayAttr([bound])
    assert spelled_out(module, {"*": "qnn"}) == {"decoder": "qnn"}
    assert spelled_out(eye(64), {"*": "qnn"}) == {"eye": "qnn"}


def test_a_language_model_runs_whole_on_c() -> None:
    module, _ = llama()
    placement = explain(module, "c")
    assert placement.share("c") == 1.0
    assert not placement.homeless
