"""Folders as ONNX Runtime GenAI uses them: `genai_config.json` names the decoder and its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mllm_compiler.importer.folder_text import text_of, unknown_layout
from mllm_compiler.importer.model_toml import CacheSpec, GraphSpec, ModelSpec, no_file
from mllm_compiler.importer.ports import LONGEST_PAST, LONGEST_STEP, read_ports, step_bounds
from mllm_compiler.importer.typed_tables import load_json, missing, typed, wrong

OTHERS = ("encoder", "vision", "speech", "embedding")
"""Parts of a model beside the decoder, which only a `model.toml` can tie."""

INPUTS = {
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
OUTPUTS = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
"""The keys that name a cache, and what they are where they are not given."""

FIXED = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "logits")
"""Inputs and outputs that must have the name of their key."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The graph: its file, and what its inputs and outputs are called; layers stand as `%d`."""

    filename: str
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Model:
    """The model.

    Attributes:
        context_length: The most tokens of prompt and answer.
        eos_token_id: Tokens that end an answer.
        decoder: The graph that generates.
    """

    context_length: int
    eos_token_id: int | tuple[int, ...]
    decoder: Decoder


def read_genai_config(path: Path) -> ModelSpec:
    """The specification of the folder that a `genai_config.json` lies in.

    Raises:
        CompileError: MLC-I024, no JSON; MLC-I022, a key is missing or cannot be used; MLC-I025, the
            model has parts beside a decoder; MLC-I003, the decoder's file is not there.
    """
    whole = load_json(path)
    if not isinstance(whole.get("model"), dict):
        raise missing(path.name, "model", whole)
    table = cast("dict[str, object]", whole["model"])
    others = [part for part in OTHERS if part in table]
    if others:
        message = f"a model with the part '{others[0]}' is not read from genai_config.json"
        raise unknown_layout(message, path.name, "write a model.toml that ties its graphs")
    model = typed(Model, table, file=path.name, at="model", closed=False)
    graph = GraphSpec(
        file=model.decoder.filename, role="language-model", cache=_cache(model.decoder, path.name)
    )
    _check_names(model.decoder, path.name)
    file = path.parent / graph.file
    if not file.is_file():
        raise no_file(graph.file, f"{path.name}: model.decoder.filename")
    longest = min(model.context_length, LONGEST_PAST)
    step = min(longest, LONGEST_STEP)
    ends = model.eos_token_id
    return ModelSpec(
        name=path.parent.resolve().name,
        graphs={"decoder": graph},
        dims=step_bounds([(graph, read_ports(file))], step=step, past=longest),
        text=text_of(path.parent, (ends,) if isinstance(ends, int) else ends),
        folder=path.parent,
        source=path.name,
    )


def _cache(decoder: Decoder, source: str) -> CacheSpec:
    """The names of the cache with `{layer}` and `{kind}`."""
    at = f"{source}: model.decoder"
    past = _patterns(INPUTS, decoder.inputs, f"{at}.inputs")
    present = _patterns(OUTPUTS, decoder.outputs, f"{at}.outputs")
    key, value = (
        name.replace(kind, "{kind}") for kind, name in zip(("key", "value"), present, strict=True)
    )
    if key != value:
        message = "names of keys and values must differ in the words key and value alone"
        where = "model.decoder.outputs.present_value_names"
        usual = present[0].replace("key", "value").replace("{layer}", "%d")
        raise wrong(source, where, message, f"write {usual}")
    return CacheSpec(key=past[0], value=past[1], out=key)


def _patterns(known: Mapping[str, str], given: Mapping[str, str], at: str) -> list[str]:
    """The names of keys and of values, the layer as `{layer}`."""
    found = [given.get(key, usual) for key, usual in known.items()]
    file, _, where = at.partition(": ")
    for key, name in zip(known, found, strict=True):
        if "%d" not in name:
            raise wrong(file, f"{where}.{key}", "the name lacks %d", "write %d for the layer")
    return [name.replace("%d", "{layer}") for name in found]


def _check_names(decoder: Decoder, source: str) -> None:
    """Refuses other names for what a run gives and takes by name."""
    for part, names in (("inputs", decoder.inputs), ("outputs", decoder.outputs)):
        for key, name in names.items():
            if key in FIXED and key != name:
                where = f"model.decoder.{part}.{key}"
                raise wrong(source, where, f"'{name}' must be called '{key}'", "rename it")
