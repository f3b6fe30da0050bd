"""Folders as optimum exports them: `config.json`, and ONNX files of well-known names.

A decoder is `model.onnx`, or of older versions `decoder_with_past_model.onnx`; a model of two
streams is `encoder_model.onnx`, `decoder_model.onnx` and `decoder_with_past_model.onnx`. Anything
else is one `model.onnx`. The files lie beside `config.json` or in `onnx/`. How text, pixels and
sound go in stands in `generation_config.json`, `tokenizer_config.json`, `preprocessor_config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.folder_media import audio_of, image_of
from mllm_compiler.importer.folder_text import text_of, unknown_layout
from mllm_compiler.importer.model_toml import CrossSpec, GenerationSpec, GraphSpec, ModelSpec
from mllm_compiler.importer.ports import (
    LONGEST_PAST,
    LONGEST_STEP,
    Ports,
    cache_of,
    language_model,
    read_ports,
    step_bounds,
)
from mllm_compiler.importer.typed_tables import load_json, missing, typed

ENCODER, FIRST, LATER = "encoder_model", "decoder_model", "decoder_with_past_model"
MERGED = "decoder_model_merged"
STATES = "encoder_hidden_states"
SEPARATE = "export the model again with --no-post-process, which keeps the decoders apart"
CROSS: Final = CrossSpec(
    input="past_key_values.{layer}.encoder.{kind}", out="present.{layer}.encoder.{kind}"
)
"""How keys and values of the encoder's states are named."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What `config.json` says that is needed here.

    Attributes:
        max_position_embeddings: The longest text; GPT-2 has it as `n_positions`.
        max_target_positions: The longest answer of a decoder with an encoder.
        eos_token_id: Tokens that end an answer.
        decoder_start_token_id: The first token of an answer of such a decoder.
    """

    max_position_embeddings: int | None = None
    n_positions: int | None = None
    max_target_positions: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None
    decoder_start_token_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What `generation_config.json` says that is needed here.

    Attributes:
        eos_token_id: Tokens that end an answer; those of `config.json` where there are none.
        decoder_start_token_id: The first token that a decoder with an encoder is given.
        forced_decoder_ids: Places and tokens that follow it.
        lang_to_id: The tokens of languages; a model of one language has none.
        task_to_id: The tokens of tasks.
        no_timestamps_token_id: The token that asks for words alone.
        suppress_tokens: Tokens that are never chosen.
        begin_suppress_tokens: Tokens that are not chosen first.
    """

    eos_token_id: int | tuple[int, ...] | None = None
    decoder_start_token_id: int | None = None
    forced_decoder_ids: tuple[tuple[int, ...], ...] = ()
    lang_to_id: Mapping[str, int] = field(default_factory=dict[str, int])
    task_to_id: Mapping[str, int] = field(default_factory=dict[str, int])
    no_timestamps_token_id: int | None = None
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Folder:
    """A folder that optimum wrote.

    Attributes:
        path: The folder.
        files: Its ONNX files by stem, relative to it.
    """

    path: Path
    files: dict[str, str]

    def ports(self, stem: str) -> Ports:
        """What a file takes and gives."""
        return read_ports(self.path / self.files[stem])


Graphs = dict[str, tuple[GraphSpec, Ports]]


def read_optimum_folder(path: Path) -> ModelSpec:
    """The specification of the folder that a `config.json` lies in.

    Raises:
        CompileError: MLC-I024, a file is no JSON; MLC-I022, a key is missing or cannot be used;
            MLC-I025, the ONNX files have no layout that is known.
    """
    table = load_json(path)
    config = typed(Config, table, file=path.name, closed=False)
    generation = _generation(path.parent, config)
    found = Folder(path.parent, _files(path.parent))
    two = ENCODER in found.files
    graphs = _two_streams(found) if two else _one_stream(found)
    stop = _ids(generation.eos_token_id) or _ids(config.eos_token_id)
    caches = any(graph.cache is not None for graph, _ in graphs.values())
    text = text_of(found.path, stop) if caches else None
    if text is not None and not stop:
        raise missing(path.name, "eos_token_id", table)
    audio = audio_of(found.path) if two else None
    return ModelSpec(
        name=found.path.resolve().name,
        graphs={name: graph for name, (graph, _) in graphs.items()},
        dims=step_bounds(graphs.values(), **_longest(config, two)) if caches else {},
        text=text,
        image=None if two else image_of(found.path),
        audio=audio,
        generation=None if audio is None else _spoken(generation, path.name, table),
        folder=found.path,
        source=path.name,
    )


def _files(folder: Path) -> dict[str, str]:
    """ONNX files by stem; one that stands alone is the model, whatever it is called."""
    found = {p.stem: p for sub in ("onnx", ".") for p in sorted((folder / sub).glob("*.onnx"))}
    if len(found) == 1:
        found = dict.fromkeys(("model",), next(iter(found.values())))
    if not found:
        raise unknown_layout("the folder has no ONNX file", str(folder), "export the model into it")
    return {stem: p.relative_to(folder).as_posix() for stem, p in found.items()}


def _generation(folder: Path, config: Config) -> Generation:
    file = folder / "generation_config.json"
    if not file.is_file():
        return Generation(decoder_start_token_id=config.decoder_start_token_id)
    table = load_json(file)
    if config.decoder_start_token_id is not None:
        table.setdefault("decoder_start_token_id", config.decoder_start_token_id)
    return typed(Generation, table, file=file.name, closed=False)


def _ids(given: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, int) else given


def _longest(config: Config, two: bool) -> dict[str, int]:
    """The bounds of a step and of the past."""
    known = (config.max_target_positions, config.max_position_embeddings, config.n_positions)
    longest = min(next((n for n in known if n is not None), LONGEST_PAST), LONGEST_PAST)
    return {"step": longest if two else min(longest, LONGEST_STEP), "past": longest}


def _one_stream(found: Folder) -> Graphs:
    """A language model, or any other model of one graph."""
    stem = next((s for s in ("model", LATER) if s in found.files), None)
    if stem is None:
        raise _no_model(found)
    file, ports = found.files[stem], found.ports(stem)
    graph = language_model(file, ports)
    if graph is not None:
        return {"decoder": (graph, ports)}
    if "use_cache_branch" in ports.inputs:
        raise _merged(found, file)
    role = "encoder" if "pixel_values" in ports.inputs else "graph"
    return {"model": (GraphSpec(file=file, role=role), ports)}


def _two_streams(found: Folder) -> Graphs:
    """An encoder, the first step of a decoder, and its later steps."""
    for stem in (FIRST, LATER):
        if stem not in found.files:
            raise _no_model(found)
    graphs: Graphs = {"encoder": _encoder(found)}
    for name, stem, role in (
        ("decoder", FIRST, "decoder"),
        ("decoder_with_past", LATER, "decoder-with-past"),
    ):
        ports = found.ports(stem)
        cache = cache_of(ports, takes_past=stem == LATER)
        edges = {STATES: "encoder.last_hidden_state"} if STATES in ports.inputs else {}
        file = found.files[stem]
        graph = GraphSpec(file=file, role=role, inputs=edges, cache=cache, cross=CROSS)
        graphs[name] = (graph, ports)
    return graphs


def _encoder(found: Folder) -> tuple[GraphSpec, Ports]:
    return GraphSpec(file=found.files[ENCODER], role="encoder"), found.ports(ENCODER)


def _no_model(found: Folder) -> CompileError:
    if MERGED in found.files:
        return _merged(found, found.files[MERGED])
    names = ", ".join(sorted(found.files.values())[:6])
    wanted = f"{ENCODER}, {FIRST} and {LATER}" if ENCODER in found.files else "model.onnx"
    message = f"the layout of {names} is not known: there is no {wanted}"
    return unknown_layout(message, str(found.path), "write a model.toml that ties the files")


def _merged(found: Folder, file: str) -> CompileError:
    message = f"'{file}' is two decoders in one, and those apart are not there"
    return unknown_layout(message, str(found.path), SEPARATE)


def _spoken(generation: Generation, source: str, config: Mapping[str, object]) -> GenerationSpec:
    """What a decoder over sound is asked: to write down English, without times."""
    start = generation.decoder_start_token_id
    if start is None:
        raise missing(source, "decoder_start_token_id", config)
    asked = (
        generation.lang_to_id.get("<|en|>"),
        generation.task_to_id.get("transcribe"),
        generation.no_timestamps_token_id,
    )
    forced = [pair[1] for pair in sorted(generation.forced_decoder_ids) if len(pair) == 2]
    if generation.lang_to_id:
        forced = [token for token in asked if token is not None]
    return GenerationSpec(
        forced_prompt=(start, *forced),
        suppress=tuple(t for t in generation.suppress_tokens if t >= 0),
        begin_suppress=tuple(t for t in generation.begin_suppress_tokens if t >= 0),
    )
