"""Generating text: a prompt in C, tokens as they come, figures afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from runtime_stub.frames import Frame
from runtime_stub.library import CData, bytes_of, check, failure, ffi, library, new_error

NO_TOKEN: Final = 0xFFFFFFFF
FINISHES: Final[Sequence[str]] = ("", "stop", "length", "full")


@dataclass(frozen=True)
class Piece:
    """A token and the whole characters that it completes.

    Attributes:
        token: The id; None for the last piece, which only completes the text.
        text: What to print; may be empty.
    """

    token: int | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Figures of the last answer.

    Attributes:
        prompt_tokens: Tokens of the prompt, those of the image included.
        new_tokens: Tokens of the answer.
        finish: Why it ended: `stop`, `length`, `full`; empty while it goes on.
        encode_seconds: Pixels or sound, encoder and projector.
        prompt_seconds: Reading the prompt.
        decode_seconds: All tokens behind the first.
        session_bytes: What the session holds.
        peak_bytes: The largest resident set of the process.
        copied_bytes: Copied from what one entry gave to what another takes.
        drafted: Tokens that were guessed.
        accepted: Those that were right: so many steps were saved.
        forgotten: Tokens that left the window.
        reused: Tokens of the prompt that another conversation had read.
    """

    prompt_tokens: int
    new_tokens: int
    finish: str
    encode_seconds: float
    prompt_seconds: float
    decode_seconds: float
    session_bytes: int
    peak_bytes: int
    copied_bytes: int
    drafted: int
    accepted: int
    forgotten: int
    reused: int

    @property
    def prompt_tokens_per_second(self) -> float:
        """Speed of reading."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Speed of writing."""
        steps = max(self.new_tokens - 1, 0)
        return steps / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """What goes in.

    Attributes:
        prompt: The text; None: the bundle's own.
        system: The system prompt; None: the template's own.
        image: Pixels, uint8 [height, width, 3], or a frame of a camera.
        audio: Mono samples in -1..1.
        rate: Samples a second.
        max_new_tokens: 0: as the bundle says.
        temperature: 0: always the most probable token.
        top_p: The share of probability that is drawn from.
        seed: The same seed gives the same tokens.
        drafts: Tokens that are guessed and verified in one run, at most 16; 0: none.
        draft: Answers with the generator that guesses them; None: they are looked up in the
            conversation.
        window: Tokens that the cache keeps at most: at so many it forgets half of the pages behind
            the first, and the answer goes on; 0: it ends when the cache is full.
    """

    prompt: str | None = None
    system: str | None = None
    image: npt.NDArray[np.uint8] | Frame | None = None
    audio: npt.NDArray[np.float32] | None = None
    rate: int = 16000
    max_new_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    drafts: int = 0
    draft: Callable[[], CData] | None = None
    window: int = 0


def generate(generator: Callable[[], CData], request: Request) -> Iterator[Piece]:
    """Reads the prompt at the first step, then gives a piece a step.

    Args:
        generator: Answers with the generator while its model is open; asked at every step.
        request: What goes in.

    Raises:
        RuntimeFailure: The prompt does not fit the model or its cache.
    """
    lib, error, piece = library(), new_error(), ffi.new("mllm_piece *")
    prompt, kept = c_prompt(request)
    status = lib.mllm_generate_start(generator(), prompt, c_options(request), error)
    check(status, error)
    del kept  # the prompt is read
    while piece.token != NO_TOKEN:
        check(lib.mllm_generate_next(generator(), piece, error), error)
        text = bytes(ffi.buffer(piece.text, piece.bytes)).decode("utf-8")
        token = None if piece.token == NO_TOKEN else int(piece.token)
        if token is not None or text:
            yield Piece(token, text)


def statistics(generator: CData) -> Statistics:
    """Figures of the last answer."""
    found = ffi.new("mllm_statistics *")
    library().mllm_generate_statistics(generator, found)
    return statistics_of(found)


def statistics_of(found: CData) -> Statistics:
    """Figures in C."""
    return Statistics(
        prompt_tokens=found.prompt_tokens,
        new_tokens=found.new_tokens,
        finish=FINISHES[int(found.finish)],
        encode_seconds=found.encode_seconds,
        prompt_seconds=found.prompt_seconds,
        decode_seconds=found.decode_seconds,
        session_bytes=found.session_bytes,
        peak_bytes=found.peak_bytes,
        copied_bytes=found.copied_bytes,
        drafted=found.drafted,
        accepted=found.accepted,
        forgotten=found.forgotten,
        reused=found.reused,
    )


def tokenize(generator: CData, text: str, special: bool) -> list[int]:
    """Ids of a text."""
    raw, error, count = bytes_of(text), new_error(), ffi.new("size_t *")
    room = len(raw) + 16
    ids = ffi.new("uint32_t[]", room)
    status = library().mllm_tokenize(generator, raw, len(raw), special, ids, room, count, error)
    check(status, error)
    return list(ids[0 : min(count[0], room)])


def detokenize(generator: CData, ids: list[int], special: bool) -> str:
    """Text of ids; what is no character becomes U+FFFD."""
    lib, error, size = library(), new_error(), ffi.new("size_t *")
    given, count = ffi.new("uint32_t[]", ids), len(ids)
    check(lib.mllm_detokenize(generator, given, count, special, ffi.NULL, 0, size, error), error)
    room = size[0]
    text = ffi.new("char[]", room + 1)
    check(lib.mllm_detokenize(generator, given, count, special, text, room, size, error), error)
    return bytes(ffi.buffer(text, room)).decode("utf-8")


def c_options(request: Request) -> CData:
    """The request's options."""
    options = ffi.new("mllm_generate_options *")
    options.max_new_tokens = request.max_new_tokens
    options.temperature = request.temperature
    options.top_p = request.top_p
    options.seed = request.seed & (1 << 64) - 1
    options.drafts = request.drafts
    options.window = request.window
    if request.draft is not None:
        options.draft = request.draft()
    return options


def c_prompt(request: Request) -> tuple[CData, list[object]]:
    """The prompt, and what has to live as long as it is read."""
    prompt = ffi.new("mllm_prompt *")
    kept: list[object] = []
    for name, text in (("text", request.prompt), ("system", request.system)):
        if text is not None:
            raw = ffi.new("char[]", bytes_of(text.replace("\0", "\ufffd")))
            setattr(prompt, name, raw)
            kept.append(raw)
    if isinstance(request.image, Frame):
        frame = request.image.in_c()
        prompt.frame = frame
        kept += [frame, request.image]
    elif request.image is not None:
        pixels = np.ascontiguousarray(request.image)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise failure("MLC-X023", "the image is not uint8 [height, width, 3]")
        prompt.rgb = ffi.cast("const uint8_t *", pixels.ctypes.data)
        prompt.height, prompt.width = pixels.shape[:2]
        kept.append(pixels)
    if request.audio is not None:
        samples = np.ascontiguousarray(request.audio, np.float32)
        if samples.ndim != 1:
            raise failure("MLC-X024", "the sound is not one channel of samples")
        prompt.samples = ffi.cast("const float *", samples.ctypes.data)
        prompt.n_samples, prompt.rate = samples.shape[0], request.rate
        kept.append(samples)
    return prompt, kept
