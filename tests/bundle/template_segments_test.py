"""Templates as segments: joined, they give what Jinja renders."""

from __future__ import annotations

from collections.abc import Sequence

import jinja2
import pytest

from mllm_compiler.bundle.template_segments import Segment, template_segments
from mllm_compiler.errors import CompileError

CHAT = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMS = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}"
    "[/]{% endfor %}"
)
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %};{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}<u>{{ m.content }}</u>{% endfor %}"
)


def join(segments: Sequence[Segment], prompt: str, system: str = "") -> str:
    """What the runtime makes of segments."""
    text = ""
    for segment in segments:
        said = prompt if segment.get("prompt") else system if segment.get("system") else ""
        said = "<image>" if segment.get("image") else said
        text += str(segment.get("literal", said.strip() if segment.get("trim") else said))
    return text


@pytest.mark.parametrize("template", [CHAT, TRIMS])
@pytest.mark.parametrize("prompt", ["Why?", "  spaced\n", "{{ 7 * 7 }} {% x"])
def test_joined_they_are_what_jinja_renders(template: str, prompt: str) -> None:
    forms = template_segments(template, special_tokens={"bos_token": "<s>"})
    messages = [{"role": "system", "content": " Short. "}, {"role": "user", "content": prompt}]
    made = jinja2.Environment(autoescape=False).from_string(template)
    for name, shown in (("plain", messages[1:]), ("system", messages)):
        rendered = made.render(messages=shown, add_generation_prompt=True, bos_token="<s>")
        assert join(forms[name], prompt, " Short. ") == rendered


def test_the_image_stands_before_the_prompt() -> None:
    forms = template_segments(CHAT, image_token="<image>")
    assert "user\n<image>\nWhat?<|im_end|>" in join(forms["image"], "What?")
    assert "<image>" not in join(forms["plain"], "What?")


ALWAYS = "{% for m in messages %}<u><image>\n{{ m['content'] + '</u>' }}{% endfor %}"


def test_a_template_that_writes_the_image_itself() -> None:
    forms = template_segments(ALWAYS, image_token="<image>")
    assert set(forms) == {"image"}
    assert join(forms["image"], "What?") == "<u><image>\nWhat?</u>"


def test_content_as_parts() -> None:
    forms = template_segments(PARTS, image_token="<image>")
    assert join(forms["image_system"], "What?", "Short") == "system:Short;user:<image>What?;"
    assert join(forms["plain"], "What?") == "user:What?;"


def test_a_form_that_the_template_refuses_is_absent() -> None:
    assert set(template_segments(NO_SYSTEM)) == {"plain"}


def test_without_a_template_the_prompt_is_bare() -> None:
    forms = template_segments(None, image_token="<image>")
    assert forms == {"plain": [{"prompt": True}], "image": [{"image": True}, {"prompt": True}]}


@pytest.mark.parametrize(("template", "why"), [("{% for", "line 1"), ("{{ x }}", "user's message")])
def test_an_unusable_template_is_told(template: str, why: str) -> None:
    with pytest.raises(CompileError, match=why) as caught:
        template_segments(template)
    assert caught.value.code == "MLC-B015"


def test_a_template_cannot_reach_outside() -> None:
    with pytest.raises(CompileError, match="user's message"):
        template_segments("{{ ''.__class__.__mro__ }}")
