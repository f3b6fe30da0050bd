"""Integers of less than a byte share bytes in the store, as ONNX packs them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.importer import import_model
from mllm_compiler.weights import WeightStore, nbytes_of

NAMES = {"i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "ui2": ml_dtypes.uint2}


def codes(name: str, *shape: int) -> np.ndarray:
    limits = ml_dtypes.iinfo(NAMES[name])
    wide = np.random.default_rng(7).integers(limits.min, limits.max, shape, endpoint=True)
    return wide.astype(NAMES[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_store_packs_as_onnx_packs(name: str) -> None:
    array, store = codes(name, 9, 7), WeightStore()
    digest = store.add(array)
    tensor = numpy_helper.from_array(array)
    assert bytes(store.raw(digest)) == tensor.raw_data
    assert nbytes_of(name, (9, 7)) == len(tensor.raw_data)
    back = store.array(digest, name, (9, 7))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


@pytest.mark.parametrize("external", [False, True], ids=["inside", "beside"])
def test_a_narrow_weight_is_mapped_as_the_file_has_it(external: bool, tmp_path: Path) -> None:
    array = codes("i4", 32, 64)
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "s")
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [32, 64])
    weight = numpy_helper.from_array(array, "w")
    graph = helper.make_graph([node], "g", [], [out], [weight, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file = tmp_path / "m.onnx"
    onnx.save(model, file, save_as_external_data=external, location="m.data", size_threshold=0)
    imported = import_model(file)
    found = next(op for op in imported.module.walk() if isinstance(op, WeightOp))
    digest = found.value.digest.data
    assert len(imported.store.raw(digest)) == 32 * 64 // 2
    assert np.array_equal(imported.store.array(digest, "i4", (32, 64)), array)
