"""Token by token: a language model with or without a picture, or a decoder over sound."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.backends.runner import Session
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.features import log_mel_of, pixels_of
from mllm_compiler.generation.model import NumpyModel
from mllm_compiler.generation.prompts import IMAGE, prompt_ids
from mllm_compiler.generation.sampling import Sampler
from mllm_compiler.passes.graphs import pipeline_of

Array = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a user asks.

    Attributes:
        prompt: The words; without them the model's own prompt, where it has one.
        system: The system prompt.
        image: A picture.
        audio: A WAV file.
        max_new_tokens: The longest answer; 0 is the model's own.
        temperature: 0 is greedy.
        top_p: Of the tokens to draw from.
        seed: Of the generator.
        drafts: Tokens that are guessed and verified in one run; 0 is none.
        draft: A bundle that guesses them; without one they are looked up in the conversation.
        window: Tokens that the cache keeps at most; 0: the answer ends when it is full.
    """

    prompt: str | None = None
    system: str | None = None
    image: Path | None = None
    audio: Path | None = None
    max_new_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    drafts: int = 0
    draft: Path | None = None
    window: int = 0


@dataclass
class Answer:
    """What came back.

    Attributes:
        text: The answer without special tokens.
        tokens: Its tokens, the one that ended it left out.
        prompt_tokens: How many tokens went in.
        finish: Why it ended: `stop`, the model; `length`, the limit; `full`, its cache.
        first_token_s: Seconds until the first token.
        tokens_per_second: Of those behind the first.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    prompt_tokens: int = 0
    finish: str = "length"
    first_token_s: float = 0.0
    tokens_per_second: float = 0.0


PROMPTS = ("input_ids", "inputs_embeds")
"""What an entry may call the tokens that it reads, [1, tokens] or [1, tokens, size]."""


@dataclass
class State:
    """What the next step needs: the entry that runs, its session, the tokens so far."""

    entry: str
    session: Session
    length: int = 0


def generate(model: NumpyModel, ask: Ask, emit: Callable[[str], None]) -> Answer:
    """Answers; each piece of text is emitted when it is certain.

    Raises:
        CompileError: The model cannot take what it is asked, or a file cannot be read.
    """
    settings = model.settings
    tokenizer = model.tokenizer()
    start = time.perf_counter()
    state, logits, count = _sound(model, ask) if settings.audio else _text(model, ask)
    answer = Answer(prompt_tokens=count)
    sampler = Sampler(
        temperature=ask.temperature,
        top_p=ask.top_p,
        seed=ask.seed,
        suppress=settings.suppress,
        begin_suppress=settings.begin_suppress,
    )
    limit = ask.max_new_tokens or settings.max_new_tokens
    first = time.perf_counter()
    while len(answer.tokens) < limit:
        token = sampler.choose(logits, first=not answer.tokens)
        if not answer.tokens:
            first = time.perf_counter()
        if token in settings.stop:
            answer.finish = "stop"
            break
        answer.tokens.append(token)
        text = tokenizer.decode(answer.tokens, skip_special_tokens=True)
        if not text.endswith("\ufffd"):
            emit(text[len(answer.text) :])
            answer.text = text
        if len(answer.tokens) == limit:
            break
        if state.length >= state.session.capacity(state.entry):
            answer.finish = "full"
            break
        logits = _step(model, state, np.array([[token]], np.int64))
    whole = tokenizer.decode(answer.tokens, skip_special_tokens=True)
    emit(whole[len(answer.text) :])
    answer.text = whole
    answer.first_token_s = first - start
    spent = time.perf_counter() - first
    answer.tokens_per_second = max(0, len(answer.tokens) - 1) / spent if spent > 0 else 0.0
    return answer


def _text(model: NumpyModel, ask: Ask) -> tuple[State, NDArray[np.float32], int]:
    """The state after the prompt of a language model, and the logits of its last token."""
    entry = model.entry_of_role("language-model")
    if entry is None:
        raise _cannot("the model generates no text", "run it with --inputs and --outputs")
    if ask.audio is not None:
        raise _cannot("the model takes no sound", "give it --prompt or --image")
    prompt = ask.prompt if ask.prompt is not None else model.settings.prompt
    if prompt is None:
        raise _cannot("the model has no prompt of its own", "give one with --prompt")
    attends = any(e.consumer.data == entry for e in pipeline_of(model.runner.module).edges)
    if attends and ask.image is None:
        raise _cannot("the model attends to a picture", "give it --image")
    has_rows = ask.image is not None and not attends
    ids = prompt_ids(model.tokenizer(), model.settings, prompt, ask.system, image=has_rows)
    state = State(entry, Session(model.runner))
    if ask.image is None:
        logits = _read(model, state, np.array([ids], np.int64))
    elif attends:
        _see(model, state.session, ask.image)
        logits = _read(model, state, np.array([ids], np.int64))
    else:
        logits = _read(model, state, _with_rows(model, ids, image_rows(model, ask.image)))
    return state, logits, state.length


def _read(model: NumpyModel, state: State, prompt: Array) -> NDArray[np.float32]:
    """Feeds a prompt, in pieces that the entry takes; the logits of its last token."""
    first, *_ = (t.name for t in model.entry(state.entry).inputs if t.name in PROMPTS)
    most = int(min(model.runner.largest(state.entry, first, 1), prompt.shape[1]))
    pieces = [prompt[:, at : at + most] for at in range(0, prompt.shape[1], max(1, most))]
    return [_step(model, state, piece) for piece in pieces][-1]


def image_rows(model: NumpyModel, path: Path) -> NDArray[np.float32]:
    """The tokens, [tokens, dim], that stand for a picture."""
    rows = next(iter(_see(model, Session(model.runner), path).values())).astype(np.float32)
    return rows.reshape(-1, rows.shape[-1])


def _see(model: NumpyModel, session: Session, path: Path) -> dict[str, Array]:
    """What the encoder, and the projector behind it, give for a picture; the session keeps it."""
    settings, encoder = model.settings.image, model.entry_of_role("encoder")
    if settings is None or encoder is None:
        raise _cannot("the model takes no picture", "leave --image out")
    name = model.entry(encoder).inputs[0].name
    last = session.run(encoder, {name: pixels_of(path, settings)})
    projector = model.entry_of_role("projector")
    if projector is not None:
        last = session.run(projector, {})
    return last


def _with_rows(model: NumpyModel, ids: list[int], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings of the ids, with the picture's rows in its place."""
    parts = [rows if token == IMAGE else _embedded(model, [token])[0] for token in ids]
    return np.concatenate(parts)[None]


def _embedded(model: NumpyModel, ids: list[int]) -> NDArray[np.float32]:
    """The embeddings, [1, tokens, dim], of some ids."""
    if model.settings.embedding is None:
        raise _cannot("the model names no token embedding", "add [text].embedding to model.toml")
    return model.rows(model.settings.embedding, ids)[None]


def _step(model: NumpyModel, state: State, tokens: Array) -> NDArray[np.float32]:
    """Feeds tokens (ids, or embeddings) and answers with the logits of the last one."""
    known = {tensor.name for tensor in model.entry(state.entry).inputs}
    if "input_ids" not in known and tokens.ndim == 2:
        tokens = _embedded(model, [int(token) for token in tokens[0]])
    count = tokens.shape[1]
    total = state.length + count
    inputs: dict[str, Array] = {
        "input_ids" if tokens.ndim == 2 else "inputs_embeds": tokens,
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(state.length, total, dtype=np.int64)[None],
    }
    taken = {name: inputs[name] for name in known if name in inputs}
    results = state.session.run(state.entry, taken)
    state.length = total
    return results["logits"][0, -1].astype(np.float32)


def _sound(model: NumpyModel, ask: Ask) -> tuple[State, NDArray[np.float32], int]:
    """The state after the forced prompt of a decoder over sound."""
    settings, encoder = model.settings.audio, model.entry_of_role("encoder")
    first, later = model.entry_of_role("decoder"), model.entry_of_role("decoder-with-past")
    if settings is None or encoder is None or first is None or later is None:
        raise _cannot("the model lacks an encoder or a decoder", "check the roles in model.toml")
    if ask.audio is None or ask.image is not None or ask.prompt is not None:
        raise _cannot("the model takes sound", "give it --audio alone")
    features = log_mel_of(ask.audio, settings)
    state = State(later, Session(model.runner), len(model.settings.forced_prompt))
    state.session.run(encoder, {model.entry(encoder).inputs[0].name: features})
    ids = np.array([model.settings.forced_prompt], np.int64)
    results = state.session.run(first, {"input_ids": ids})
    return state, results["logits"][0, -1].astype(np.float32), state.length


def _cannot(message: str, remedy: str) -> CompileError:
    return CompileError("MLC-X025", message, remedy=remedy)
