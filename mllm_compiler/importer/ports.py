"""What an ONNX file takes and gives, by name; and the names that a cache is known by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.importer.model_toml import CacheSpec, DimSpec, GraphSpec
from mllm_compiler.importer.read import read_proto
from mllm_compiler.importer.types import parse_dim

PAST: Final = (
    "past_key_values.{layer}.{kind}",
    "past_key_values.{layer}.decoder.{kind}",
    "past_key_values_{layer}_{kind}",
    "past_{kind}_values.{layer}",
    "past_{kind}_{layer}",
    "past.{layer}.{kind}",
)
"""How exporters name the inputs that hold past keys and values."""

PRESENT: Final = (
    "present.{layer}.{kind}",
    "present.{layer}.decoder.{kind}",
    "present_key_values.{layer}.{kind}",
    "present_key_values_{layer}_{kind}",
    "present_{kind}_values.{layer}",
    "present_{kind}_{layer}",
)
"""How exporters name the outputs that hold them with the new tokens."""

LONGEST_STEP: Final = 256
"""The bound of the tokens that go in at once, where no `model.toml` gives one."""

LONGEST_PAST: Final = 2048
"""The bound of a past, where no `model.toml` gives one: memory is planned for it."""

Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class Ports:
    """The inputs and outputs of a graph with their dims; empty where a file states none."""

    inputs: Mapping[str, Dims]
    outputs: Mapping[str, Dims]


def read_ports(file: Path) -> Ports:
    """The inputs and outputs of an ONNX file; no weight is read.

    Raises:
        CompileError: The file is no ONNX model.
    """
    graph = read_proto(file).graph
    weights = {i.name for i in graph.initializer}
    return Ports(
        {i.name: _dims(i) for i in graph.input if i.name not in weights},
        {o.name: _dims(o) for o in graph.output},
    )


def _dims(value: onnx.ValueInfoProto) -> Dims:
    return tuple(_dim(d) for d in value.type.tensor_type.shape.dim)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return Dim.const(dim.dim_value)
    return parse_dim(dim.dim_param) if dim.dim_param else UNKNOWN


def cache_of(ports: Ports, *, takes_past: bool = True) -> CacheSpec | None:
    """The cache of a graph by the names that exporters give it; None where it has none.

    Args:
        ports: Of the graph.
        takes_past: Whether past keys and values must be inputs; a first step only returns them.
    """
    past = next((p for p in PAST if _name(p, "key") in ports.inputs), None)
    present = next((p for p in PRESENT if _name(p, "key") in ports.outputs), None)
    if present is None or (takes_past and past is None):
        return None
    past = past or present.replace("present", "past_key_values")
    key, value = (past.replace("{kind}", kind) for kind in ("key", "value"))
    return CacheSpec(key=key, value=value, out=present)


def _name(pattern: str, kind: str) -> str:
    return pattern.replace("{layer}", "0").replace("{kind}", kind)


def language_model(file: str, ports: Ports) -> GraphSpec | None:
    """A graph as language model: tokens and a past go in, logits and a longer past come out.

    None where it is anything else; a past of fixed length that is written in place is no cache.
    """
    cache = cache_of(ports)
    if cache is None or "logits" not in ports.outputs or not _tokens(ports):
        return None
    past, present = (
        ports.inputs[cache.key.replace("{layer}", "0")],
        ports.outputs[_name(cache.out, "key")],
    )
    if past == present and len(past) == 4 and not past[2].unknown:
        return None
    return GraphSpec(file=file, role="language-model", cache=cache)


def _tokens(ports: Ports) -> Dims:
    return next((ports.inputs[n] for n in ("input_ids", "inputs_embeds") if n in ports.inputs), ())


def step_bounds(
    graphs: Iterable[tuple[GraphSpec, Ports]], *, step: int = LONGEST_STEP, past: int = LONGEST_PAST
) -> dict[str, DimSpec]:
    """The bounds of a decoder's symbols, however they are named: one sequence, step, past."""
    bounds: dict[str, DimSpec] = {}
    for spec, ports in graphs:
        tokens = _tokens(ports)
        key = "" if spec.cache is None else spec.cache.key.replace("{layer}", "0")
        cached = ports.inputs.get(key, ())
        dims = [*zip(tokens, (1, step), strict=False), *zip(cached[::2], (1, past), strict=False)]
        for dim, largest in dims:
            symbol = dim.as_symbol()
            if symbol is not None:
                bounds.setdefault(symbol, DimSpec(max=largest))
    return bounds
