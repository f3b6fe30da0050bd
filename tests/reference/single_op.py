"""Runs one `mllm` op here, and one operator in the ONNX standard's own reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from xdsl.builder import Builder, InsertPoint
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.types import ELEMENTS
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore

Array = npt.NDArray[np.generic]
RNG = np.random.default_rng(7)


def real(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def run(make, *arrays: Array) -> list[Array]:
    """Runs the op that `make` builds from one value an array."""
    block = Block(arg_types=[tensor_of(ELEMENTS[a.dtype], a.shape) for a in arrays])
    builder = Builder(InsertPoint.at_end(block))
    op: Operation = make(*block.args)
    builder.insert(op)
    builder.insert(ReturnOp(*op.results))
    types = ([a.type for a in block.args], [r.type for r in op.results])
    module = ModuleOp([FuncOp("f", types, Region(block))])
    module.verify()
    inputs = {f"arg{i}": a for i, a in enumerate(arrays)}
    return list(run_function(module, "f", inputs, WeightStore()).values())


def standard(
    op_type: str, arrays: Sequence[Array | None], *, outputs: int = 1, opset=23, **attributes
) -> list[Array]:
    """Runs one ONNX operator in the standard's reference."""
    names = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    outs = [helper.make_tensor_value_info(r, TensorProto.UNDEFINED, None) for r in results]
    graph = helper.make_graph([node], "g", inputs, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, given)


def close(ours: Array, theirs: Array) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def run_constant(op: Operation) -> Array:
    return run(lambda *_: op)[0]
