"""Joins that move nothing: what they compute beside the reference, and which joins stay stages."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import SSAValue

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind
from mllm_compiler.passes import plan_memory
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.joined import candidates, is_placed, place
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.plan_memory import SLOT, Planner, plan_module, stages_of
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, module_of
from tests.cli.recipes import tiny

WIDTH = 32
Build = Callable[[Graph], SSAValue]


def module_with(build: Build, bounds: dict[str, int] | None = None) -> tuple[ModuleOp, WeightStore]:
    """A graph over x [1, 3, 32] or, with bounds, [batch, 3, 32]."""
    store = WeightStore()
    batch = Dim.symbol("batch") if bounds else Dim.const(1)
    x = tensor_of(f32, (batch, Dim.const(3), Dim.const(WIDTH)))
    g = Graph("main", "graph", store, {"x": x})
    y = build(g)
    return module_of(g.finish({"y": y}), bounds=bounds), store


def joins(module: ModuleOp) -> list[cpu.ConcatOp]:
    return [
        op for graph in graphs(module) for op in block_of(graph).ops if isinstance(op, cpu.ConcatOp)
    ]


def lowered(build: Build, bounds: dict[str, int] | None = None) -> tuple[ModuleOp, WeightStore]:
    module, store = module_with(build, bounds)
    LowerToCpu().apply(Context(), module)
    return module, store


def softmax(g: Graph, x: SSAValue) -> SSAValue:
    return g.add(mllm.SoftmaxOp(x, 2))


def two(g: Graph) -> SSAValue:
    """Two operands with a stage each, and one behind."""
    first, second = softmax(g, g["x"]), g.linear(g["x"], "w", WIDTH)
    return softmax(g, g.add(mllm.ConcatOp([first, second], 1)))


@pytest.mark.parametrize("bounds", [None, {"batch": 1}])
def test_operands_lie_in_what_they_are_joined_to(bounds: dict[str, int] | None) -> None:
    module, store = module_with(two, bounds)
    x = np.random.default_rng(0).standard_normal((1, 3, WIDTH)).astype(np.float32)
    want = run_function(module, "main", {"x": x}, store)["y"]
    LowerToCpu().apply(Context(), module)
    before = len(stages_of(graphs(module)[0]))
    plan = plan_module(module)
    (join,) = joins(module)
    assert is_placed(join)
    assert len(stages_of(graphs(module)[0])) == before - 1
    whole = join.attributes[SLOT]
    parts = [x.owner.attributes[SLOT] for x in join.xs]
    assert isinstance(whole, cpu.SlotAttr)
    assert parts == [cpu.SlotAttr.of(whole.offset.data + at, 384) for at in (0, 384)]
    assert plan.plan == plan.bound
    with CRunner(emit(module), store, threads=2) as runner:
        np.testing.assert_allclose(runner.run("main", {"x": x})["y"], want, atol=1e-6)


def again(g: Graph) -> SSAValue:
    first = softmax(g, g["x"])
    whole = g.add(mllm.ConcatOp([first, g.linear(g["x"], "w", WIDTH)], 1))
    back = g.add(mllm.SliceOp(whole, (0, 0, 0), tuple(Dim.const(n) for n in (1, 3, WIDTH))))
    return g.add(mllm.BinaryOp(BinaryKind.ADD, back, first))


def twice(g: Graph) -> SSAValue:
    first = softmax(g, g["x"])
    return softmax(g, g.add(mllm.ConcatOp([first, first], 1)))


def returned(g: Graph) -> SSAValue:
    return g.add(mllm.ConcatOp([softmax(g, g["x"]), g.linear(g["x"], "w", WIDTH)], 1))


def given_by_the_caller(g: Graph) -> SSAValue:
    return softmax(g, g.add(mllm.ConcatOp([g["x"], softmax(g, g["x"])], 1)))


def inner(g: Graph) -> SSAValue:
    """The last axis: rows of the operands alternate."""
    return softmax(g, g.add(mllm.ConcatOp([softmax(g, g["x"]), g.linear(g["x"], "w", 8)], 2)))


def misaligned(g: Graph) -> SSAValue:
    """The second operand would start at 36 bytes."""
    parts = [g.linear(g["x"], name, 3) for name in ("a", "b")]
    return softmax(g, g.add(mllm.ConcatOp(parts, 1)))


@pytest.mark.parametrize("build", [again, twice, returned, given_by_the_caller, inner, misaligned])
def test_what_cannot_lie_there_is_joined_by_a_stage(build: Build) -> None:
    module, _ = lowered(build)
    plan_module(module)
    assert [is_placed(join) for join in joins(module)] == [False]


def test_a_batch_of_two_is_joined_by_a_stage() -> None:
    module, _ = lowered(two, {"batch": 2})
    plan_module(module)
    assert not is_placed(joins(module)[0])


def long_way(g: Graph) -> SSAValue:
    """The first operand waits while something wide is computed for the second."""
    first, wide = softmax(g, g["x"]), g["x"]
    for i, width in enumerate((4096, 4096, WIDTH * 8)):
        wide = softmax(g, g.linear(wide, f"w{i}", width))
    late = g.add(mllm.ReshapeOp(wide, tuple(Dim.const(n) for n in (1, 24, WIDTH))))
    return softmax(g, g.add(mllm.ConcatOp([first, late], 1)))


def test_a_join_that_would_need_more_memory_stays_a_stage() -> None:
    module, _ = lowered(long_way)
    plan = plan_module(module)
    (join,) = joins(module)
    assert not is_placed(join)
    place([join], on=True)
    other = max(
        sum(b.size for b in Planner(module).buffers if b.first <= t <= b.last) for t in range(9)
    )
    assert other > plan.plan


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.integers(0, 99))
def test_any_parts_are_computed_as_they_are_by_stages(rows: list[int], seed: int) -> None:
    """Bit for bit beside the same program with the join as a stage."""

    def build(g: Graph) -> SSAValue:
        ones = [g.linear(g["x"], f"w{i}", WIDTH) for i in range(len(rows))]
        cut = [
            softmax(g, g.add(mllm.SliceOp(one, (0, 0, 0), tuple(map(Dim.const, (1, n, WIDTH))))))
            for one, n in zip(ones, rows, strict=True)
        ]
        return softmax(g, g.add(mllm.ConcatOp(cut, 1)))

    x = np.random.default_rng(seed).standard_normal((1, 3, WIDTH)).astype(np.float32)
    answers: list[np.ndarray] = []
    for placed in (True, False):
        module, store = lowered(build)
        place(candidates(module, {}), on=placed)
        with mock.patch.object(plan_memory, "candidates", return_value=[]):
            plan_module(module)  # which chooses nothing itself
        assert [is_placed(join) for join in joins(module)] == [placed]
        with CRunner(emit(module), store, threads=1) as runner:
            answers.append(runner.run("main", {"x": x})["y"])
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize(("name", "fewer"), [("tiny-vit", 1), ("tiny-vlm", 1)])
def test_a_class_token_is_written_before_its_patches(name: str, fewer: int) -> None:
    module = compile_model(Request(model=tiny(name))).module
    found = [join for join in joins(module) if is_placed(join)]
    assert len(found) == fewer
    for join in found:
        assert [x.owner.name for x in join.xs] == ["cpu.broadcast", "cpu.f32_patch_embed"]
