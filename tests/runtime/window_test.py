"""A window that moves: what a cache holds behind it, and answers longer than the cache.

Keys behind a gap are compared with NumPy's rotation of what stood there before; an answer with the
one that the model gives on a past which NumPy has moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import kv_cache
from runtime_stub import Model, RuntimeFailure
from runtime_stub.conversations import Conversation, Pool
from runtime_stub.generation import Request as Ask
from tests.bundle.small_bundle import KEY
from tests.runtime.cases import F32, normal
from tests.runtime.kv_bench import in_ours
from tests.runtime.library import Model as Program
from tests.runtime.library import RunError, Session, ffi, library
from tests.runtime.program_writer import ProgramWriter

HEADS, DIM, PAGE = 2, 16, 32
AS_FLOATS, AS_HALVES, BY_8, BY_4 = range(4)
KEY_ROWS, VALUE_ROWS = range(2)
INV_FREQ = (1e4 ** -(np.arange(6) / 6)).astype(np.float32)
SCALES = np.linspace(0.5, 2, HEADS * DIM).astype(np.float16).reshape(HEADS, DIM)


def program(*, interleaved: int = 0, turned: bool = True, recent: int = 32) -> tuple[bytes, bytes]:
    """step: turns keys by their positions and stores them, in a layer of each format."""
    writer = ProgramWriter()
    tokens = writer.symbol("T", 256)
    k, v = (writer.io(name, "f32", [1, tokens, HEADS * DIM]) for name in "kv")
    positions = writer.io("p", "i64", [1, tokens])
    scale, waves = writer.weight("scale", SCALES), writer.weight("inv_freq", INV_FREQ)
    made = writer.arena_tensor("turned", "f32", [1, tokens, HEADS * DIM])
    for layer in range(4):
        if turned or layer != 2:
            writer.stage("f32_rope", [k, positions, waves], [made], [HEADS, interleaved])
            writer.stage("f32_kv_store", [made, v], [], [layer, HEADS])
        else:
            writer.stage("f32_kv_store", [k, v], [], [layer, HEADS])
    formats = [recent, AS_FLOATS, -1, AS_HALVES, -1, BY_8, scale, BY_4, scale]
    cache = writer.cache("kv", layers=4, kv_heads=HEADS, head_dim=DIM, tokens=256, page_tokens=PAGE,
                         formats=formats)  # fmt: skip
    writer.entry("step", inputs=[k, v, positions], outputs=[], cache=cache)
    return writer.finish()


def store(session: Session, first: int, count: int) -> None:
    k, v = (normal(1, count, HEADS * DIM, seed=f"{name}{first}") for name in "kv")
    positions = np.arange(first, first + count)[None]
    session.run({"k": k, "v": v, "p": positions}, [], "step")


def held(session: Session, layer: int, kind: int) -> F32:
    """[heads, tokens, channels]."""
    tokens = int(library().mllm_session_cache_length(session.handle, 0))
    found, error = np.empty((HEADS, tokens, DIM), np.float32), ffi().new("mllm_error *")
    out = ffi().cast("float *", found.ctypes.data)
    place = (session.handle, 0, layer, kind, out, tokens, error)
    assert library().mllm_session_cache_read(*place) == 0
    return found


def slide(session: Session, pages: int) -> None:
    error = ffi().new("mllm_error *")
    if library().mllm_session_cache_slide(session.handle, 0, pages, error) != 0:
        raise RunError(error)


def turn(rows: F32, positions: float, inv_freq: F32, *, interleaved: int = 0) -> F32:
    """Rows whose first channels turn by so many positions (Su et al. 2021, equation 34)."""
    half = len(inv_freq)
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    angle, made = positions * inv_freq.astype(np.float64), rows.astype(np.float64)
    a, b = made[..., first].copy(), made[..., second].copy()
    made[..., first] = a * np.cos(angle) - b * np.sin(angle)
    made[..., second] = b * np.cos(angle) + a * np.sin(angle)
    return made.astype(np.float32)


def stored_again(layer: int, rows: F32, falls: int) -> F32:
    """What a layer's format makes of keys; the first `falls` tokens have 4 bits."""
    if layer == AS_FLOATS:
        return rows
    if layer == AS_HALVES:
        return rows.astype(np.float16).astype(np.float32)
    eight = kv_cache.eight_bit_keys(rows[None], SCALES)[0]
    if layer == BY_8 or falls == 0:
        return eight
    four = kv_cache.four_bit_keys(eight[None, :, :falls])[0]
    return np.concatenate([four, eight[:, falls:]], 1)


def step_of(layer: int, rows: F32) -> F32:
    """The largest error that one more rounding of the format can make."""
    most = np.abs(rows).max()
    return np.float32(most * (2e-6, 2e-3, 5e-2, 3e-1)[layer])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("tokens", "pages"), [(200, 1), (200, 3), (192, 4), (96, 2), (64, 1)])
def test_keys_behind_the_gap_turn_back(interleaved: int, tokens: int, pages: int) -> None:
    session = Session(Program(*program(interleaved=interleaved)))
    store(session, 0, tokens - 9)
    store(session, tokens - 9, 9)
    before = {(i, kind): held(session, i, kind) for i in range(4) for kind in range(2)}
    slide(session, pages)
    gone = pages * PAGE
    assert library().mllm_session_cache_length(session.handle, 0) == tokens - gone
    falls = max((tokens - 1) // PAGE * PAGE - 32 - gone - PAGE, 0)
    for (layer, kind), rows in before.items():
        found, kept = held(session, layer, kind), rows[:, PAGE + gone :]
        np.testing.assert_array_equal(found[:, :PAGE], rows[:, :PAGE])
        if kind == VALUE_ROWS and layer != BY_4:
            np.testing.assert_array_equal(found[:, PAGE:], kept)
        elif kind == VALUE_ROWS:
            np.testing.assert_allclose(found[:, PAGE:], kept, atol=step_of(BY_8, rows))
        elif kept.size:
            turned = turn(kept, -gone, INV_FREQ, interleaved=interleaved)
            want = stored_again(layer, turned, falls)
            np.testing.assert_allclose(found[:, PAGE:], want, atol=step_of(layer, rows))
            assert np.abs(found[:, PAGE:] - kept).max() > 0.5


def test_tokens_go_on_at_the_positions_behind() -> None:
    session = Session(Program(*program(recent=0)))
    store(session, 0, 128)
    slide(session, 2)
    fresh = held(session, AS_FLOATS, KEY_ROWS)
    store(session, 64, 20)
    found = held(session, AS_FLOATS, KEY_ROWS)
    np.testing.assert_array_equal(found[:, :64], fresh)
    k = normal(1, 20, HEADS * DIM, seed="k64")[0].reshape(20, HEADS, DIM).transpose(1, 0, 2)
    turned = np.stack([turn(k[:, i], 64 + i, INV_FREQ) for i in range(20)], 1)
    np.testing.assert_allclose(found[:, 64:], turned, atol=1e-5)


class Pair:
    """A conversation of 150 tokens and its fork, in a pool of so many pages."""

    def __init__(self, pages: int) -> None:
        self.model = Program(*program(recent=0))
        self.session = Session(self.model)
        info = ffi().new("mllm_cache_info *")
        assert library().mllm_model_cache(self.model.handle, 0, info) == 0
        room = pages * int(info.page_bytes)
        self.pool = Pool(in_ours(self.model.handle, "mllm_model"), 0, room)
        self.first = self.pool.conversation()
        self.use(self.first)
        store(self.session, 0, 150)
        self.second = self.first.fork()

    def use(self, cache: Conversation) -> None:
        cache.use_in(in_ours(self.session.handle, "mllm_session"))

    def keys(self, cache: Conversation) -> list[F32]:
        self.use(cache)
        return [held(self.session, i, KEY_ROWS) for i in range(4)]

    def close(self) -> None:
        self.first.close()
        self.second.close()
        self.pool.close()


def test_who_shares_the_pages_keeps_what_they_hold() -> None:
    with closing(Pair(pages=12)) as pair:
        before = pair.keys(pair.second)
        slide(pair.session, 2)
        assert (pair.first.length, pair.second.length) == (150, 86)
        for found, rows in zip(pair.keys(pair.first), before, strict=True):
            np.testing.assert_array_equal(found, rows)


def test_without_room_for_pages_of_its_own_nothing_changes() -> None:
    with closing(Pair(pages=6)) as pair:
        before = pair.keys(pair.second)
        with pytest.raises(RunError, match="no page left to move its window"):
            slide(pair.session, 1)
        assert pair.second.length == 150
        for found, rows in zip(pair.keys(pair.second), before, strict=True):
            np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize(("tokens", "pages"), [(200, 6), (31, 1), (32, 1), (0, 1), (200, 1 << 31)])
def test_what_is_not_there_is_not_forgotten(tokens: int, pages: int) -> None:
    session = Session(Program(*program()))
    if tokens:
        store(session, 0, tokens)
    with pytest.raises(RunError, match="whole pages behind the first to forget"):
        slide(session, pages)
    assert library().mllm_session_cache_length(session.handle, 0) == tokens


def test_a_layer_whose_keys_nothing_turned_is_refused() -> None:
    session = Session(Program(*program(turned=False)))
    store(session, 0, 100)
    with pytest.raises(RunError, match="no keys that a rotary embedding turned"):
        slide(session, 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("window") / "tiny-llama.mllm_bundle"
    compile_model(Request(model=build_recipe("tiny-llama", print), output=made, key=KEY))
    return made


@pytest.fixture
def model(path: Path, trust: Path) -> Iterator[Model]:
    with Model.open(path, trust=trust, threads=1) as opened:
        yield opened


def answer(model: Model, **options: object) -> list[int]:
    pieces = model.generate("the cat and the dog", **options)  # type: ignore[arg-type]
    return [piece.token for piece in pieces if piece.token is not None]


def test_an_answer_goes_on_as_on_a_past_that_numpy_moved(model: Model) -> None:
    """Window 768 of pages of 256: at 768 tokens those from 256 to 512 are forgotten."""
    plain = answer(model, max_new_tokens=900)
    moved = answer(model, max_new_tokens=900, window=768)
    prompt = model.statistics.prompt_tokens
    same = 768 - prompt + 1
    assert moved[:same] == plain[:same]
    assert (len(moved), model.statistics.forgotten) == (900, 256)
    ids = [*prompt_ids(model), *moved]
    assert len(ids) == prompt + 900
    given = run_on(model, ids[:768], {})
    assert list(given.pop("logits")[0].argmax(-1)[prompt - 1 : -1]) == ids[prompt:768]
    past = {name.replace("present", "past_key_values"): a for name, a in given.items()}
    inv_freq = (1e4 ** -(np.arange(4) / 4)).astype(np.float32)
    for name in past:
        kept = past[name][:, :, 512:]
        kept = turn(kept, -256, inv_freq) if name.endswith("key") else kept
        past[name] = np.concatenate([past[name][:, :, :256], kept], 2)
    ahead = ids[768:][:200]
    logits = run_on(model, ahead, past, first=512)["logits"][0]
    assert list(logits.argmax(-1)[:-1]) == ahead[1:]


def prompt_ids(model: Model) -> list[int]:
    """As the model's template puts the question."""
    text = "<|im_start|>user\nthe cat and the dog<|im_end|>\n<|im_start|>assistant\n"
    return model.tokenize(text, special=True)


def run_on(model: Model, ids: list[int], past: dict[str, F32], first: int = 0) -> dict[str, F32]:
    """Logits and the present of tokens behind a past, a chunk at a time."""
    made: dict[str, F32] = {}
    logits: list[F32] = []
    for at in range(0, len(ids), 128):
        part = np.array([ids[at : at + 128]], np.int64)
        given = {"input_ids": part, **past}
        given["position_ids"] = first + at + np.arange(part.shape[1])[None]
        given["attention_mask"] = np.ones((1, first + at + part.shape[1]), np.int64)
        made = model.run("decoder", given)  # type: ignore[assignment]
        logits.append(made.pop("logits"))
        past = {name.replace("present", "past_key_values"): a for name, a in made.items()}
    return made | {"logits": np.concatenate(logits, 1)}


def test_an_answer_longer_than_the_cache(model: Model) -> None:
    assert len(answer(model, max_new_tokens=5000)) < 2048
    assert model.statistics.finish == "full"
    assert len(answer(model, max_new_tokens=5000, window=1 << 20)) == 5000
    assert (model.statistics.finish, model.statistics.forgotten % 256) == ("length", 0)
    assert model.statistics.forgotten > 2900


def test_conversations_that_take_turns_keep_windows(model: Model) -> None:
    alone = answer(model, max_new_tokens=1200, window=768)
    with model.schedule(conversations=2, cache_bytes=1 << 22) as schedule:
        asked = Ask(prompt="the cat and the dog", max_new_tokens=1200, window=768)
        numbers = [schedule.add(asked), schedule.add(asked)]
        found: dict[int, list[int]] = {number: [] for number in numbers}
        for turn_ in schedule.turns():
            if turn_.piece.token is not None:
                found[turn_.conversation].append(turn_.piece.token)
    assert list(found.values()) == [alone, alone]


@pytest.mark.parametrize(
    ("window", "words"), [(767, "a window of 767 tokens in a cache of 2048: both are 768 at least")]
)
def test_a_window_that_cannot_be_is_told(window: int, words: str, model: Model) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        answer(model, window=window)
    assert caught.value.code == "MLC-X043"
    assert words in caught.value.message
    assert answer(model, max_new_tokens=3)
