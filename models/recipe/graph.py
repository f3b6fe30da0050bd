"""A small ONNX writer that spells graphs as the TorchScript-based exporter of PyTorch does.

Scopes give nodes and values the exporter's names (`/model/layers.0/self_attn/q_proj/MatMul`,
`..._output_0`), weights keep their Hugging Face names, constants are `Constant` nodes and shapes
are computed by chains of `Shape`, `Gather`, `Unsqueeze` and `Concat`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.generic]
FloatArray = npt.NDArray[np.float32]
Weights = Mapping[str, FloatArray]
Dim = int | str
Attribute = int | float | str | Sequence[int] | onnx.TensorProto | onnx.GraphProto

OPSET = 17
IR_VERSION = 8
PAGE = 4096


class Graph:
    """An ONNX graph under construction; values are handled by name.

    Args:
        name: Name of the graph.
        weights: Every tensor that `weight` may be asked for, float32, by Hugging Face name.
    """

    def __init__(self, name: str, weights: Weights) -> None:
        """Start an empty graph."""
        self._name = name
        self._weights = weights
        self._used: dict[str, None] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._counts: dict[str, int] = {}
        self._renamed: dict[str, str] = {}

    @contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Put the nodes made inside under `name`."""
        self._scope.append(name)
        yield
        self._scope.pop()

    def input(self, name: str, dtype: int, shape: Sequence[Dim]) -> str:
        """Declare a graph input and return it."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, shape: Sequence[Dim]) -> None:
        """Make a float32 value a graph output; its producer writes it under `name`."""
        self._renamed[value] = name
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def sort_outputs(self, *, first: str) -> None:
        """Put one output in front of the others."""
        self._outputs.sort(key=lambda value: value.name != first)

    def weight(self, name: str) -> str:
        """Return a weight as a value; it becomes an initialiser of the graph."""
        if name not in self._weights:
            raise KeyError(name)
        self._used[name] = None
        return name

    def node(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Append a node with one output and return that output."""
        return self.nodes(op, *inputs, outputs=1, **attributes)[0]

    def nodes(self, op: str, *inputs: str, outputs: int, **attributes: Attribute) -> list[str]:
        """Append a node with several outputs and return them."""
        name = self._unique(op)
        values = [f"{name}_output_{index}" for index in range(outputs)]
        made = helper.make_node(op, inputs, values, name=name)
        for key, content in sorted(attributes.items()):
            made.attribute.append(helper.make_attribute(key, content))
        self._nodes.append(made)
        return values

    def constant(self, value: Array | float | int | Sequence[int]) -> str:
        """Append a `Constant`: floats are float32, integers int64."""
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def size(self, value: str, axis: int) -> str:
        """Return one extent of a value: a scalar int64."""
        shape = self.node("Shape", value)
        return self.node("Gather", shape, self.constant(axis), axis=0)

    def shape(self, dims: Sequence[Dim]) -> str:
        """Join constant extents and computed ones (scalars) into an int64 vector."""
        parts = [
            self.constant([dim])
            if isinstance(dim, int)
            else self.node("Unsqueeze", dim, self.constant([0]))
            for dim in dims
        ]
        return self.node("Concat", *parts, axis=0)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Insert axes of extent 1, one node each, in the order given."""
        for axis in axes:
            value = self.node("Unsqueeze", value, self.constant([axis]))
        return value

    def slice(self, value: str, start: int | str, stop: int | str, axis: int) -> str:
        """Return `value[start:stop]` along an axis; a computed bound is an int64 vector of one."""
        bounds = [self.constant([b]) if isinstance(b, int) else b for b in (start, stop)]
        return self.node("Slice", value, *bounds, self.constant([axis]), self.constant([1]))

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Cut a value into parts of the given extents along an axis."""
        lengths = self.constant(sizes)
        return self.nodes("Split", value, lengths, outputs=len(sizes), axis=axis)

    def linear(self, value: str, name: str, *, bias: bool = True) -> str:
        """Apply `value @ weight.T + bias`; weight is [out, in], bias [out]."""
        turned = self.node("Transpose", self.weight(f"{name}.weight"), perm=[1, 0])
        product = self.node("MatMul", value, turned)
        return self.node("Add", self.weight(f"{name}.bias"), product) if bias else product

    def conv(
        self,
        value: str,
        name: str,
        kernel: Sequence[int],
        *,
        strides: Sequence[int] = (),
        padding: Sequence[int] = (),
        groups: int = 1,
        bias: bool = True,
    ) -> str:
        """Correlate [batch, in, *sizes] with filters [out, in / groups, *kernel].

        Strides are 1 where none are given; padding is that of both ends of an axis, or none.
        """
        parts = ("weight", "bias") if bias else ("weight",)
        return self.node(
            *("Conv", value, *(self.weight(f"{name}.{part}") for part in parts)),
            dilations=[1] * len(kernel),
            group=groups,
            kernel_shape=list(kernel),
            pads=2 * list(padding or [0] * len(kernel)),
            strides=list(strides or [1] * len(kernel)),
        )

    def layer_norm(self, value: str, name: str, epsilon: float) -> str:
        """Normalise the last axis to mean 0 and variance 1, then scale and shift it."""
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=epsilon)

    def rms_norm(self, value: str, name: str, epsilon: float, *, offset: bool = False) -> str:
        """Scale rows to unit root mean square (Zhang & Sennrich 2019), spelled out.

        Args:
            value: [..., width].
            name: Of the layer whose `weight` [width] scales the columns.
            epsilon: Added to the mean square.
            offset: Whether columns are scaled by one plus the weight, as in Gemma.
        """
        square = self.node("Pow", value, self.constant(2.0))
        mean = self.node("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(epsilon)))
        normed = self.node("Mul", value, self.node("Div", self.constant(1.0), root))
        weight = self.weight(f"{name}.weight")
        if offset:
            return self.node("Mul", normed, self.node("Add", weight, self.constant(1.0)))
        return self.node("Mul", weight, normed)

    def gelu(self, value: str) -> str:
        """Apply the exact GELU: `0.5 x (1 + erf(x / sqrt 2))`."""
        error = self.node("Erf", self.node("Div", value, self.constant(2.0**0.5)))
        product = self.node("Mul", value, self.node("Add", error, self.constant(1.0)))
        return self.node("Mul", product, self.constant(0.5))

    def gelu_tanh(self, value: str) -> str:
        """Apply the GELU by tanh: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`."""
        cubic = self.node(
            "Mul", self.node("Pow", value, self.constant(3.0)), self.constant(0.044715)
        )
        scaled = self.node(
            "Mul", self.node("Add", value, cubic), self.constant((2 / math.pi) ** 0.5)
        )
        gate = self.node("Add", self.node("Tanh", scaled), self.constant(1.0))
        return self.node("Mul", self.node("Mul", value, self.constant(0.5)), gate)

    def proto(self) -> onnx.ModelProto:
        """Return the model; initialisers carry names, types and shapes, and no bytes yet."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        empty = [_header(name, self._weights[name]) for name in self._used]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, empty)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        model.producer_name = "mllm-compiler recipe"
        return model

    def save(self, path: Path, *, external: bool = False) -> None:
        """Write the model, its weights inside or, page-aligned, in `<file>.data` beside it."""
        model = self.proto()
        if external:
            _write_external(model, self._weights, path)
        else:
            for tensor in model.graph.initializer:
                tensor.raw_data = _bytes(self._weights[tensor.name])
        path.write_bytes(model.SerializeToString(deterministic=True))

    def _unique(self, op: str) -> str:
        base = "/".join(["", *self._scope, op])
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        return f"{base}_{count}" if count else base


def _header(name: str, value: FloatArray) -> onnx.TensorProto:
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)


def _bytes(value: FloatArray) -> bytes:
    return np.ascontiguousarray(value, dtype="<f4").tobytes()


def _write_external(model: onnx.ModelProto, weights: Weights, path: Path) -> None:
    """Write every initialiser at a multiple of the page size, one tensor at a time."""
    data = path.with_name(path.name + ".data")
    with data.open("wb") as file:
        for tensor in model.graph.initializer:
            file.write(b"\0" * (-file.tell() % PAGE))
            offset, content = file.tell(), _bytes(weights[tensor.name])
            file.write(content)
            tensor.data_location = TensorProto.EXTERNAL
            facts = {"location": data.name, "offset": str(offset), "length": str(len(content))}
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=value)
