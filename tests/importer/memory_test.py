"""A model's weights are never copied into memory, wherever in its files they lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.importer import onnx_models as models

MEGABYTES = 96

PROBE = """
import sys
from mllm_compiler.dialects import make_context
from mllm_compiler.importer import import_model
from mllm_compiler.passes.fold_constants import FoldConstants
from mllm_compiler.passes.infer_shapes import InferShapes

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def compile(path):
    imported = import_model(path)
    for one in (InferShapes(), FoldConstants()):
        one.apply(make_context(imported.store), imported.module)
    return imported

first = compile(sys.argv[1])
before = resident()
second = compile(sys.argv[2])
print(resident() - before)
"""


def large(folder: Path, *, external: bool) -> Path:
    model = models.model_of(
        """
        g (float[batch, 1024] x) => (float[batch, 1024] y) { h = MatMul(x, w0) y = MatMul(h, w1) }
        """
    )
    rows = MEGABYTES * (1 << 20) // 2 // 4096
    for i in range(2):
        array = np.full((rows, 1024), i + 1, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = rows
    del model.graph.node[1:]
    model.graph.node[0].output[0] = "y"
    path = folder / "large.onnx"
    if external:
        onnx.save_model(model, path, save_as_external_data=True, location="large.data")
    else:
        path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("external", [False, True], ids=["in the protobuf", "in a second file"])
def test_anonymous_memory_does_not_grow_with_the_weights(external: bool, tmp_path: Path) -> None:
    small = models.save(models.weighted(), tmp_path)
    path = large(tmp_path, external=external)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(small), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    kilobytes = int(done.stdout)
    assert kilobytes < MEGABYTES * 1024 / 20
