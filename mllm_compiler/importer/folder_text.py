"""What the folder of a Hugging Face model says of text: tokenizer, chat template, stop tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.model_toml import TextSpec
from mllm_compiler.importer.typed_tables import load_json, wrong

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
KEY = "chat_template"
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
"""The tokens that a chat template may name."""


def text_of(folder: Path, stop: tuple[int, ...]) -> TextSpec | None:
    """How text goes in; None where the folder has no `tokenizer.json`."""
    if not (folder / TOKENIZER).is_file():
        return None
    file = folder / SETTINGS
    settings = load_json(file) if file.is_file() else {}
    template = SETTINGS if KEY in settings else None
    return TextSpec(
        tokenizer=TOKENIZER,
        template=TEMPLATE if (folder / TEMPLATE).is_file() else template,
        special_tokens={n: t for n in SPECIAL if (t := _token(settings.get(n))) is not None},
        stop=stop,
    )


def _token(value: object) -> str | None:
    """A token that is written as text, or as an object with its content."""
    if isinstance(value, dict):
        value = cast("Mapping[str, object]", value).get("content")
    return value if isinstance(value, str) else None


def chat_template(folder: Path, text: TextSpec) -> str | None:
    """The source of the chat template.

    Raises:
        CompileError: MLC-I003, it cannot be read; MLC-I022, a JSON file has none.
    """
    if text.template is None:
        return None
    file = folder / text.template
    if file.suffix != ".json":
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CompileError(
                "MLC-I003",
                f"the file cannot be read: {error}",
                location=str(file),
                remedy="check the path",
            ) from error
    found = load_json(file).get(KEY)
    if isinstance(found, list):
        found = _default(cast("list[object]", found))
    if not isinstance(found, str):
        raise wrong(file.name, KEY, "no text of a template", "give the template as text")
    return found


def _default(templates: list[object]) -> object:
    """The template named default, else the first, of a list of named ones."""
    tables = [cast("Mapping[str, object]", t) for t in templates if isinstance(t, dict)]
    named = {str(t.get("name")): t.get("template") for t in tables}
    return named.get("default", next(iter(named.values()), None))


def unknown_layout(message: str, location: str, remedy: str) -> CompileError:
    """The error of a folder that cannot be read without a `model.toml`."""
    return CompileError("MLC-I025", message, location=location, remedy=remedy)
