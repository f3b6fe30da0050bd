"""The module of a whole model: a function a graph, and the pipeline that ties them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.mllm import CacheAttr, EdgeAttr, PipelineOp
from mllm_compiler.errors import CompileError
from mllm_compiler.importer.dim_specs import DimSpec, bounds_of
from mllm_compiler.importer.graph import import_graph
from mllm_compiler.importer.model_spec import read_model_spec
from mllm_compiler.importer.model_toml import CacheSpec, ModelSpec
from mllm_compiler.importer.read import read_model
from mllm_compiler.importer.tensors import Tensors
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class Imported:
    """A model in the `onnx` dialect.

    Attributes:
        module: A function for each graph, and the pipeline.
        store: The bytes of its weights.
        spec: What `model.toml` said of it.
    """

    module: ModuleOp
    store: WeightStore
    spec: ModelSpec


def import_model(
    model: Path | str | ModelSpec,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    simplify: bool = False,
    store: WeightStore | None = None,
) -> Imported:
    """Reads an `.onnx` file, a `model.toml`, a folder, or a specification.

    Args:
        model: The model.
        dims: Dimensions that go before those of the model.
        simplify: Run onnxsim over each graph first; it copies the weights and loses names.
        store: Where weights are registered; a new one where none is given.

    Raises:
        CompileError: The model cannot be read; the error names the file and the place in it.
    """
    spec = model if isinstance(model, ModelSpec) else read_model_spec(Path(model))
    store = store or WeightStore()
    functions: dict[str, FuncOp] = {}
    for name, graph in spec.graphs.items():
        file = spec.folder / graph.file
        if simplify:
            from mllm_compiler.importer.simplify import simplified

            file = simplified(file, store)
        tensors = Tensors(file, store)
        functions[name] = import_graph(read_model(file), tensors, name=name, role=graph.role)
        store.release()
    pipeline = PipelineOp(
        "pipeline" if "pipeline" not in functions else "_pipeline",
        edges=[edge for name in functions for edge in _edges(spec, name, functions)],
        caches=[cache for name in functions for cache in _caches(spec, name, functions[name])],
        bounds=bounds_of(spec.source, spec.dims, dims or {}, functions.values()),
        overlaps=spec.memory.overlap,
        banks=[bank.attribute for bank in spec.memory.banks],
    )
    return Imported(ModuleOp([*functions.values(), pipeline]), store, spec)


def _names(attributes: ArrayAttr[DictionaryAttr] | None) -> list[str]:
    names = [d.data["mllm.name"] for d in attributes or ()]
    return [n.data for n in names if isinstance(n, StringAttr)]


def _edges(spec: ModelSpec, consumer: str, functions: dict[str, FuncOp]) -> Iterator[EdgeAttr]:
    at = f"{spec.source}: graphs.{consumer}.inputs"
    inputs = _names(functions[consumer].arg_attrs)
    for pattern, reference in spec.graphs[consumer].inputs.items():
        producer, _, output = reference.partition(".")
        outputs = _names(functions[producer].res_attrs)
        layers = range(len(inputs)) if "{layer}" in pattern else range(1)
        for layer in layers:
            name, source = (s.replace("{layer}", str(layer)) for s in (pattern, output))
            if layer and name not in inputs:
                break
            _known(name, inputs, f"{at}.{pattern}", f"graph '{consumer}' has no input")
            _known(source, outputs, f"{at}.{pattern}", f"graph '{producer}' has no output")
            yield EdgeAttr.of(consumer, name, producer, source)
    yield from _cross_edges(spec, consumer, functions)


def _cross_edges(
    spec: ModelSpec, consumer: str, functions: dict[str, FuncOp]
) -> Iterator[EdgeAttr]:
    """Cross-attention's keys and values: outputs of the decoder, inputs of the one with past."""
    cross = spec.graphs[consumer].cross
    if cross is None or spec.graphs[consumer].role == "decoder":
        return
    makers = [n for n, g in spec.graphs.items() if g.role == "decoder" and g.cross is not None]
    inputs = _names(functions[consumer].arg_attrs)
    at = f"{spec.source}: graphs.{consumer}.cross.in"
    first = cross.input.replace("{layer}", "0").replace("{kind}", "key")
    _known(first, inputs, at, f"graph '{consumer}' has no input")
    for maker in makers:
        outputs = _names(functions[maker].res_attrs)
        for layer, kind in product(range(len(inputs)), ("key", "value")):
            name, out = (
                s.replace("{layer}", str(layer)).replace("{kind}", kind)
                for s in (cross.input, cross.out)
            )
            if name not in inputs:
                return
            _known(out, outputs, at, f"graph '{maker}' has no output")
            yield EdgeAttr.of(consumer, name, maker, out)


def _caches(spec: ModelSpec, name: str, function: FuncOp) -> Iterator[CacheAttr]:
    cache = spec.graphs[name].cache
    if cache is None:
        return
    inputs, outputs = _names(function.arg_attrs), _names(function.res_attrs)
    at = f"{spec.source}: graphs.{name}.cache"
    layers = 0
    while _out(cache, layers, "key") in outputs:
        layers += 1
    for layer in range(max(layers, 1)):
        for kind in ("key", "value"):
            _known(_out(cache, layer, kind), outputs, f"{at}.out", "the graph has no output")
        if spec.graphs[name].role == "decoder":
            continue
        for kind, pattern in (("key", cache.key), ("value", cache.value)):
            past = pattern.replace("{layer}", str(layer))
            _known(past, inputs, f"{at}.{kind}", "the graph has no input")
    yield CacheAttr.of(name, cache.key, cache.value, cache.out, layers)


def _out(cache: CacheSpec, layer: int, kind: str) -> str:
    return cache.out.replace("{layer}", str(layer)).replace("{kind}", kind)


def _known(name: str, known: Sequence[str], at: str, message: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.0)
    remedy = f"did you mean '{near[0]}'?" if near else "it has none at all"
    raise CompileError("MLC-I023", f"{message} '{name}'", location=at, remedy=remedy)
