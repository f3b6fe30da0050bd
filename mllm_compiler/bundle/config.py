"""`config.json`: how text, pixels and sound go into a bundle's entries, and how tokens come out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from mllm_compiler.bundle.files import reading
from mllm_compiler.bundle.template_segments import template_segments
from mllm_compiler.bundle.tokenizer_tables import tokenizer_tables
from mllm_compiler.bundle.typed_json import Json, encode
from mllm_compiler.bundle.writer import Content, content_of_bytes
from mllm_compiler.importer import ModelSpec, TextSpec, chat_template

TOKENIZER = "text/tokenizer.json"
TABLES = "text/tokenizer.bin"
TEMPLATE = "text/chat_template.jinja"


def text_contents(spec: ModelSpec) -> list[Content]:
    """The members below `text/`."""
    if spec.text is None:
        return []
    raw = _read(spec.folder / spec.text.tokenizer)
    members = [content_of_bytes(TOKENIZER, raw), content_of_bytes(TABLES, tokenizer_tables(raw))]
    if spec.text.template is not None:
        source = chat_template(spec.folder, spec.text) or ""
        members.append(content_of_bytes(TEMPLATE, source.encode()))
    return members


def config_of(spec: ModelSpec, pipeline: Mapping[str, object]) -> dict[str, Json]:
    """The content of `config.json`.

    Args:
        spec: What `model.toml` says.
        pipeline: How entries are tied: `edges` (consumer, its input, producer, its output) and
            `caches` (what each entry calls its past and present tensors).
    """
    config: dict[str, Json] = {
        "name": spec.name,
        "pipeline": encode(pipeline),
    }
    if spec.text is not None:
        config["text"] = _text(spec, spec.text)
    for key, block in (
        ("image", spec.image),
        ("audio", spec.audio),
        ("generation", spec.generation),
    ):
        if block is not None:
            config[key] = _present(vars(block))
    return config


def _text(spec: ModelSpec, text: TextSpec) -> dict[str, Json]:
    block = _present({"stop": text.stop, "image_token": text.image_token, "prompt": text.prompt})
    if text.embedding is not None:
        block["embedding"] = text.embedding.partition(":")[2]
    segments = template_segments(
        chat_template(spec.folder, text),
        image_token=text.image_token,
        special_tokens=text.special_tokens,
    )
    block["template"] = cast(Json, segments)
    return block


def _present(values: Mapping[str, object]) -> dict[str, Json]:
    return {key: cast(Json, value) for key, value in values.items() if value is not None}


def _read(path: Path) -> bytes:
    with reading(path):
        return path.read_bytes()
