"""The executor: symbols, names, lifetimes, regions and located errors."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.reference import run_function
from mllm_compiler.reference.executor import Array, Frame, find_function
from mllm_compiler.weights import WeightStore

APPEND = """
func.func @append(
    %past: tensor<?x4xf32, #mllm.dims<"past", "4">> {mllm.name = "past"},
    %new: tensor<?x4xf32, #mllm.dims<"seq", "4">> {mllm.name = "new"},
    %mask: tensor<?xi64, #mllm.dims<"past + seq">> {mllm.name = "mask"}
) -> (tensor<?x4xf32, #mllm.dims<"past + seq", "4">> {mllm.name = "joined"}) {
  %0 = mllm.concat %past, %new {axis = 0 : i64}
    : (tensor<?x4xf32, #mllm.dims<"past", "4">>, tensor<?x4xf32, #mllm.dims<"seq", "4">>)
    -> tensor<?x4xf32, #mllm.dims<"past + seq", "4">>
  func.return %0 : tensor<?x4xf32, #mllm.dims<"past + seq", "4">>
}
"""


def parsed(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def refused(text: str, inputs: dict[str, Array], name: str = "append") -> str:
    with pytest.raises(CompileError) as fault:
        run_function(parsed(text), name, inputs, WeightStore())
    return str(fault.value)


def test_arguments_bind_symbols_and_results_have_names() -> None:
    given = {"past": floats(2, 4), "new": floats(3, 4), "mask": np.ones(5, np.int64)}
    results = run_function(parsed(APPEND), "append", given, WeightStore())
    assert list(results) == ["joined"]
    np.testing.assert_array_equal(results["joined"], np.concatenate([given["past"], given["new"]]))


def test_an_extent_that_contradicts_the_symbols_is_refused() -> None:
    given = {"past": floats(2, 4), "new": floats(3, 4), "mask": np.ones(6, np.int64)}
    assert refused(APPEND, given) == (
        "input 'mask': error: 'past + seq' is 5, the extent 6 [MLC-D001] "
        "(see the entries and their inputs with mllmc bundle inspect)"
    )


def test_a_symbol_with_two_values_is_refused() -> None:
    text = APPEND.replace(
        '#mllm.dims<"past + seq">> {mllm.name = "mask"}', '#mllm.dims<"seq">> {mllm.name = "mask"}'
    )
    given = {"past": floats(2, 4), "new": floats(3, 4), "mask": np.ones(6, np.int64)}
    assert "'seq' is 3 elsewhere and 6 here" in refused(text, given)


@pytest.mark.parametrize(
    ("past", "message"),
    [
        (floats(2, 5), "'4' is 4, the extent 5"),
        (floats(2, 4, 1), "rank 3"),
        (floats(2, 4).astype(np.float64), "float64"),
    ],
)
def test_an_array_of_another_type_is_refused(past: Array, message: str) -> None:
    line = refused(APPEND, {"past": past, "new": floats(3, 4), "mask": np.ones(5, np.int64)})
    assert line.startswith("input 'past': error: ")
    assert message in line


def test_a_missing_input_and_a_missing_graph_are_named() -> None:
    line = refused(APPEND, {"past": floats(2, 4)})
    assert line.startswith(
        "graph 'append': error: these inputs are missing: new, mask [MLC-D001] ("
    )
    assert "it has: append" in refused(APPEND, {}, name="decode")


def test_a_result_that_contradicts_its_type_is_located() -> None:
    text = """
    func.func @f(%x: tensor<?xf32, #mllm.dims<"n">>) -> tensor<?xf32, #mllm.dims<"2 * n">> {
      %0 = mllm.reshape %x
        : (tensor<?xf32, #mllm.dims<"n">>) -> tensor<?xf32, #mllm.dims<"n">> loc("/a/b")
      %1 = mllm.concat %0 {axis = 0 : i64}
        : (tensor<?xf32, #mllm.dims<"n">>) -> tensor<?xf32, #mllm.dims<"2 * n">> loc("/a/c")
      func.return %1 : tensor<?xf32, #mllm.dims<"2 * n">>
    }
    """
    line = refused(text, {"arg0": floats(3)}, name="f")
    assert line.startswith("/a/c: error: 'mllm.concat' made a tensor of shape [3]")


def test_an_op_without_meaning_is_located() -> None:
    text = """
    func.func @f() {
      mllm.pipeline @p {edges = [], caches = [], bounds = []} loc("/x")
      func.return
    }
    """
    line = refused(text, {}, name="f")
    assert line == "/x: error: 'mllm.pipeline' has no meaning in the reference [MLC-D002]"


CHAIN = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mllm.unary neg %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = mllm.unary exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  %2 = mllm.binary add %1, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
"""


def test_a_value_is_freed_after_its_last_use() -> None:
    module = parsed(CHAIN)
    frame = Frame({}, WeightStore())
    alive: list[int] = []
    frame.listener = lambda op, results: alive.append(len(frame.values))
    results = frame.run_block(find_function(module, "f").body.block, [floats(4)])
    assert alive == [2, 2, 2]
    assert len(frame.values) == 1
    np.testing.assert_allclose(results[0], 2 * np.exp(-floats(4)))


def test_a_listener_sees_every_op_with_its_results() -> None:
    seen: list[tuple[str, float]] = []

    def listen(op: Operation, results: object) -> None:
        assert isinstance(results, tuple)
        seen.append((op.name, float(results[0][1])))

    run_function(parsed(CHAIN), "f", {"arg0": floats(4)}, WeightStore(), listener=listen)
    assert [name for name, _ in seen] == ["mllm.unary", "mllm.unary", "mllm.binary"]
    assert seen[0][1] == -1.0


def test_weights_come_from_the_store() -> None:
    store = WeightStore()
    matrix = floats(16, 8)
    digest = store.add(matrix)
    text = f"""
    func.func @f() -> tensor<16x8xf32> {{
      %w = mllm.weight #mllm.blob<"{digest}", f32, [16, 8]> : tensor<16x8xf32>
      func.return %w : tensor<16x8xf32>
    }}
    """
    results = run_function(parsed(text), "f", {}, store)
    np.testing.assert_array_equal(results["result0"], matrix)
