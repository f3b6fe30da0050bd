"""Models of one quantised operator each, seeded: what each is given and what it lifts to."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tests.passes.fused_models import Array, Case, floats

F32, U8, I8, I16, I32 = np.float32, np.uint8, np.int8, np.int16, np.int32


def integers(seed: int, dtype: type[np.generic], *shape: int) -> Array:
    limits = ml_dtypes.iinfo(dtype)
    wide = np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True)
    return wide.astype(dtype)


def scales(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).uniform(0.01, 0.1, shape)).astype(np.float32)


def scalar(value: float, dtype: type[np.generic]) -> Array:
    return np.array(value, dtype)


LINEAR = {"mllm.quantized_linear": 1}
ONLY_WEIGHT = {"mllm.linear": 1, "mllm.dequantize": 1, "mllm.quantized_linear": 0}
X, SX = floats(1, 3, 16), scalar(0.02, F32)

QUANTIZE = [
    Case(
        "of a tensor",
        "QuantizeLinear",
        {"x": X, "s": SX, "z": scalar(3, U8)},
        lifted={"mllm.quantize": 1},
        kinds={"y0": TensorProto.UINT8},
    ),
    Case(
        "without a zero point",
        "QuantizeLinear",
        {"x": X, "s": SX},
        {"output_dtype": TensorProto.INT16},
        lifted={"mllm.quantize": 1},
        kinds={"y0": TensorProto.INT16},
    ),
    Case(
        "of an axis",
        "QuantizeLinear",
        {"x": X, "s": scales(2, 3), "z": integers(3, I8, 3)},
        {"axis": 0},
        lifted={"mllm.quantize": 1},
        kinds={"y0": TensorProto.INT8},
    ),
    Case(
        "in blocks",
        "QuantizeLinear",
        {"x": X, "s": scales(2, 3, 4), "z": integers(3, I8, 3, 4)},
        {"axis": -1, "block_size": 4},
        lifted={"mllm.quantize": 1},
        kinds={"y0": TensorProto.INT8},
    ),
    Case(
        "of a tensor",
        "DequantizeLinear",
        {"x": integers(4, I16, 3, 16), "s": SX, "z": scalar(-3, I16)},
        lifted={"mllm.dequantize": 1},
    ),
    Case(
        "of sums",
        "DequantizeLinear",
        {"x": integers(4, I32, 3, 16), "s": scales(2, 16)},
        lifted={"mllm.dequantize": 1},
    ),
    Case(
        "of 4 bits in blocks",
        "DequantizeLinear",
        {"x": integers(4, ml_dtypes.int4, 3, 32), "s": scales(2, 3, 2)},
        {"axis": 1, "block_size": 16},
        weights=("x",),
        lifted={"mllm.dequantize": 1},
    ),
    Case(
        "of a run",
        "DynamicQuantizeLinear",
        {"x": X},
        outputs=(True, True, True),
        lifted={"mllm.dynamic_quantize": 1},
        kinds={"y0": TensorProto.UINT8, "y2": TensorProto.UINT8},
    ),
]

A, B = integers(5, U8, 3, 16), integers(6, I8, 16, 8)
IMAGE, FILTERS = integers(7, U8, 1, 4, 6, 6), integers(8, I8, 6, 2, 3, 3)
WINDOW = {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}
ZA, ZB, ZY, SY = scalar(7, U8), scalar(-2, I8), scalar(100, U8), scalar(3, F32)
INTEGERS = {"y0": TensorProto.INT32}

PRODUCTS = [
    Case(
        "of given matrices",
        "MatMulInteger",
        {"a": A, "b": B, "za": ZA},
        lifted={"mllm.integer_matmul": 1},
        kinds=INTEGERS,
    ),
    Case(
        "of columns",
        "MatMulInteger",
        {"a": A, "b": B, "za": ZA, "zb": integers(9, I8, 8)},
        weights=("b", "zb"),
        lifted={"mllm.integer_matmul": 1},
        kinds=INTEGERS,
    ),
    Case(
        "by a weight",
        "QLinearMatMul",
        {"a": A, "sa": SX, "za": ZA, "b": B, "sb": scales(10, 8), "zb": integers(9, I8, 8),
         "sy": SY, "zy": ZY},
        weights=("sa", "za", "b", "sb", "zb", "sy", "zy"),
        lifted={**LINEAR, "mllm.quantize": 1, "mllm.integer_matmul": 0},
        kinds={"y0": TensorProto.UINT8},
    ),
    Case(
        "of given matrices",
        "QLinearMatMul",
        {"a": integers(5, U8, 2, 3, 16), "sa": SX, "za": ZA, "b": integers(6, U8, 2, 16, 8),
         "sb": SX, "zb": ZA, "sy": scalar(0.9, F32), "zy": ZY},
        weights=("sa", "za", "sb", "zb", "sy", "zy"),
        lifted={"mllm.integer_matmul": 1, "mllm.quantize": 1},
        kinds={"y0": TensorProto.UINT8},
    ),
    Case(
        "in groups",
        "ConvInteger",
        {"x": IMAGE, "w": integers(8, U8, 6, 2, 3, 3), "zx": ZA, "zw": scalar(3, U8)},
        WINDOW,
        weights=("w",),
        lifted={"mllm.integer_conv": 1},
        kinds=INTEGERS,
    ),
    Case(
        "of channels with a bias",
        "QLinearConv",
        {"x": IMAGE, "sx": SX, "zx": ZA, "w": FILTERS, "sw": scales(11, 6),
         "zw": np.zeros(6, I8), "sy": SY, "zy": ZY, "b": integers(12, I16, 6).astype(I32)},
        WINDOW,
        weights=("sx", "zx", "w", "sw", "zw", "sy", "zy", "b"),
        lifted={"mllm.integer_conv": 1, "mllm.quantize": 1},
        kinds={"y0": TensorProto.UINT8},
    ),
]  # fmt: skip

NBITS = {"K": 64, "N": 6, "bits": 4, "block_size": 32}
RUNTIME = [
    Case(
        "of 4 bits",
        ".MatMulNBits",
        {"a": floats(1, 2, 3, 64), "b": integers(2, U8, 6, 2, 16), "s": floats(3, 12)},
        NBITS,
        weights=("b", "s"),
        lifted=ONLY_WEIGHT,
    ),
    Case(
        "of 4 bits with zero points and a bias",
        ".MatMulNBits",
        {"a": floats(1, 2, 96), "b": integers(2, U8, 6, 3, 16), "s": floats(3, 18),
         "z": integers(4, U8, 12), "g": None, "bias": floats(5, 6)},
        {**NBITS, "K": 96},
        weights=("b", "s", "z", "bias"),
        lifted=ONLY_WEIGHT,
    ),
    Case(
        "of 4 bits whose last block is cut short",
        ".MatMulNBits",
        {"a": floats(1, 2, 40), "b": integers(2, U8, 6, 2, 16), "s": floats(3, 12)},
        {**NBITS, "K": 40},
        weights=("b", "s"),
        lifted=ONLY_WEIGHT,
    ),
    Case(
        "of 2 bits",
        ".MatMulNBits",
        {"a": floats(1, 2, 64), "b": integers(2, U8, 6, 2, 8), "s": floats(3, 12)},
        {**NBITS, "bits": 2},
        weights=("b", "s"),
        lifted=ONLY_WEIGHT,
    ),
    Case(
        "of 8 bits",
        ".MatMulNBits",
        {"a": floats(1, 2, 64), "b": integers(2, U8, 6, 2, 32), "s": floats(3, 12)},
        {**NBITS, "bits": 8},
        weights=("b", "s"),
        lifted=ONLY_WEIGHT,
    ),
    Case(
        "by columns with a bias",
        ".DynamicQuantizeMatMul",
        {"a": X, "b": B, "sb": scales(10, 8), "zb": integers(9, I8, 8), "bias": floats(5, 8)},
        weights=("b", "sb", "zb", "bias"),
        lifted={**LINEAR, "mllm.dynamic_quantize": 1},
    ),
    Case(
        "by a weight",
        ".MatMulIntegerToFloat",
        {"a": A, "b": B, "sa": SX, "sb": scalar(0.1, F32), "za": ZA, "zb": ZB,
         "bias": floats(5, 8)},
        weights=("b", "sb", "zb", "bias"),
        lifted=LINEAR,
    ),
    Case(
        "of rows to codes",
        ".QGemm",
        {"a": A, "sa": SX, "za": ZA, "b": integers(6, I8, 8, 16), "sb": scales(10, 8),
         "zb": integers(9, I8, 8), "c": integers(12, I16, 8).astype(I32), "sy": SY, "zy": ZY},
        {"transB": 1},
        weights=("sa", "za", "b", "sb", "zb", "c", "sy", "zy"),
        lifted={**LINEAR, "mllm.quantize": 1},
        kinds={"y0": TensorProto.UINT8},
    ),
    Case(
        "of rows to numbers",
        ".QGemm",
        {"a": A, "sa": SX, "za": ZA, "b": integers(6, I8, 8, 16), "sb": scalar(0.1, F32),
         "zb": ZB},
        {"transB": 1, "alpha": 0.5},
        weights=("sa", "za", "b", "sb", "zb"),
        lifted=LINEAR,
    ),
]  # fmt: skip

CODES = {"x": A, "sx": SX, "zx": ZA}
RESULT = {"sy": scalar(0.03, F32), "zy": ZY}
U8_OUT = {"y0": TensorProto.UINT8}
ELEMENTWISE = [
    Case(
        "of codes",
        ".QLinearAdd",
        {**CODES, "b": integers(13, U8, 16), "sb": scalar(0.01, F32), "zb": ZY, **RESULT},
        lifted={"mllm.dequantize": 2, "mllm.binary": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
    Case(
        "of codes",
        ".QLinearMul",
        {**CODES, "b": integers(13, U8, 3, 1), "sb": scalar(0.01, F32), "zb": ZY, **RESULT},
        lifted={"mllm.dequantize": 2, "mllm.binary": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
    Case(
        "of codes",
        ".QLinearSigmoid",
        {**CODES, "sy": scalar(1 / 256, F32), "zy": scalar(0, U8)},
        weights=("sx", "zx", "sy", "zy"),
        lifted={"mllm.unary": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
    Case(
        "of codes",
        ".QLinearLeakyRelu",
        {**CODES, **RESULT},
        {"alpha": 0.2},
        weights=("sx", "zx", "sy", "zy"),
        lifted={"mllm.select": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
    Case(
        "of codes",
        ".QLinearConcat",
        {**RESULT, **CODES, "b": integers(13, U8, 3, 4), "sb": scalar(0.01, F32), "zb": ZY},
        {"axis": 1},
        weights=("sy", "zy", "sx", "zx", "sb", "zb"),
        lifted={"mllm.concat": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
    Case(
        "of codes",
        ".QLinearSoftmax",
        {**CODES, "sy": scalar(1 / 256, F32), "zy": scalar(0, U8)},
        {"axis": 1, "opset": 13},
        weights=("sx", "zx", "sy", "zy"),
        lifted={"mllm.softmax": 1, "mllm.quantize": 1},
        kinds=U8_OUT,
    ),
]

CASES = [*QUANTIZE, *PRODUCTS, *RUNTIME, *ELEMENTWISE]
