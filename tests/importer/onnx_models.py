"""Small ONNX models for the importer's tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'


def model_of(text: str, *, header: str = HEADER) -> onnx.ModelProto:
    """The model of a graph in ONNX's text syntax."""
    return onnx.parser.parse_model(header + text)


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Writes the model into a folder."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def write(folder: Path, text: str, *, header: str = HEADER, name: str = "model.onnx") -> Path:
    """Writes the model of a graph in text syntax."""
    return save(model_of(text, header=header), folder, name)


def weighted(seed: int = 0, rows: int = 64, columns: int = 32) -> onnx.ModelProto:
    """A linear layer `y = x w + b` whose weight is large enough to stay in its file."""
    rng = np.random.default_rng(seed)
    model = model_of(
        f"""
        agraph (float[batch_size, {rows}] x) => (float[batch_size, {columns}] y) {{
          [fc_MatMul] h = MatMul(x, w)
          [fc_Add] y = Add(h, b)
        }}
        """
    )
    w = rng.standard_normal((rows, columns)).astype(np.float32)
    b = rng.standard_normal(columns).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model.graph.initializer.append(numpy_helper.from_array(b, "b"))
    return model


def with_external_data(folder: Path, location: str = "model.data") -> Path:
    """The linear layer with its weights in a second file; the path of the model."""
    path = folder / "model.onnx"
    onnx.save_model(
        weighted(),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=location,
        size_threshold=0,
    )
    return path


def redirected(path: Path, location: str, *, offset: int | None = None) -> None:
    """Makes the model's tensors point to another file, or another place of it."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
            if entry.key == "offset" and offset is not None:
                entry.value = str(offset)
    path.write_bytes(model.SerializeToString())
