"""What lowering makes of single ops and short chains; values are compared by the reference."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i1, i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.cpu.elementwise import depth, words
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import Activation, BinaryKind, CompareKind, UnaryKind
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.lower_to_cpu import LowerToCpu
from mllm_compiler.reference import run_function
from mllm_compiler.reference.cpu import run_lowered
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama, module_of

Build = Callable[[Graph], SSAValue]


def lowered(arguments: dict[str, Attribute], build: Build) -> tuple[list[cpu.CpuOp], Graph]:
    """The kernel calls of a graph, after both levels were run on the same inputs."""
    g = Graph("main", "graph", WeightStore(), arguments)
    module = module_of(g.finish({"y": build(g)}))
    module.verify()
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.integers(0, 3, kind.get_shape())
        if kind.element_type == i64
        else rng.standard_normal(kind.get_shape()).astype(np.float32)
        for name, kind in arguments.items()
        if isinstance(kind, TensorType)
    }
    want = run_function(module, "main", inputs, g.store)["y"]
    LowerToCpu().apply(Context(), module)
    module.verify()
    got = run_lowered(module, "main", inputs, g.store)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert all(op.name.partition(".")[0] in ("cpu", "func") for op in block_of(g.func).ops)
    return [op for op in block_of(g.func).ops if isinstance(op, cpu.CpuOp)], g


def kernels(arguments: dict[str, Attribute], build: Build) -> list[str]:
    return [op.kernel() for op in lowered(arguments, build)[0]]


X = {"x": TensorType(f32, [1, 3, 8])}


def relu(g: Graph, x: SSAValue) -> SSAValue:
    return g.add(mllm.UnaryOp(UnaryKind.RELU, x))


def test_an_activation_behind_a_product_is_its_epilogue() -> None:
    ops, _ = lowered(X, lambda g: relu(g, g.linear(g["x"], "fc", 5, bias=True)))
    assert [op.params() for op in ops] == [[("i64", 5), ("i64", 1)]]


@pytest.mark.parametrize("groups", [1, 3])
def test_an_activation_behind_a_convolution_is_its_end(groups: int) -> None:
    window = {"strides": [1], "pads": [1, 1], "dilations": [1]}

    def build(g: Graph) -> SSAValue:
        weight = g.weight("w", 6, 3 // groups, 3)
        return relu(g, g.add(mllm.ConvOp(g["x"], weight, **window, groups=groups)))

    assert kernels(X, build) == ["f32_conv"]


def test_an_activation_of_a_product_with_two_readers_stays_a_stage() -> None:
    def build(g: Graph) -> SSAValue:
        y = g.linear(g["x"], "fc", 5)
        return g.add(mllm.BinaryOp(BinaryKind.ADD, relu(g, y), y))

    assert kernels(X, build) == ["f32_linear", "f32_elementwise"]


def test_a_product_with_a_computed_weight_is_a_plain_product() -> None:
    def build(g: Graph) -> SSAValue:
        weight = g.add(mllm.ReshapeOp(relu(g, g["w"]), (5, 8)))
        bias = g.weight("bias", 5)
        return relu(g, g.add(mllm.LinearOp(g["x"], weight, bias)))

    arguments = {**X, "w": TensorType(f32, [40])}
    assert kernels(arguments, build) == [
        "f32_elementwise",
        "alias",
        "f32_matmul",
        "f32_elementwise",
    ]


def test_a_gated_block_is_four_stages() -> None:
    def build(g: Graph) -> SSAValue:
        gate, up, down = (g.weight(n, *s) for n, s in (("g", (6, 8)), ("u", (6, 8)), ("d", (8, 6))))
        return g.add(mllm.GatedMlpOp(Activation.SILU, g["x"], gate, up, down))

    assert kernels(X, build) == ["f32_linear", "f32_linear", "f32_elementwise", "f32_linear"]


def test_a_chain_of_elementwise_ops_is_one_program() -> None:
    def build(g: Graph) -> SSAValue:
        half = g.add(mllm.ConstantOp.of(np.float32(0.5)))
        y = g.add(mllm.BinaryOp(BinaryKind.MUL, g["x"], half))
        y = g.add(mllm.BinaryOp(BinaryKind.ADD, g.weight("row", 8), y))
        return g.add(mllm.BinaryOp(BinaryKind.MUL, g["x"], g.add(mllm.UnaryOp(UnaryKind.TANH, y))))

    ops, _ = lowered(X, build)
    assert [str(op.properties["program"]) for op in ops] == ['"in0 in1 in0 0.5 mul add tanh mul"']


def test_a_broadcast_is_not_computed_again_for_each_row() -> None:
    def build(g: Graph) -> SSAValue:
        row = g.add(mllm.UnaryOp(UnaryKind.EXP, g.weight("row", 8)))
        return g.add(mllm.BinaryOp(BinaryKind.ADD, g["x"], row))

    assert kernels(X, build) == ["f32_elementwise", "f32_elementwise"]


def test_a_value_that_is_read_twice_is_computed_once() -> None:
    def build(g: Graph) -> SSAValue:
        y = g.add(mllm.UnaryOp(UnaryKind.EXP, g["x"]))
        return g.add(mllm.BinaryOp(BinaryKind.MUL, y, y))

    assert kernels(X, build) == ["f32_elementwise", "f32_elementwise"]


def test_no_program_reads_more_than_eight_operands() -> None:
    def build(g: Graph) -> SSAValue:
        y = g["x"]
        for i in range(12):
            y = g.add(mllm.BinaryOp(BinaryKind.ADD, y, g.weight(f"row{i}", 8)))
        return y

    ops, _ = lowered(X, build)
    assert max(len(op.operands) for op in ops) == 8
    assert len(ops) == 2


def test_no_program_holds_more_than_sixteen_values() -> None:
    def build(g: Graph) -> SSAValue:
        y = g.add(mllm.UnaryOp(UnaryKind.TANH, g["x"]))
        for _ in range(40):
            y = g.add(mllm.BinaryOp(BinaryKind.SUB, g["x"], y))
        return y

    ops, _ = lowered(X, build)
    programs = [words(str(op.properties["program"]).strip('"')) for op in ops]
    assert [depth(program) for program in programs] == [16, 16, 11]


def test_a_long_chain_is_lowered_in_the_time_of_its_length() -> None:
    """A quarter of a second of processor time; where each step read the whole chain, 14."""
    g = Graph("main", "graph", WeightStore(), X)
    y = g["x"]
    for _ in range(3000):
        y = g.add(mllm.BinaryOp(BinaryKind.ADD, y, g["x"]))
    module, start = module_of(g.finish({"y": y})), time.process_time()
    LowerToCpu().apply(Context(), module)
    assert time.process_time() - start < 4
    assert len([op for op in block_of(g.func).ops if isinstance(op, cpu.CpuOp)]) == 1


def test_comparison_and_choice_are_one_program() -> None:
    def build(g: Graph) -> SSAValue:
        zero = g.add(mllm.ConstantOp.of(np.float32(0)))
        c = g.add(mllm.CompareOp(CompareKind.LT, g["x"], zero))
        return g.add(mllm.SelectOp(c, zero, g["x"]))

    ops, _ = lowered(X, build)
    assert [str(op.properties["program"]) for op in ops] == ['"in0 0.0 lt 0.0 in0 select"']


def test_integers_have_programs_of_their_own() -> None:
    def build(g: Graph) -> SSAValue:
        three = g.add(mllm.ConstantOp.of(np.int64(3)))
        y = g.add(mllm.BinaryOp(BinaryKind.MUL, g["n"], three))
        return g.add(mllm.BinaryOp(BinaryKind.MOD, y, three))

    ops, _ = lowered({"n": TensorType(i64, [4])}, build)
    assert [(op.kernel(), str(op.properties["program"])) for op in ops] == [
        ("i64_elementwise", '"in0 3 mul 3 mod"')
    ]


def test_moving_an_axis_of_extent_one_is_an_alias() -> None:
    def build(g: Graph) -> SSAValue:
        y = g.add(mllm.ReshapeOp(relu(g, g["x"]), (1, 1, 3, 8)))
        return relu(g, g.add(mllm.TransposeOp(y, (0, 2, 1, 3))))

    assert kernels(X, build) == ["f32_elementwise", "alias", "f32_elementwise"]


def test_a_transposed_factor_is_read_as_it_lies() -> None:
    def build(g: Graph) -> SSAValue:
        turned = g.add(mllm.TransposeOp(g["x"], (0, 2, 1)))
        return g.add(mllm.MatmulOp(g["x"], turned))

    ops, _ = lowered(X, build)
    assert [(op.kernel(), op.params()) for op in ops] == [("f32_matmul", [("i64", 1)])]


@pytest.mark.parametrize("case", ["argument", "weight", "alias"])
def test_a_result_that_no_kernel_wrote_is_copied(case: str) -> None:
    def build(g: Graph) -> SSAValue:
        if case == "argument":
            return g["x"]
        if case == "weight":
            return g.weight("row", 8)
        return g.add(mllm.ReshapeOp(relu(g, g["x"]), (3, 8)))

    assert kernels(X, build)[-1] == "copy"


def test_an_argument_under_another_shape_is_copied_first() -> None:
    def build(g: Graph) -> SSAValue:
        return relu(g, g.add(mllm.ReshapeOp(g["x"], (24,))))

    assert kernels(X, build) == ["copy", "alias", "f32_elementwise"]


def test_a_tied_head_and_embedding_share_one_packed_weight() -> None:
    module, _ = llama()
    LowerToCpu().apply(Context(), module)
    weights = [op for op in block_of(graphs(module)[0]).ops if isinstance(op, cpu.WeightOp)]
    table = [w for w in weights if w.weight_name.data == "model.embed_tokens.weight"]
    assert [w.layout.data for w in table] == ["panel16"]
    assert {type(use.operation) for use in table[0].result.uses} == {
        cpu.F32EmbeddingOp,
        cpu.F32LinearOp,
    }


def test_past_and_present_become_the_cache() -> None:
    module, _ = llama()
    LowerToCpu().apply(Context(), module)
    module.verify()
    text = str(graphs(module)[0])
    assert "past_key_values" not in text
    assert "present" not in text
    assert '#cpu.cache<"decoder", 2 x 2 x 4, 64, "past_sequence_length">' in text
    order = [op.kernel() for op in block_of(graphs(module)[0]).ops if isinstance(op, cpu.CpuOp)]
    stores = [i for i, name in enumerate(order) if name == "f32_kv_store"]
    reads = [i for i, name in enumerate(order) if name == "f32_paged_attention"]
    assert [a < b for a, b in zip(stores, reads, strict=True)] == [True, True]


def test_a_cache_that_something_else_reads_is_refused_with_a_line() -> None:
    module, _ = llama()
    block = block_of(graphs(module)[0])
    append = next(op for op in block.ops if isinstance(op, mllm.KvAppendOp))
    reader = mllm.ReduceOp(mllm.ReduceKind.SUM, append.result, [0, 1, 2, 3], keepdims=False)
    block.insert_op_after(reader, append)
    with pytest.raises(CompileError, match=r"is read by 'mllm\.reduce'") as caught:
        LowerToCpu().apply(Context(), module)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-R002", 3)


def test_an_op_without_a_kernel_is_refused_with_its_location() -> None:
    g = Graph("main", "graph", WeightStore(), {"x": TensorType(f32, [1, 4, 8])})
    made = mllm.AlibiOp(f32, Dim.const(4), Dim.const(4), heads=2)
    module = module_of(g.finish({"y": g.add(made)}))
    with pytest.raises(CompileError, match=r"'mllm\.alibi' has no home") as caught:
        LowerToCpu().apply(Context(), module)
    assert caught.value.location == "/main/0"


def test_masks_are_integers() -> None:
    def build(g: Graph) -> SSAValue:
        zero = g.add(mllm.ConstantOp.of(np.int64(0)))
        mask = g.add(mllm.CompareOp(CompareKind.GE, g["m"], zero))
        assert mask.type == TensorType(i1, [1, 3])
        options = {"heads": 2, "kv_heads": 2, "scale": 0.5}
        attend = mllm.AttentionOp(g["x"], g["x"], g["x"], key_mask=mask, **options)
        return g.add(attend)

    arguments = {**X, "m": TensorType(i64, [1, 3])}
    assert kernels(arguments, build) == ["i64_elementwise", "cast", "f32_attention"]


def test_lowering_twice_gives_the_same_text() -> None:
    def text() -> str:
        module: ModuleOp = llama()[0]
        LowerToCpu().apply(Context(), module)
        return str(module)

    assert text() == text()


def test_choosing_among_the_tokens_of_several_images_needs_no_kernel_of_its_own() -> None:
    """Both meanings, of the op and of the kernel calls, are held to each other by `kernels`."""

    def build(g: Graph) -> SSAValue:
        x = relu(g, g["x"])
        best = mllm.TopKOp(g.add(mllm.TokenImportanceOp(x, x, heads=2)), 3, 1, by_index=True)
        g.add(best)
        return g.add(mllm.TokenGatherOp(x, best.indices))

    assert kernels({"x": TensorType(f32, [2, 6, 8])}, build) == [
        *("f32_elementwise", "slice", "alias", "alias", "transpose", "f32_matmul"),
        *("f32_elementwise", "f32_softmax", "f32_reduce", "top_k"),
        *("alias", "iota", "alias", "slice", "i64_elementwise", "gather"),
    ]
