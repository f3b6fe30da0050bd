"""Placement: a home and a reason for every op, or one located line."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.hal import PlaceAttr
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.place import Place, Total, explain
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


def test_a_language_model_runs_whole_on_c() -> None:
    module, _ = llama()
    placement = explain(module, "c")
    assert placement.share("c") == 1.0
    assert not placement.homeless
