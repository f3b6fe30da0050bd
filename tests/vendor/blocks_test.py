"""Pieces of a model, run in NumPy: together they do what the model does, each part of it once."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.hal import cost_of
from mllm_compiler.passes.graphs import argument_names, block_of, graphs, pipeline_of
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from tests.vendor.blocks import cut, is_known, values_of
from tests.vendor.measured import Case, placed
from tests.vendor.table_test import SIZES

PIECES = {
    "tiny-llama": {"decoder_1": 4, "decoder_32": 4},
    "tiny-vit": {"vision": 3},
    "tiny-convnext": {"vision_static": 5},
    "tiny-whisper": {
        "encoder": 3,
        **{f"decoder_{count}": 4 for count in ("1", "4", "with_past_1", "with_past_4")},
    },
}
"""The pieces of each graph: two blocks, or stages of one, what is before and, if any, behind."""


@pytest.mark.parametrize(
    ("name", "recipe"), [*((name, "") for name in PIECES), ("tiny-llama", "w8a8-npu")]
)
def test_pieces_compute_what_the_model_does(name: str, recipe: str) -> None:
    path = build_recipe(name, lambda line: None)
    case = Case("numpy", name, path, "", recipe, "", SIZES[name])
    module, store = placed(case)
    given = {g.sym_name.data: seeded_inputs(g, pipeline_of(module)) for g in graphs(module)}
    parts, read = cut(module, store, given)
    assert {g.sym_name.data for g in graphs(parts)} == {
        f"{graph}_{at}" for graph, count in PIECES[name].items() for at in range(count)
    }
    whole, pieces = (
        sum(cost_of(op, {}).flops for g in graphs(m) for op in block_of(g).ops if not is_known(op))
        for m in (module, parts)
    )
    assert whole == pieces
    for graph in graphs(module):
        arrays = list(values_of(module, graph, store, given[graph.sym_name.data]).values())
        for at in range(PIECES[name][graph.sym_name.data]):
            piece = f"{graph.sym_name.data}_{at}"
            for array in run_function(parts, piece, read[piece], store).values():
                assert any(np.array_equal(array, known) for known in arrays)


def test_a_block_takes_what_the_one_before_gives() -> None:
    path = build_recipe("tiny-vit", lambda line: None)
    module, store = placed(Case("numpy", "tiny-vit", path, "", "", "", {}))
    given = {g.sym_name.data: seeded_inputs(g, pipeline_of(module)) for g in graphs(module)}
    parts, read = cut(module, store, given)
    assert [argument_names(g) for g in graphs(parts)] == [
        ["pixel_values"],
        ["v0"],
        ["v0", "v1"],
    ]
    first = run_function(parts, "vision_0", read["vision_0"], store)
    np.testing.assert_array_equal(first["r0"], read["vision_1"]["v0"])
