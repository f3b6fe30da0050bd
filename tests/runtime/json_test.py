"""The JSON reader against Python's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_stub.library import CData
from tests.runtime.internals import Internals

KINDS = (None, False, True)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers(-(10**17), 10**17) | st.floats(-1e200, 1e200).filter(
    lambda x: x == 0 or abs(x) > 1e-200
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def value_of(c: Internals, at: CData) -> object:
    """A C value as Python's."""
    if at.kind < 3:
        return KINDS[at.kind]
    if at.kind == 3:
        return at.integer if at.is_integer else at.number
    if at.kind == 4:
        return bytes(c.ffi.buffer(at.text, at.count)).decode()
    child, items = c.lib.mllm_json_first(at), list[object]()
    for _ in range(at.count * (1 if at.kind == 5 else 2)):
        items.append(value_of(c, child))
        child = c.lib.mllm_json_next(child)
    return items if at.kind == 5 else dict(zip(items[::2], items[1::2], strict=True))


def parse(c: Internals, raw: bytes) -> object:
    doc = c.ffi.new("mllm_json *")
    if not c.lib.mllm_json_parse(doc, raw, len(raw)):
        fault = c.ffi.string(doc.fault).decode()
        raise ValueError(f"{fault} at {doc.fault_at}")
    value = value_of(c, doc.values)
    c.lib.mllm_json_free(doc)
    return value


@given(VALUES, st.booleans())
@settings(deadline=None)
def test_reads_what_python_writes(internals: Internals, value: object, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=1 if plain else None)
    read = parse(internals, text.encode())
    assert almost(read, json.loads(text))


def almost(a: object, b: object) -> bool:
    """Equal, floats to the last two bits."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(almost(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(almost, a, b))
    if isinstance(b, float) and isinstance(a, (int, float)):
        return a == pytest.approx(b, rel=1e-12)
    return type(a) is type(b) and a == b


@given(st.text(st.sampled_from('{}[]",:\\u01ea-+.E tfn\n\x01é'), max_size=12))
@settings(deadline=None, max_examples=500)
def test_accepts_nothing_that_python_refuses(internals: Internals, text: str) -> None:
    try:
        read = parse(internals, text.encode())
    except ValueError:
        return
    assert almost(read, json.loads(text))


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b'{"a":1,"a":2}', "an object has a key twice at 10"),
        (b'"\\u0000"', "bad \\u escape in a string at 2"),
        (b'"\\ud800x"', "half a surrogate pair in a string at 7"),
        (b'"\xc0\x80"', "a string is not UTF-8 at 1"),
        (b"[" * 33 + b"]" * 33, "nested too deeply at 32"),
        (b"[1] x", "text behind the document at 4"),
        (b"01", "a number starts with 0 at 1"),
        (b"1e999", "a number is out of range at 5"),
        (b"NaN", "not a JSON value at 0"),
        (b"", "the text ends too early at 0"),
    ],
)
def test_says_what_is_wrong_and_where(internals: Internals, raw: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match="at") as caught:
        parse(internals, raw)
    assert str(caught.value) == fault
