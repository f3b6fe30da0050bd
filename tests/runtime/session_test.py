"""Entries, symbols, the KV cache, shared tensors and errors of a session."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runtime.cases import F32, normal
from tests.runtime.cases_attention import Shape, attention_of, tokens_major
from tests.runtime.library import Model, RunError, Session, ffi, library
from tests.runtime.program_writer import ARENA, ProgramWriter

LAYERS, HEADS, KV_HEADS, DIM, PAGE = 2, 4, 2, 8, 16


def doubling() -> ProgramWriter:
    """main: y[T, 3] = x[T, 3] + x, where T <= 5."""
    writer = ProgramWriter()
    tokens = writer.symbol("T", 5)
    x, y = writer.io("x", "f32", [tokens, 3]), writer.io("y", "f32", [tokens, 3])
    writer.stage("f32_elementwise", [x, x], [y], [[0, 1, 96 << 32]], "/add")
    writer.entry("main", inputs=[x], outputs=[y])
    return writer


def decoder(max_tokens: int = 100) -> ProgramWriter:
    """step: stores k and v of T tokens in LAYERS layers, attends causally in each."""
    writer = ProgramWriter()
    tokens, past = writer.symbol("T", 64), writer.symbol("P", max_tokens)
    names = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "qkv"]
    widths = [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM] * LAYERS
    inputs = [
        writer.io(name, "f32", [1, tokens, width])
        for name, width in zip(names, widths, strict=True)
    ]
    mask = writer.io("mask", "i64", [1, past + tokens])
    outputs: list[int] = []
    for layer in range(LAYERS):
        q, k, v = inputs[3 * layer : 3 * layer + 3]
        writer.stage("f32_kv_store", [k, v], [], [layer, KV_HEADS], f"/store{layer}")
        y = writer.io(f"y{layer}", "f32", [1, tokens, HEADS * DIM])
        params = [layer, HEADS, KV_HEADS, 0.3, 1, 0]
        writer.stage("f32_paged_attention", [q, mask, None], [y], params, f"/attend{layer}")
        outputs.append(y)
    cache = writer.cache(
        "decoder", layers=LAYERS, kv_heads=KV_HEADS, head_dim=DIM, tokens=max_tokens, past=1,
        page_tokens=PAGE,
    )  # fmt: skip
    writer.entry("step", inputs=[*inputs, mask], outputs=outputs, cache=cache)
    return writer


def heads(x: F32) -> F32:
    """[1, T, Hkv * D] as [1, Hkv, T, D]."""
    return x.reshape(1, x.shape[1], KV_HEADS, DIM).transpose(0, 2, 1, 3)


class Stream:
    """Random queries, keys and values of many tokens; steps through a session and compares."""

    def __init__(self, session: Session, tokens: int) -> None:
        self.session = session
        widths = {"q": HEADS * DIM, "k": KV_HEADS * DIM, "v": KV_HEADS * DIM}
        self.data = {
            f"{kind}{layer}": normal(1, tokens, width, seed=(kind, layer))
            for layer in range(LAYERS)
            for kind, width in widths.items()
        }
        self.mask = np.ones((1, tokens), np.int64)
        self.mask[0, 1:3] = 0

    def step(self, begin: int, end: int) -> None:
        assert self.session.length == begin
        given = {name: x[:, begin:end] for name, x in self.data.items()}
        results = self.session.run(
            {**given, "mask": self.mask[:, :end]}, [f"y{n}" for n in range(LAYERS)], "step"
        )
        shape = Shape(1, end - begin, end, HEADS, KV_HEADS, DIM, causal=1)
        for layer, y in enumerate(results):
            k, v = (heads(self.data[f"{kind}{layer}"][:, :end]) for kind in "kv")
            q = given[f"q{layer}"]
            expected = attention_of(q, k, v, shape, 0.3, self.mask[:, :end], None)
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=3e-6)
        assert self.session.length == end


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cuts", [[0, 1, 2, 3], [0, 15, 16, 17, 33], [0, 64, 65, 100], [0, 48, 96]])
def test_attends_over_pages_as_over_one_tensor(cuts: list[int], threads: int) -> None:
    stream = Stream(Session(Model(*decoder().finish()), threads), 100)
    for begin, end in itertools.pairwise(cuts):
        stream.step(begin, end)


def test_rewinds_and_forgets() -> None:
    stream = Stream(Session(Model(*decoder().finish())), 100)
    stream.step(0, 20)
    set_length(stream.session, 18)
    stream.step(18, 40)
    set_length(stream.session, 0)
    stream.step(0, 3)


def set_length(session: Session, length: int) -> None:
    error = ffi().new("mllm_error *")
    if library().mllm_session_cache_set_length(session.handle, 0, length, error):
        raise RunError(error)


def floats(x: F32) -> object:
    return ffi().cast("float *", x.ctypes.data)


def test_reads_and_writes_the_cache_as_one_tensor() -> None:
    session, error = Session(Model(*decoder().finish())), ffi().new("mllm_error *")
    stream = Stream(session, 60)
    for layer in range(LAYERS):
        for kind, name in enumerate("kv"):
            x = np.ascontiguousarray(heads(stream.data[f"{name}{layer}"][:, :37]))
            status = library().mllm_session_cache_write(
                session.handle, 0, layer, kind, floats(x), 37, error
            )
            assert status == 0
    set_length(session, 37)
    stream.step(37, 50)
    found = np.zeros((1, KV_HEADS, 50, DIM), np.float32)
    for layer in range(LAYERS):
        for kind, name in enumerate("kv"):
            status = library().mllm_session_cache_read(
                session.handle, 0, layer, kind, floats(found), 50, error
            )
            assert status == 0
            np.testing.assert_array_equal(found, heads(stream.data[f"{name}{layer}"][:, :50]))


def test_cannot_grow_over_tokens_that_were_never_written() -> None:
    with pytest.raises(RunError, match="holds 0 tokens, its length cannot become 4"):
        set_length(Session(Model(*decoder().finish())), 4)


def test_full_cache_is_a_located_error() -> None:
    stream = Stream(Session(Model(*decoder(100).finish()), max_tokens=20), 64)
    stream.step(0, 18)
    with pytest.raises(RunError, match=r"step: /store0: .* 18 of 20 tokens, 3 more do not fit"):
        stream.step(18, 21)
    stream.step(18, 20)


def test_more_tokens_than_compiled_are_refused() -> None:
    with pytest.raises(RunError, match="max_tokens = 101 exceeds the compiled bound 100"):
        Session(Model(*decoder(100).finish()), max_tokens=101)


def test_dims_follow_the_input() -> None:
    session = Session(Model(*doubling().finish()))
    for tokens in (1, 5, 0, 3):
        x = normal(tokens, 3)
        np.testing.assert_array_equal(session.run({"x": x})[0], 2 * x)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": normal(6, 3)}, "main: input 'x': T = 6 exceeds the compiled bound 5"),
        ({"x": normal(2, 4)}, "input 'x': dimension 1 (3) is 3, not 4"),
        ({"x": normal(6)}, "input 'x' has rank 2, not 1"),
        ({"x": normal(2, 3).astype(np.int64)}, "input 'x' is float32, not int64"),
        ({"z": normal(2, 3)}, "no input 'z'"),
        ({}, "input 'x' is missing"),
    ],
)
def test_wrong_inputs_are_located(inputs: dict[str, F32], message: str) -> None:
    session = Session(Model(*doubling().finish()))
    with pytest.raises(RunError) as caught:
        session.run(inputs)
    assert message in str(caught.value)
    np.testing.assert_array_equal(session.run({"x": np.ones((1, 3), np.float32)})[0], [[2, 2, 2]])


def test_unknown_output_is_located() -> None:
    with pytest.raises(RunError, match="no output 'q'"):
        Session(Model(*doubling().finish())).run({"x": normal(1, 3)}, ["q"])


def test_output_without_a_place_needs_memory() -> None:
    with pytest.raises(RunError, match="'y' has no place in the arena: give it memory"):
        Session(Model(*doubling().finish())).run_in_place({"x": normal(1, 3)})


def test_unknown_kernel_is_an_answer() -> None:
    writer = doubling()
    writer.stage("q4_imagined", [], [])
    with pytest.raises(RunError, match="no kernel 'q4_imagined'") as caught:
        Model(*writer.finish())
    assert caught.value.code == "MLC-X003"


def test_another_abi_is_an_answer() -> None:
    program, weights = doubling().finish()
    newer = program[:8] + b"\x02" + program[9:]
    with pytest.raises(RunError, match="has ABI 2, this runtime reads 1"):
        Model(newer, weights)


def test_too_few_weights_are_an_answer() -> None:
    writer = doubling()
    writer.weight("w", normal(4))
    program, weights = writer.finish()
    with pytest.raises(RunError, match="needs 16 bytes of weights, there are 12"):
        Model(program, weights[:12])


def two_entries() -> ProgramWriter:
    """encode: h = x + x in the arena; decode: y = h * h, h left where encode wrote it."""
    writer = ProgramWriter()
    tokens = writer.symbol("T", 5)
    slot, _ = writer.take("f32", [tokens, 3])
    x, h = writer.io("x", "f32", [tokens, 3]), writer.io("h", "f32", [tokens, 3], slot)
    writer.stage("f32_elementwise", [x, x], [h], [[0, 1, 96 << 32]])
    writer.entry("encode", inputs=[x], outputs=[h])
    given, y = writer.io("features", "f32", [tokens, 3], slot), writer.io("y", "f32", [tokens, 3])
    writer.stage("f32_elementwise", [given, given], [y], [[0, 1, 98 << 32]])
    writer.entry("decode", inputs=[given], outputs=[y])
    return writer


def test_entries_share_a_tensor_without_a_copy() -> None:
    session = Session(Model(*two_entries().finish()))
    with pytest.raises(RunError, match="decode: input 'features' is missing"):
        session.run({}, entry="decode")
    for tokens in (2, 5):
        x = normal(tokens, 3)
        session.run_in_place({"x": x}, entry="encode")
        np.testing.assert_allclose(session.run({}, entry="decode")[0], 4 * x * x, rtol=1e-6)
    np.testing.assert_allclose(session.run({"features": x}, entry="decode")[0], x * x, rtol=1e-6)
    (found,) = session.run_in_place({"x": x}, ["h"], entry="encode")
    np.testing.assert_array_equal(found, 2 * x)


def overwriting(offset: int) -> ProgramWriter:
    """encode and decode as in two_entries; spoil: z = w + w, whose sum stands at an offset."""
    writer = two_entries()
    writer.arena = 4096
    w, z = writer.io("w", "f32", [2]), writer.io("z", "f32", [2])
    inner = writer.tensor("inner", "f32", [2], ARENA, offset, 8)
    writer.stage("f32_elementwise", [w, w], [inner], [[0, 1, 96 << 32]])
    writer.stage("f32_elementwise", [inner, inner], [z], [[0, 1, 96 << 32]])
    writer.entry("spoil", inputs=[w], outputs=[z])
    return writer


@pytest.mark.parametrize(("offset", "spoils"), [(0, True), (52, True), (60, False), (64, False)])
def test_what_another_entry_has_overwritten_is_missing(offset: int, spoils: bool) -> None:
    """The slot is the bytes 0 to 59: T is at most 5, three floats each."""
    session, x = Session(Model(*overwriting(offset).finish())), normal(5, 3)
    session.run_in_place({"x": x}, entry="encode")
    session.run({"w": normal(2)}, ["z"], entry="spoil")
    if spoils:
        with pytest.raises(RunError, match="decode: input 'features' is missing"):
            session.run({}, entry="decode")
        session.run_in_place({"x": x}, entry="encode")
    np.testing.assert_allclose(session.run({}, entry="decode")[0], 4 * x * x, rtol=1e-6)


def test_describes_its_entries() -> None:
    model = Model(*decoder().finish())
    info, entry = ffi().new("mllm_tensor_info *"), ffi().new("mllm_entry_info *")
    assert library().mllm_model_entry(model.handle, model.entry("step"), entry) == 0
    assert (entry.inputs, entry.outputs, entry.stages, entry.cache) == (7, 2, 4, 0)
    assert library().mllm_model_input(model.handle, 0, 6, info) == 0
    assert ffi().string(info.name) == b"mask"
    assert list(info.dims[0:2]) == [1, -1]
    chars = ffi().new("char[64]")
    assert library().mllm_model_dim_text(model.handle, info.exprs[1], chars, 64) == 0
    assert ffi().string(chars) == b"P + T"
    assert library().mllm_model_input(model.handle, 0, 7, info) != 0
    assert model.entry("nothing") == -1


def test_finds_weights_by_name() -> None:
    writer, value = doubling(), normal(3, 5)
    writer.weight("embed", value)
    model, found = Model(*writer.finish()), ffi().new("mllm_tensor *")
    assert library().mllm_model_weight(model.handle, b"embed", found) == 0
    assert list(found.dims[0:2]) == [3, 5]
    held = np.frombuffer(ffi().buffer(found.data, found.bytes), np.float32)
    np.testing.assert_array_equal(held.reshape(3, 5), value)
    assert library().mllm_model_weight(model.handle, b"other", found) != 0
    assert tokens_major(value.reshape(1, 1, 3, 5)).shape == (1, 3, 5)


def test_bound_memory_of_another_entry_is_forgotten() -> None:
    """A tensor bound in one run is not read through its old address in the next."""
    session = Session(Model(*two_entries().finish()))
    x = normal(2, 3)
    session.run({"x": x}, ["h"], entry="encode")
    with pytest.raises(RunError, match="'features' is missing"):
        session.run({}, entry="decode")
