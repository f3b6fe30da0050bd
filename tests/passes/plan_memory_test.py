"""The memory plan of modules: what shares, what lives on, what has no place."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr, TensorType, f32
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.dims import UNKNOWN, Dim, tensor_of
from mllm_compiler.dialects.mllm import BinaryKind, EdgeAttr, UnaryKind
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.arena import Bank
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.passes.plan_memory import IO_SLOT, SLOT, PlanMemory, plan_module
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, module_of
from tests.backends.small_pipelines import eyes, whisper

N = 256
BYTES = 4 * N


def slots(module: ModuleOp, graph: int = 0) -> list[cpu.SlotAttr]:
    found = [op.attributes.get(SLOT) for op in block_of(graphs(module)[graph]).ops]
    return [slot for slot in found if isinstance(slot, cpu.SlotAttr)]


def chain(length: int, *, keep_first: bool = False) -> ModuleOp:
    """Softmaxes one behind the other, which cannot work in place."""
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, N])})
    first = x = g.add(mllm.SoftmaxOp(g["x"], 1))
    for _ in range(length - 2):
        x = g.add(mllm.SoftmaxOp(x, 1))
    y = g.add(mllm.BinaryOp(BinaryKind.ADD, x, first if keep_first else x))
    module = module_of(g.finish({"y": y}))
    LowerToCpu().apply(Context(), module)
    return module


def test_a_chain_needs_two_places() -> None:
    plan = plan_module(chain(8))
    assert plan.plan == plan.bound == 2 * BYTES


def test_a_value_that_lives_on_needs_a_third() -> None:
    plan = plan_module(chain(8, keep_first=True))
    assert plan.plan == plan.bound == 3 * BYTES


def elementwise(extra: bool) -> ModuleOp:
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, N])})
    y = g.add(mllm.SoftmaxOp(g["x"], 1))
    z = g.add(mllm.BinaryOp(BinaryKind.ADD, y, y))
    last = g.add(mllm.SoftmaxOp(z, 1))
    if extra:
        last = g.add(mllm.BinaryOp(BinaryKind.ADD, last, y))
    module = module_of(g.finish({"y": last}))
    LowerToCpu().apply(Context(), module)
    return module


def test_an_elementwise_op_writes_over_an_operand_that_dies() -> None:
    module = elementwise(extra=False)
    plan_module(module)
    first, second = slots(module)
    assert first == second


def test_it_does_not_write_over_one_that_is_read_again() -> None:
    module = elementwise(extra=True)
    plan_module(module)
    first, second, *_ = slots(module)
    assert first != second


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_projector_writes_into_the_shared_tensor_and_norms_it_there(norm: str) -> None:
    store = WeightStore()
    g = Graph("projector", "projector", store, {"x": TensorType(f32, [1, N])})
    product = g.linear(g["x"], "w", N)
    rms = mllm.RmsNormOp(product, g.weight("n", N), epsilon=1e-5)
    y = g.add(rms if norm == "rms" else mllm.LayerNormOp(product, epsilon=1e-5))
    reader = Graph("reader", "graph", store, {"y": TensorType(f32, [1, N])})
    z = reader.add(mllm.SoftmaxOp(reader["y"], 1))
    edges = [EdgeAttr.of("reader", "y", "projector", "y")]
    module = module_of(g.finish({"y": y}), reader.finish({"z": z}), edges=edges)
    x = np.linspace(-1, 1, N, dtype=np.float32).reshape(1, N)
    want = run_function(module, "projector", {"x": x}, store)["y"]
    LowerToCpu().apply(Context(), module)
    plan = plan_module(module)
    shared = graphs(module)[0].res_attrs.data[0].data[IO_SLOT]
    assert slots(module) == [shared]
    assert plan.plan == plan.bound == 2 * BYTES
    with CRunner(emit(module), store, threads=2) as runner:
        np.testing.assert_allclose(runner.run("projector", {"x": x})["y"], want, atol=1e-5)


def test_a_product_that_is_read_again_is_not_normed_in_place() -> None:
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, N])})
    product = g.linear(g["x"], "w", N)
    norm = g.add(mllm.LayerNormOp(product, epsilon=1e-5))
    module = module_of(g.finish({"y": g.add(mllm.BinaryOp(BinaryKind.MUL, norm, product))}))
    LowerToCpu().apply(Context(), module)
    plan_module(module)
    first, second = slots(module)
    assert first != second


def test_an_alias_keeps_its_operands_bytes_alive() -> None:
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, N])})
    y = g.add(mllm.SoftmaxOp(g["x"], 1))
    flat = g.add(mllm.ReshapeOp(y, (N,)))
    other = g.add(mllm.SoftmaxOp(g["x"], 1))
    z: SSAValue = g.add(mllm.BinaryOp(BinaryKind.ADD, other, flat))
    module = module_of(g.finish({"y": g.add(mllm.SoftmaxOp(z, 1))}))
    LowerToCpu().apply(Context(), module)
    plan_module(module)
    first, second, *_ = slots(module)
    assert abs(first.offset.data - second.offset.data) >= BYTES


def test_sizes_are_those_at_the_bounds() -> None:
    t = Dim.symbol("tokens")
    g = Graph("main", "graph", WeightStore(), {"x": tensor_of(f32, (t, 8))})
    y = g.add(mllm.SoftmaxOp(g.add(mllm.SoftmaxOp(g["x"], 1)), 1))
    module = module_of(g.finish({"y": y}), bounds={"tokens": 100})
    LowerToCpu().apply(Context(), module)
    assert [s.size.data for s in slots_after(module)] == [100 * 8 * 4]


def slots_after(module: ModuleOp) -> list[cpu.SlotAttr]:
    PlanMemory().apply(Context(), module)
    module.verify()
    return slots(module)


def test_a_large_result_has_no_place() -> None:
    for rows, placed in ((1, True), (1 << 20, False)):
        g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [rows, 8])})
        module = module_of(g.finish({"y": g.add(mllm.SoftmaxOp(g["x"], 1))}))
        LowerToCpu().apply(Context(), module)
        plan_module(module)
        attrs = graphs(module)[0].res_attrs
        assert attrs is not None
        assert (IO_SLOT in attrs.data[0].data) == placed


def test_a_shared_tensor_is_one_buffer_of_both_entries() -> None:
    module, _ = eyes()
    LowerToCpu().apply(Context(), module)
    plan_module(module)
    vision, projector = graphs(module)
    assert vision.res_attrs is not None
    assert projector.arg_attrs is not None
    slot = vision.res_attrs.data[0].data[IO_SLOT]
    assert projector.arg_attrs.data[0].data[IO_SLOT] == slot
    assert isinstance(slot, cpu.SlotAttr)
    low, high = slot.offset.data, slot.offset.data + slot.size.data
    for other in slots(module, 1):
        assert other.offset.data >= high or other.offset.data + other.size.data <= low


def test_what_a_later_step_reads_outlives_every_entry_between() -> None:
    module, _ = whisper()
    LowerToCpu().apply(Context(), module)
    plan_module(module)
    _, first, later = graphs(module)
    assert first.res_attrs is not None
    assert later.arg_attrs is not None
    shared = [d.data[IO_SLOT] for d in later.arg_attrs if IO_SLOT in d.data]
    assert len(shared) == 2
    for slot in shared:
        assert isinstance(slot, cpu.SlotAttr)
        low, high = slot.offset.data, slot.offset.data + slot.size.data
        for other in slots(module, 2):
            assert other.offset.data >= high or other.offset.data + other.size.data <= low


def test_one_plan_for_all_entries_is_no_larger_than_the_largest_of_them() -> None:
    module, _ = llama()
    SplitLanguageModel().apply(Context(), module)
    LowerToCpu().apply(Context(), module)
    joint = plan_module(module)
    assert joint.plan == joint.bound


def test_entries_run_behind_what_they_read_whatever_the_order_of_the_module() -> None:
    module, _ = eyes()
    vision, projector, pipeline = module.body.block.ops
    projector.detach()
    module.body.block.insert_op_before(projector, vision)
    assert isinstance(pipeline, mllm.PipelineOp)
    assert isinstance(pipeline.edges.data[0], EdgeAttr)
    LowerToCpu().apply(Context(), module)
    plan_module(module)
    projector_graph = graphs(module)[0]
    assert projector_graph.arg_attrs is not None
    assert IO_SLOT in projector_graph.arg_attrs.data[0].data


def test_a_size_that_depends_on_data_is_refused_with_a_line() -> None:
    g = Graph("main", "graph", WeightStore(), {"x": tensor_of(f32, (UNKNOWN, 8))})
    y = g.add(mllm.UnaryOp(UnaryKind.EXP, g.add(mllm.SoftmaxOp(g["x"], 1))))
    module = module_of(g.finish({"y": y}))
    LowerToCpu().apply(Context(), module)
    with pytest.raises(CompileError, match=r"\[\?, 8\] depends on data") as caught:
        plan_module(module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-R003", 3)


def test_a_plan_larger_than_its_memory_is_refused_with_what_holds_the_peak() -> None:
    PlanMemory(capacity=3 * BYTES).apply(Context(), chain(8, keep_first=True))
    with pytest.raises(CompileError) as caught:
        PlanMemory(capacity=3 * BYTES - 1).apply(Context(), chain(8, keep_first=True))
    assert (caught.value.code, caught.value.exit_code) == ("MLC-R009", 3)
    text = str(caught.value)
    assert text.startswith("main: ")
    assert f"takes {3 * BYTES} bytes of 'arena', 1 more than there are" in text
    assert "the peak is held by this" in text
    assert text.count(f"with {BYTES}") == 3


def test_large_tensors_start_at_pieces_of_their_own() -> None:
    """A large softmax between small ones: 1,024 bytes are small here, 2,048 large."""
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, N])})
    small = g.add(mllm.SoftmaxOp(g["x"], 1))
    both = g.add(mllm.ConcatOp([small, g["x"]], 1))
    y = g.add(mllm.SoftmaxOp(both, 1))
    module = module_of(g.finish({"y": y, "small": g.add(mllm.SoftmaxOp(small, 1))}))
    LowerToCpu().apply(Context(), module)
    PlanMemory(alignment=4096, large=2 * BYTES).apply(Context(), module)
    places = {(s.offset.data, s.size.data) for s in slots(module)}
    large = [offset for offset, size in places if size == 2 * BYTES]
    assert large
    assert all(offset % 4096 == 0 for offset in large)


def test_what_a_device_reads_lies_in_a_bank_that_it_reaches() -> None:
    module = chain(4)
    (first, second) = [op for op in block_of(graphs(module)[0]).ops if op.results][:2]
    names = {"device": StringAttr("npu"), "callee": SymbolRefAttr("f")}
    call = cpu.DeviceCallOp.create(
        operands=[first.results[0]], result_types=[second.results[0].type], properties=names
    )
    Rewriter.replace_op(second, call)
    banks = [Bank(name="host"), Bank(name="shared", contiguous=True)]
    plan = plan_module(module, banks)
    assert [len(part.buffers) for part in plan.parts] == [1, 2]
    assert [p.bank.name for p in plan.parts if p.size == BYTES] == ["host"]
    assert plan_module(chain(4), banks).parts[1].size == 0


def test_an_alignment_that_kernels_cannot_have_is_refused() -> None:
    for alignment in (0, 32, 100):
        with pytest.raises(CompileError, match="no multiple of 64") as caught:
            PlanMemory(alignment=alignment).apply(Context(), chain(4))
        assert caught.value.code == "MLC-U007"


def test_planning_twice_gives_the_same_text() -> None:
    def text() -> str:
        module, _ = whisper()
        LowerToCpu().apply(Context(), module)
        PlanMemory().apply(Context(), module)
        return str(module)

    assert text() == text()
