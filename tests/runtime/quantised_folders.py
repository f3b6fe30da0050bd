"""Folders of recipes whose weights ONNX Runtime's quantizer has made codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)


def with_columns(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its weights as [K, N]: the quantizers look for constants there."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == "Transpose" and n.input[0] in held]:
        matrix = np.ascontiguousarray(numpy_helper.to_array(held[node.input[0]]).T)
        model.graph.initializer.append(numpy_helper.from_array(matrix, node.output[0]))
        model.graph.node.remove(node)
    return model


def weights_only(source: Path, out: Path, *, bits: int, block_size: int) -> None:
    """A model file whose products have weights of so many bits (MatMulNBits)."""
    config = DefaultWeightOnlyQuantConfig(block_size=block_size, is_symmetric=False, bits=bits)
    quantizer = MatMulNBitsQuantizer(with_columns(onnx.load(source)), algo_config=config)
    quantizer.process()
    onnx.save(quantizer.model.model, out)


def dynamic(source: Path, out: Path) -> None:
    """A model file whose activations are quantised as they come (MatMulInteger)."""
    onnx.save(with_columns(onnx.load(source)), out)
    quantize_dynamic(out, out)


def folder_with(recipe: Path, folder: Path) -> Path:
    """A copy of a recipe's folder without its model; the answer is where that goes."""
    folder.mkdir(exist_ok=True)
    for file in recipe.iterdir():
        if not file.name.startswith("model.onnx"):
            shutil.copy(file, folder)
    return folder / "model.onnx"
