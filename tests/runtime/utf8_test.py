"""Characters come out whole, however the bytes arrive."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_stub.library import CData
from tests.runtime.internals import Internals

EDGES = [0x41, 0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xA0, 0xED, 0xF0, 0x90, 0xF4]
BYTES = st.lists(st.sampled_from(EDGES))
TEXT = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: list(text.encode()))


def push(c: Internals, stream: CData, part: bytes, last: bool) -> bytes:
    out = c.ffi.new("char[]", 3 * (len(part) + 4))
    return bytes(c.ffi.buffer(out, c.lib.mllm_utf8_push(stream, part, len(part), last, out)))


@given(BYTES | TEXT | st.lists(st.integers(0, 255)), st.lists(st.integers(0, 5), min_size=1))
@settings(deadline=None, max_examples=400)
def test_pieces_are_whole_and_together_what_python_decodes(
    internals: Internals, codes: list[int], cuts: list[int]
) -> None:
    raw, c = bytes(codes), internals
    stream = c.ffi.new("mllm_utf8_stream *")
    parts: list[bytes] = []
    at = turn = 0
    while at < len(raw):
        size = max(cuts[turn % len(cuts)], 1)
        parts.append(push(c, stream, raw[at : at + size], False))
        at, turn = at + size, turn + 1
    parts.append(push(c, stream, b"", True))
    for part in parts:
        part.decode()  # whole characters only
    assert b"".join(parts).decode() == raw.decode("utf-8", "replace")
