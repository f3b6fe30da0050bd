"""Graphs as what the model-library generator of Qualcomm's SDK takes, where the library is not.

`model.cpp` calls the generator's wrapper, `model.bin` is a tar of what it links in, a file
`NAME.raw` for each distinct static tensor, and `net.json` says the same of each graph as data.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from mllm_compiler.backends.qnn.graph import (
    INPUT,
    OUTPUT,
    PACKAGE,
    STATIC,
    Encoding,
    Graph,
    Node,
    Tensor,
)
from mllm_compiler.backends.qnn.structures import DTYPES

PLAIN: Final = {
    "i8": "INT_8",
    "i16": "INT_16",
    "i32": "INT_32",
    "ui8": "UINT_8",
    "ui16": "UINT_16",
    "ui32": "UINT_32",
    "f16": "FLOAT_16",
    "f32": "FLOAT_32",
    "i1": "BOOL_8",
}
CODES: Final = {
    "i8": "SFIXED_POINT_8",
    "i16": "SFIXED_POINT_16",
    "i32": "SFIXED_POINT_32",
    "ui8": "UFIXED_POINT_8",
    "ui16": "UFIXED_POINT_16",
}
ROLES: Final = {INPUT: "APP_WRITE", OUTPUT: "APP_READ", STATIC: "STATIC"}
MEMBERS: Final = {
    "f32": "floatValue",
    "ui32": "uint32Value",
    "i32": "int32Value",
    "i1": "bool8Value",
}
STORAGE: Final = "QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_8"


@dataclass
class _Weights:
    """The distinct static tensors, by the name of their file."""

    raw: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def add(self, tensor: Tensor) -> str:
        """The name of a tensor's bytes."""
        assert tensor.data is not None
        data = tensor.data.astype(DTYPES[tensor.element], copy=False)
        raw = np.ascontiguousarray(data).tobytes()
        name = f"w_{hashlib.sha256(raw).hexdigest()[:16]}"
        self.raw[name] = raw
        return name

    def tar(self) -> bytes:
        """The tar; the same tensors give the same bytes."""
        out = BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, raw in sorted(self.raw.items()):
                entry = tarfile.TarInfo(f"{name}.raw")
                entry.size = len(raw)
                archive.addfile(entry, BytesIO(raw))
        return out.getvalue()


def sources(graphs: Sequence[Graph]) -> dict[str, bytes]:
    """The files of some graphs by name."""
    weights = _Weights()
    environment = Environment(
        loader=PackageLoader("mllm_compiler.backends.qnn"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    views = [_graph(graph, at, weights) for at, graph in enumerate(graphs)]
    code = environment.get_template("model.cpp.jinja").render(graphs=views, package=PACKAGE)
    nets = {graph.name: _net(graph) for graph in graphs}
    net = json.dumps({"graphs": nets}, indent=1, sort_keys=True)
    return {
        "model.cpp": code.encode(),
        "model.bin": weights.tar(),
        "net.json": f"{net}\n".encode(),
    }


def _graph(graph: Graph, at: int, weights: _Weights) -> dict[str, Any]:
    numbers = {name: i for i, name in enumerate(graph.tensors)}
    given = [*graph.of_role(INPUT), *graph.of_role(STATIC)]
    return {
        "label": json.dumps(graph.name),
        "function": f"graph{at}",
        "tensors": [_tensor(t, f"t{numbers[t.name]}", weights) for t in given],
        "nodes": [_node(node, graph, numbers, weights) for node in graph.nodes],
    }


def _node(
    node: Node, graph: Graph, numbers: Mapping[str, int], weights: _Weights
) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    for at, (name, value) in enumerate(node.parameters.items()):
        made = {"at": at, "label": json.dumps(name), "value": f"p{at}", "member": ""}
        if isinstance(value, Tensor):
            tensors.append(_tensor(value, f"p{at}", weights))
        else:
            element, number = value
            real = f"{float(number)!r}f" if element == "f32" else str(int(number))
            made["value"] = f"QNN_DATATYPE_{PLAIN[element]}"
            made["member"] = f"{MEMBERS[element]} = {real}"
        parameters.append(made)
    outputs = [graph.tensors[name] for name in node.outputs]
    return {
        "label": json.dumps(node.name),
        "location": node.location.encode("ascii", "replace").decode().replace("\\", "/"),
        "operator": node.operator,
        "inputs": [json.dumps(name) for name in node.inputs],
        "outputs": [_tensor(t, f"t{numbers[t.name]}", weights) for t in outputs],
        "parameters": parameters,
        "parameter_tensors": tensors,
    }


def _tensor(tensor: Tensor, variable: str, weights: _Weights) -> dict[str, Any]:
    buffer = ""
    if tensor.data is not None:
        name = weights.add(tensor)
        buffer = f", BINVARSTART({name}), BINLEN({name})"
    return {
        "label": json.dumps(tensor.name),
        "variable": variable,
        "type": f"QNN_TENSOR_TYPE_{ROLES.get(tensor.role, 'NATIVE')}",
        "data_type": _data_type(tensor),
        "dims": tensor.dims,
        "codes": list(_codes(tensor.encoding, variable)),
        "buffer": buffer,
    }


def _data_type(tensor: Tensor) -> str:
    table = PLAIN if tensor.encoding is None else CODES
    return f"QNN_DATATYPE_{table[tensor.element]}"


def _codes(encoding: Encoding | None, variable: str) -> Iterator[str]:
    """Statements that say what codes of a tensor mean."""
    codes, kind = f"{variable}_codes", _kind(encoding)
    defined = "UNDEFINED" if encoding is None else "DEFINED"
    yield f"{codes}.encodingDefinition = QNN_DEFINITION_{defined};"
    yield f"{codes}.quantizationEncoding = QNN_QUANTIZATION_ENCODING_{kind};"
    if encoding is None:
        return
    reals = [f"{scale!r}f" for scale in map(float, map(np.float32, encoding.scales))]
    offset, axis = -encoding.zero_point, encoding.axis
    if axis is None:
        one = "scaleOffsetEncoding" if kind == "SCALE_OFFSET" else "bwScaleOffsetEncoding"
        if kind == "BW_SCALE_OFFSET":
            yield f"{codes}.{one}.bitwidth = {encoding.bits};"
        yield f"{codes}.{one}.scale = {reals[0]};"
        yield f"{codes}.{one}.offset = {offset};"
        return
    if kind == "BW_AXIS_SCALE_OFFSET":
        yield f"static float {variable}_scales[] = {{{', '.join(reals)}}};"
        yield f"{codes}.bwAxisScaleOffsetEncoding.bitwidth = {encoding.bits};"
        yield f"{codes}.bwAxisScaleOffsetEncoding.axis = {axis};"
        yield f"{codes}.bwAxisScaleOffsetEncoding.numElements = {len(reals)};"
        yield f"{codes}.bwAxisScaleOffsetEncoding.scales = {variable}_scales;"
        return
    pairs = ", ".join(f"{{{real}, {offset}}}" for real in reals)
    yield f"static Qnn_ScaleOffset_t {variable}_scales[] = {{{pairs}}};"
    if encoding.blocks is None:
        yield f"{codes}.axisScaleOffsetEncoding.axis = {axis};"
        yield f"{codes}.axisScaleOffsetEncoding.numScaleOffsets = {len(reals)};"
        yield f"{codes}.axisScaleOffsetEncoding.scaleOffset = {variable}_scales;"
        return
    multiples, storage = ", ".join(map(str, encoding.blocks.reshape(-1).tolist())), STORAGE
    yield f"static uint8_t {variable}_blocks[] = {{{multiples}}};"
    yield f"static Qnn_BlockwiseExpansion_t {variable}_expansion = Qnn_BlockwiseExpansion_t();"
    yield f"{variable}_expansion.axis = {axis};"
    yield f"{variable}_expansion.scaleOffsets = {variable}_scales;"
    yield f"{variable}_expansion.numBlocksPerAxis = {encoding.blocks.shape[1]};"
    yield f"{variable}_expansion.blockScaleBitwidth = {encoding.bits};"
    yield f"{variable}_expansion.blockScaleStorageType = {storage};"
    yield f"{variable}_expansion.blocksScale8 = {variable}_blocks;"
    yield f"{codes}.blockwiseExpansion = &{variable}_expansion;"


def _kind(encoding: Encoding | None) -> str:
    """The kind of an encoding, as QNN names it."""
    if encoding is None:
        return "UNDEFINED"
    if encoding.blocks is not None:
        return "BLOCKWISE_EXPANSION"
    narrow = "BW_" if encoding.bits in (2, 4) else ""
    return f"{narrow}{'' if encoding.axis is None else 'AXIS_'}SCALE_OFFSET"


def _net(graph: Graph) -> dict[str, Any]:
    """A graph as data: what its tensors are like, and what its nodes read, make and are told."""
    return {
        "tensors": {t.name: _net_tensor(t) for t in graph.tensors.values()},
        "nodes": {
            node.name: {
                "package": PACKAGE,
                "type": node.operator,
                "input_names": list(node.inputs),
                "output_names": list(node.outputs),
                "scalar_params": {
                    name: {PLAIN[value[0]]: value[1]}
                    for name, value in node.parameters.items()
                    if not isinstance(value, Tensor)
                },
                "tensor_params": {
                    name: _net_tensor(value)
                    for name, value in node.parameters.items()
                    if isinstance(value, Tensor)
                },
                "location": node.location,
            }
            for node in graph.nodes
        },
    }


def _net_tensor(tensor: Tensor) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": ROLES.get(tensor.role, "NATIVE"),
        "data_type": _data_type(tensor),
        "dims": list(tensor.dims),
    }
    if (encoding := tensor.encoding) is not None:
        made["quant_params"] = {
            "scales": list(encoding.scales),
            "offset": -encoding.zero_point,
            "bitwidth": encoding.bits,
            "axis": encoding.axis,
        }
    return made
