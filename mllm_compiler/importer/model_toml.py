"""What a `model.toml` says: a model's graphs, how they are tied, what goes in and out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.dim_specs import DimSpec
from mllm_compiler.importer.memory_spec import MemorySpec
from mllm_compiler.importer.typed_tables import load_toml, typed, wrong

ROLES: Final = (
    "encoder",
    "projector",
    "decoder",
    "decoder-with-past",
    "language-model",
    "graph",
)
"""What a graph can be in a pipeline."""

FITS: Final = ("stretch", "crop")
"""How a picture of another shape is brought to size."""


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """Which inputs and outputs of a graph are its cache; the names have `{layer}`.

    Attributes:
        key: The inputs that hold past keys.
        value: The inputs that hold past values.
        out: The outputs; `{kind}` is `key` or `value`.
    """

    key: str
    value: str
    out: str


@dataclass(frozen=True, kw_only=True)
class CrossSpec:
    """The keys and values of another stream: a `decoder` makes them, a `decoder-with-past` reads.

    Attributes:
        input: The inputs of the graph that reads; the key is `in`.
        out: The outputs of the graph that makes them; both have `{layer}` and `{kind}`.
    """

    input: str = field(metadata={"key": "in"})
    out: str


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """One ONNX file of the model.

    Attributes:
        file: The file, beside `model.toml`.
        role: What the graph is in the pipeline.
        inputs: Inputs that are outputs of other graphs: `vision.last_hidden_state`.
        cache: The names of its cache.
        cross: The names of its cross-attention's keys and values.
    """

    file: str
    role: str = "graph"
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    cache: CacheSpec | None = None
    cross: CrossSpec | None = None


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """How text goes in and comes out.

    Attributes:
        tokenizer: A `tokenizer.json`.
        embedding: `graph:weight`, the table that the runtime looks tokens up in.
        template: A chat template (Jinja), or a JSON file that has it as `chat_template`.
        image_token: The token that image features take the place of.
        special_tokens: What the template may name, for example `bos_token`.
        stop: Tokens that end an answer.
        prompt: What is asked where the user gives no prompt.
    """

    tokenizer: str
    embedding: str | None = None
    template: str | None = None
    image_token: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    stop: tuple[int, ...] = ()
    prompt: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """How pixels go in: resized to `size` (height, width), then (x / 255 - mean) / std.

    `fit` is `stretch`, or `crop`: the shorter edge is brought to size, the middle is cut out.
    """

    size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fit: str = "stretch"


@dataclass(frozen=True, kw_only=True)
class AudioSpec:
    """How sound goes in: log mel bands of a window of `window_s` seconds."""

    rate: int
    n_fft: int
    hop: int
    mels: int
    window_s: int


@dataclass(frozen=True, kw_only=True)
class GenerationSpec:
    """How an answer is generated.

    Attributes:
        forced_prompt: Tokens that every answer starts with.
        suppress: Tokens that are never chosen.
        begin_suppress: Tokens that are not chosen first.
        max_new_tokens: The longest answer.
    """

    forced_prompt: tuple[int, ...] = ()
    suppress: tuple[int, ...] = ()
    begin_suppress: tuple[int, ...] = ()
    max_new_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model: its graphs, how they are tied, what goes in and comes out.

    Attributes:
        folder: Where the files lie.
        source: The file that said so, for messages.
    """

    name: str
    licence: str = ""
    graphs: Mapping[str, GraphSpec]
    dims: Mapping[str, DimSpec] = field(default_factory=dict[str, DimSpec])
    text: TextSpec | None = None
    image: ImageSpec | None = None
    audio: AudioSpec | None = None
    generation: GenerationSpec | None = None
    memory: MemorySpec = field(default_factory=MemorySpec)
    folder: Path = field(default=Path(), metadata={"key": ""})
    source: str = field(default="model.toml", metadata={"key": ""})


def read_model_toml(path: Path) -> ModelSpec:
    """The specification of a `model.toml`.

    Raises:
        CompileError: It cannot be read, has an unknown key, or names what is not there.
    """
    table = load_toml(path)
    spec = typed(ModelSpec, table, file=path.name)
    for name, value in (("folder", path.parent), ("source", path.name)):
        object.__setattr__(spec, name, value)
    _check_graphs(spec)
    _check_text(spec)
    spec.memory.check(spec.source, list(spec.graphs))
    if spec.image is not None and spec.image.fit not in FITS:
        known = f"write one of {', '.join(FITS)}"
        raise wrong(spec.source, "image.fit", f"unknown fit '{spec.image.fit}'", known)
    for name, dim in spec.dims.items():
        if fault := dim.fault():
            raise wrong(spec.source, f"dims.{name}", fault, "correct min, max or buckets")
    return spec


def graph_name(stem: str) -> str:
    """A file's stem as the name of a graph."""
    name = re.sub(r"\W", "_", stem)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


def _check_graphs(spec: ModelSpec) -> None:
    if not spec.graphs:
        raise wrong(spec.source, "graphs", "the model has no graph", "add a [graphs.NAME] table")
    for name, graph in spec.graphs.items():
        at = f"graphs.{name}"
        if graph_name(name) != name:
            raise wrong(spec.source, at, f"'{name}' is no name", "use letters, digits and _")
        if graph.role not in ROLES:
            near = get_close_matches(graph.role, ROLES, n=1, cutoff=0.0)[0]
            message = f"unknown role '{graph.role}'"
            raise wrong(spec.source, f"{at}.role", message, f"did you mean '{near}'?")
        if not (spec.folder / graph.file).is_file():
            raise no_file(graph.file, f"{spec.source}: {at}.file")
        for key, producer in graph.inputs.items():
            _check_reference(spec, f"{at}.inputs.{key}", producer.split(".", 1)[0])
        for part in ("key", "value", "out"):
            if graph.cache is not None and "{layer}" not in getattr(graph.cache, part):
                raise wrong(
                    spec.source, f"{at}.cache.{part}", "the name lacks {layer}", "add {layer}"
                )


def _check_text(spec: ModelSpec) -> None:
    if spec.text is None:
        return
    for key in ("tokenizer", "template"):
        name = getattr(spec.text, key)
        if name is not None and not (spec.folder / name).is_file():
            raise no_file(name, f"{spec.source}: text.{key}")
    if spec.text.embedding is not None:
        _check_reference(spec, "text.embedding", spec.text.embedding.split(":", 1)[0])


def no_file(name: str, location: str) -> CompileError:
    """The error of a key that names a file which is not there."""
    message = f"there is no file '{name}'"
    remedy = "build or copy the model's files into one folder"
    return CompileError("MLC-I003", message, location=location, remedy=remedy)


def _check_reference(spec: ModelSpec, at: str, graph: str) -> None:
    if graph in spec.graphs:
        return
    near = get_close_matches(graph, list(spec.graphs), n=1, cutoff=0.0)[0]
    raise CompileError(
        "MLC-I023",
        f"there is no graph '{graph}'",
        location=f"{spec.source}: {at}",
        remedy=f"did you mean '{near}'?",
    )
