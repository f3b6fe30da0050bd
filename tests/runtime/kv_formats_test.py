"""A cache with a format for each layer: what is stored, what it takes, what is refused.

What layers hold is compared with the reference of a quantised cache, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mllm_compiler.reference import kv_cache
from tests.runtime.cases import F32, normal
from tests.runtime.library import Model, RunError, Session, ffi, library
from tests.runtime.program_writer import ProgramWriter

HEADS, DIM, PAGE = 2, 16, 32
AS_FLOATS, AS_HALVES, BY_8, BY_4 = range(4)
KEY, VALUE = range(2)
SCALES = np.linspace(0.5, 2, HEADS * DIM).astype(np.float16).reshape(HEADS, DIM)


def program(formats: Sequence[int], *, page: int = PAGE, layers: int = 4) -> ProgramWriter:
    """step: stores k and v of T tokens in every layer. Weight 0 of the table scales keys."""
    writer = ProgramWriter()
    tokens = writer.symbol("T", 64)
    k, v = (writer.io(name, "f32", [1, tokens, HEADS * DIM]) for name in "kv")
    assert writer.weight("scale", SCALES) == 2
    assert writer.weight("other", np.zeros((HEADS, DIM + 1), np.float16)) == 3
    assert writer.weight("floats", np.zeros((HEADS, DIM // 2), np.float32)) == 4
    for layer in range(layers):
        writer.stage("f32_kv_store", [k, v], [], [layer, HEADS])
    cache = writer.cache(
        "kv", layers=layers, kv_heads=HEADS, head_dim=DIM, tokens=256, page_tokens=page,
        formats=formats,
    )  # fmt: skip
    writer.entry("step", inputs=[k, v], outputs=[], cache=cache)
    return writer


MIXED = [32, AS_FLOATS, -1, AS_HALVES, -1, BY_8, 2, BY_4, 2]


def held(session: Session, layer: int, kind: int, tokens: int) -> F32:
    found, error = np.empty((HEADS, tokens, DIM), np.float32), ffi().new("mllm_error *")
    out = ffi().cast("float *", found.ctypes.data)
    place = (session.handle, 0, layer, kind, out, tokens, error)
    assert library().mllm_session_cache_read(*place) == 0
    return found


def by_heads(x: F32) -> F32:
    return x.reshape(-1, HEADS, DIM).transpose(1, 0, 2)[None]


def meant(layer: int, kind: int, x: F32) -> NDArray[np.generic]:
    if layer == AS_FLOATS:
        return x
    if layer == AS_HALVES:
        return kv_cache.half_tokens(x)
    return kv_cache.eight_bit_values(x) if kind else kv_cache.eight_bit_keys(x, SCALES)


def test_each_layer_holds_what_its_format_means() -> None:
    session = Session(Model(*program(MIXED).finish()))
    k, v = (normal(1, 50, HEADS * DIM, seed=name) for name in "kv")
    for start, stop in ((0, 20), (20, 21), (21, 50)):
        session.run({"k": k[:, start:stop], "v": v[:, start:stop]}, [], "step")
    for layer in range(4):
        for kind, x in enumerate((k, v)):
            want = meant(layer, kind, by_heads(x))[0]
            np.testing.assert_array_equal(held(session, layer, kind, 50), want)


def info_of(model: Model) -> Any:
    info = ffi().new("mllm_cache_info *")
    assert library().mllm_model_cache(model.handle, 0, info) == 0
    return info


def test_a_model_says_what_its_pages_take() -> None:
    """Floats, half floats, and twice codes with a scale for each token and head."""
    model = Model(*program(MIXED).finish())
    info = info_of(model)
    floats = 2 * HEADS * PAGE * DIM
    assert info.page_bytes == floats * (4 + 2 + 1 + 1) + 2 * (2 * HEADS * PAGE * 2)
    assert info.recent == 32
    assert [info.formats[i] for i in range(4)] == [0, 1, 2, 3]


def test_a_model_without_a_table_holds_floats() -> None:
    info = info_of(Model(*program([]).finish()))
    assert info.page_bytes == 4 * 2 * HEADS * PAGE * DIM * 4
    assert info.formats == ffi().NULL


HOSTILE = {
    "no such format": [0, 4, -1],
    "a negative format": [0, -1, -1],
    "no such tensor": [0, BY_8, 99],
    "a negative tensor": [0, BY_8, -2],
    "a tensor of inputs": [0, BY_8, 0],
    "a tensor of other size": [0, BY_8, 3],
    "a tensor of floats": [0, BY_8, 4],
    "parts of pages": [20, BY_4, -1],
    "a negative part": [-32, BY_4, -1],
    "a number beyond 32 bits": [1 << 40, BY_4, -1],
    "a table that ends early": [0, BY_8],
}


@pytest.mark.parametrize("table", HOSTILE.values(), ids=HOSTILE)
def test_a_table_that_cannot_be_is_refused(table: Sequence[int]) -> None:
    with pytest.raises(RunError, match="malformed program: cache 0"):
        Model(*program(table, layers=1).finish())


def test_pages_of_4_bits_are_whole_sub_blocks() -> None:
    with pytest.raises(RunError, match="malformed program: cache 0"):
        Model(*program([0, BY_4, -1], layers=1, page=40).finish())


@pytest.mark.parametrize("kind", [1, 2])
def test_a_table_holds_integers(kind: int) -> None:
    writer = program([0, BY_8, 2], layers=1)
    writer.kinds[-2] = kind
    with pytest.raises(RunError, match=r"malformed program: (cache|param)"):
        Model(*writer.finish())


def test_a_session_takes_fewer_bytes_by_its_format() -> None:
    """Of the same tokens: halves take half, codes of 8 bits a quarter and their scales."""
    sizes: list[int] = []
    for form in (AS_FLOATS, AS_HALVES, BY_8):
        session = Session(Model(*program([0, *[form, -1] * 4]).finish()))
        sizes.append(library().mllm_session_bytes(session.handle))
    tokens = 4 * 2 * HEADS * DIM * 256
    assert sizes[0] - sizes[1] == 2 * tokens
    assert sizes[1] - sizes[2] == tokens - 4 * 2 * HEADS * 256 * 2
