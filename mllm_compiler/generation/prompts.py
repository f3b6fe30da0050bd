"""A prompt as token ids: the bundle's template around the user's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

from mllm_compiler.errors import CompileError
from mllm_compiler.generation.settings import Segment, Settings

IMAGE = -1
"""Stands in a list of ids where the features of the image go in."""


def prompt_ids(
    tokenizer: Tokenizer, settings: Settings, prompt: str, system: str | None, *, image: bool
) -> list[int]:
    """The ids of a turn; `IMAGE` marks the place of the image's features.

    Special tokens count where the template writes them and never in what the user says.

    Raises:
        CompileError: `MLC-X025`, the template has no such form.
    """
    pieces = list(_pieces(_segments(settings, system is not None, image), prompt, system or ""))
    special = {
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    }
    ids: list[int] = []
    for kind, text in _runs(pieces, special):
        if kind == "image":
            ids.append(IMAGE)
        elif kind == "special":
            ids.append(_special_id(tokenizer, text))
        else:
            ids += _plain(tokenizer, text)
    return ids


def _special_id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None
    return found


def _segments(settings: Settings, has_system: bool, image: bool) -> Sequence[Segment]:
    name = {
        (False, False): "plain",
        (True, False): "system",
        (False, True): "image",
        (True, True): "image_system",
    }[has_system, image]
    if name not in settings.template:
        raise CompileError(
            "MLC-X025",
            f"the model's template has no form '{name}'",
            remedy=f"it has: {', '.join(sorted(settings.template)) or 'none'}",
        )
    return settings.template[name]


def _pieces(segments: Sequence[Segment], prompt: str, system: str) -> Iterator[tuple[str, str]]:
    """Kind (`literal`, `user`, `image`) and text of each segment."""
    for segment in segments:
        trim = bool(segment.get("trim"))
        if segment.get("image"):
            yield "image", ""
        elif segment.get("prompt"):
            yield "user", prompt.strip() if trim else prompt
        elif segment.get("system"):
            yield "user", system.strip() if trim else system
        else:
            yield "literal", str(segment.get("literal", ""))


def _runs(pieces: Sequence[tuple[str, str]], special: set[str]) -> Iterator[tuple[str, str]]:
    """What is tokenized by itself: `special` tokens, `image`, and the `text` between them."""
    cut = re.compile("|".join(re.escape(token) for token in sorted(special, key=len, reverse=True)))
    pending = ""
    for kind, text in pieces:
        at = 0
        for match in cut.finditer(text) if kind == "literal" and special else ():
            pending += text[at : match.start()]
            yield from [("text", pending)] if pending else []
            yield "special", match.group()
            pending, at = "", match.end()
        pending += text[at:]
        if kind == "image":
            yield from [("text", pending)] if pending else []
            yield "image", ""
            pending = ""
    yield from [("text", pending)] if pending else []


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    tokenizer.encode_special_tokens = True
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    finally:
        tokenizer.encode_special_tokens = False
