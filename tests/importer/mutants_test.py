"""Mutated models are imported and inferred, or refused in one located line; nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import import_model
from mllm_compiler.passes.fold_constants import FoldConstants
from mllm_compiler.passes.infer_shapes import InferShapes
from tests.importer import onnx_models as models

MUTANTS = 150

ARITHMETIC = """
g (float[batch, seq, 8] x, float[2, 8, 3] w) => (float[batch, seq, a, b] y, float[m, n] z) {
  one = Constant<value = int64[1] {1}>()
  four = Constant<value = int64[1] {4}>()
  minus = Constant<value = int64[1] {-1}>()
  zero = Constant<value = int64 {0}>()
  shape = Shape(x)
  b = Gather<axis = 0>(shape, one)
  target = Concat<axis = 0>(minus, b, four, four)
  r = Reshape(x, target)
  t = Transpose<perm = [0, 1, 3, 2]>(r)
  s = Slice(t, one, four, one)
  p = Pad<mode = "constant">(s, target)
  y = Softmax<axis = -1>(t)
  c = Conv<kernel_shape = [3], pads = [1, 1], strides = [2]>(x, w)
  f = Flatten<axis = 1>(c)
  e = Expand(f, shape)
  k, i = TopK(f, one)
  z = Gemm<transB = 1>(k, f)
}
"""

INTEGERS = [0, 1, -1, 2, 7, 1 << 31, (1 << 63) - 1, -(1 << 63), 10**9]
OPERATORS = ["Reshape", "Slice", "Gather", "Concat", "Add", "Expand", "Conv", "Range", "Tile", "If"]

Mutation = Callable[[onnx.GraphProto, onnx.NodeProto, random.Random], None]


def rewire(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    values = [v for n in graph.node for v in (*n.input, *n.output)]
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*values, ""])


def change_attribute(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    for attribute in node.attribute:
        attribute.i = rng.choice(INTEGERS)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(INTEGERS)
        if rng.random() < 0.2:
            attribute.type = rng.randrange(1, 15)  # pyright: ignore[reportAttributeAccessIssue]


def change_extent(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    dim = rng.choice(rng.choice([*graph.input, *graph.output]).type.tensor_type.shape.dim)
    if rng.random() < 0.5:
        dim.dim_value = rng.choice(INTEGERS)
    else:
        dim.dim_param = rng.choice(["seq", "seq + 1", "n % 0", "N/2", "?", "", "x y", "((a))"])


def change_dtype(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    rng.choice([*graph.input, *graph.output]).type.tensor_type.elem_type = rng.randrange(30)


def change_operator(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    node.op_type = rng.choice(OPERATORS)


def change_constant(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    numbers = np.array([rng.choice(INTEGERS) for _ in range(rng.randrange(4))], np.int64)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(numpy_helper.from_array(numbers))


def drop_node(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    graph.node.remove(node)


def change_arity(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> None:
    names = rng.choice([node.input, node.output])
    if names and rng.random() < 0.5:
        del names[-1]
    else:
        names.append(rng.choice(["", "extra", *names]))


def refusal(path: Path) -> CompileError | None:
    """The error that a model ends in, through import and the shape passes."""
    try:
        imported = import_model(path)
        context = make_context(imported.store)
        InferShapes().apply(context, imported.module)
        FoldConstants().apply(context, imported.module)
    except CompileError as error:
        return error
    imported.module.verify()
    return None


MUTATIONS: list[Mutation] = [
    rewire,
    change_attribute,
    change_extent,
    change_dtype,
    change_operator,
    change_constant,
    drop_node,
    change_arity,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_mutants_are_read_or_refused(mutation: Mutation, tmp_path: Path) -> None:
    rng = random.Random(mutation.__name__)
    text = models.model_of(ARITHMETIC).SerializeToString()
    seen: set[str] = set()
    for _ in range(MUTANTS):
        model = onnx.ModelProto.FromString(text)
        for _ in range(rng.choice([1, 1, 2])):
            mutation(model.graph, rng.choice(model.graph.node), rng)
        error = refusal(models.save(model, tmp_path))
        if error is not None:
            assert "\n" not in str(error)
            assert error.location
            seen.add(error.code)
    # The mutations do break something: a test whose mutants are all fine would show nothing.
    assert seen


def test_flipped_bytes_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(0)
    whole = models.weighted().SerializeToString()
    refused = 0
    for _ in range(MUTANTS):
        data = bytearray(whole)
        data[rng.randrange(400) if rng.random() < 0.5 else rng.randrange(len(data))] ^= 1 << (
            rng.randrange(8)
        )
        (tmp_path / "m.onnx").write_bytes(data)
        error = refusal(tmp_path / "m.onnx")
        assert error is None or "\n" not in str(error)
        refused += error is not None
    assert refused
