"""A chat template (Jinja), turned into segments that the C runtime joins without a template engine.

The template is rendered once for each form of a single turn, with marks where the prompt, the
system prompt and the image go; what stands between the marks are literals:

    {"plain": [{"literal": "<s>user: "}, {"prompt": true}, {"literal": "</s>"}]}

Forms: `plain`, `system` (with a system prompt), `image`, `image_system`; a form is absent where the
template refuses it, or shows an image whether or not there is one. `"trim": true` stands where the
template strips what is put in. The runtime reads this from `config.json`
(`runtime_stub/src/config.h`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mllm_compiler.errors import CompileError

Segment = Mapping[str, str | bool]
Forms = Mapping[str, Sequence[Segment]]

_PROMPT: Final = "\ue000prompt\ue001"
_SYSTEM: Final = "\ue000system\ue001"
_MARKS: Final = {_PROMPT: "prompt", _SYSTEM: "system"}
_IMAGE: Final = "\ue000image\ue001"
FORMS: Final = (
    ("plain", False, False),
    ("system", False, True),
    ("image", True, False),
    ("image_system", True, True),
)
"""Name, whether there is an image, whether there is a system prompt."""


def template_segments(
    template: str | None,
    *,
    image_token: str | None = None,
    special_tokens: Mapping[str, str] | None = None,
) -> Forms:
    """The segments of every form that the template knows.

    Args:
        template: The Jinja source; None: the prompt goes in bare.
        image_token: The text that image features take the place of.
        special_tokens: What the template may name, for example `bos_token`.

    Raises:
        CompileError: `MLC-B015` the template does not say where the prompt goes.
    """
    if template is None:
        bare: list[Segment] = [{"prompt": True}]
        return (
            {"plain": bare, "image": [{"image": True}, *bare]} if image_token else {"plain": bare}
        )
    made = _compiled(template)
    names = special_tokens or {}
    forms: dict[str, Sequence[Segment]] = {}
    for name, image, system in FORMS:
        if image and image_token is None:
            continue
        segments = _form(made, names, image_token, image, system)
        if segments is not None:
            forms[name] = segments
    if "plain" not in forms and "image" not in forms:
        _refuse("it does not show a user's message")
    return forms


def _refuse(why: str) -> NoReturn:
    raise CompileError(
        "MLC-B015",
        f"the chat template cannot be used: {why}",
        location="chat_template.jinja",
        remedy="correct the template, or leave 'template' out of [text]",
    )


def _compiled(template: str) -> Template:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    # A template may print today's date; the bundle's bytes must not depend on it.
    today = datetime(2024, 7, 26, tzinfo=UTC).strftime
    known: dict[str, object] = {"raise_exception": raise_exception, "strftime_now": today}
    try:
        return made.from_string(template, globals=known)
    except TemplateSyntaxError as error:
        _refuse(f"{error.message} (line {error.lineno})")


def _form(
    template: Template, names: Mapping[str, str], token: str | None, image: bool, system: bool
) -> list[Segment] | None:
    """The segments of one form; content is text or a list of parts, as the model knows it."""
    wanted = [_PROMPT, *([_SYSTEM] if system else [])]
    for content in _contents(token if image else None):
        rendered = _render(template, names, content, system, "")
        images = rendered.count(token) if token else 0
        if "'type'" in rendered or images != image or any(m not in rendered for m in wanted):
            continue
        spaced = _render(template, names, content, system, "  ")
        kept = [mark for mark in _MARKS if f"  {mark}  " in spaced]
        return _cut(rendered, [mark for mark in _MARKS if mark not in kept], token)
    return None


def _contents(image_token: str | None) -> list[Callable[[str], object]]:
    """How a user's message may be written, the usual way first."""
    text: Callable[[str], object] = lambda said: said  # noqa: E731 - one of a list of such
    if image_token is None:
        return [text, lambda said: [{"type": "text", "text": said}]]
    return [
        lambda said: [{"type": "image"}, {"type": "text", "text": said}],
        text,  # the template writes the image's token by itself
        lambda said: f"{image_token}\n{said}",
    ]


def _render(
    template: Template,
    names: Mapping[str, str],
    content: Callable[[str], object],
    system: bool,
    space: str,
) -> str:
    """The conversation up to the answer; nothing where the template refuses it."""
    listed = isinstance(content(""), list)
    said = f"{space}{_SYSTEM}{space}"
    messages: list[Mapping[str, object]] = [
        {"role": "system", "content": [{"type": "text", "text": said}] if listed else said},
        {"role": "user", "content": content(f"{space}{_PROMPT}{space}")},
    ]
    shown = messages if system else messages[1:]
    try:
        return template.render({**names, "messages": shown, "add_generation_prompt": True})
    except (TemplateError, TypeError):  # TypeError: text is joined to a message that is a list
        return ""


def _cut(rendered: str, trimmed: Sequence[str], image_token: str | None) -> list[Segment]:
    if image_token is not None:
        rendered = rendered.replace(image_token, _IMAGE)
    segments: list[Segment] = []
    for part in re.split(f"({_PROMPT}|{_SYSTEM}|{_IMAGE})", rendered):
        if part == _IMAGE:
            segments.append({"image": True})
        elif part in _MARKS:
            trim: Segment = {"trim": True} if part in trimmed else {}
            segments.append({_MARKS[part]: True, **trim})
        elif part:
            segments.append({"literal": part})
    return segments
