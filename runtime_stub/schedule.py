"""Several conversations over one session, which take turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fsencode
from types import TracebackType
from typing import Final

from runtime_stub.failure import RuntimeFailure
from runtime_stub.generation import (
    NO_TOKEN,
    Piece,
    Request,
    Statistics,
    c_options,
    c_prompt,
    statistics_of,
)
from runtime_stub.library import CData, check, failure, ffi, library, new_error, text_of

HIGH: Final = 0
NORMAL: Final = 1
LOW: Final = 2


@dataclass(frozen=True)
class Turn:
    """What happened to a conversation.

    Attributes:
        conversation: Its number.
        piece: A token and its text; that of the last turn has no token.
        statistics: Its figures so far.
        fault: Why it ended, where it did not end by itself; the others go on.
    """

    conversation: int
    piece: Piece
    statistics: Statistics
    fault: RuntimeFailure | None


@dataclass(frozen=True)
class Counted:
    """Figures of a schedule.

    Attributes:
        chunks: Chunks of prompts that were read.
        steps: Calls that gave a token.
        most_bytes: Bytes of caches at a time.
        prepared: Conversations whose prompt was prepared beside others.
        bubbles: Times that nothing else was there to do meanwhile.
        slept: Times that a conversation made room for a more urgent one.
        woke: Times that one of those went on.
        most: Conversations at a time.
        waiting: Those that have no room yet.
        running: Those that have.
    """

    chunks: int
    steps: int
    most_bytes: int
    prepared: int
    bubbles: int
    slept: int
    woke: int
    most: int
    waiting: int
    running: int


class Schedule:
    """Conversations of an open model; use `Model.schedule`, and close it before the model."""

    def __init__(
        self,
        generator: CData,
        conversations: int,
        cache_bytes: int,
        prepares: bool,
        spill: tuple[str | PathLike[str], int] | None = None,
    ) -> None:
        """Lends the generator's session to conversations.

        Raises:
            RuntimeFailure: What the model remembers is not in its cache alone.
        """
        error, made = new_error(), ffi.new("mllm_schedule **")
        options = ffi.new("mllm_schedule_options *")
        options.conversations, options.cache_bytes = conversations, cache_bytes
        options.prepares = prepares
        folder = ffi.NULL if spill is None else ffi.new("char[]", fsencode(spill[0]))
        options.spill_folder, options.spill_bytes = folder, 0 if spill is None else spill[1]
        check(library().mllm_schedule_create(generator, options, made, error), error)
        self._schedule: CData = made[0]
        self._kept: dict[int, list[object]] = {}

    def __enter__(self) -> Schedule:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all conversations; a second call does nothing."""
        library().mllm_schedule_destroy(self._schedule)
        self._schedule = ffi.NULL

    def add(self, request: Request, *, priority: int = NORMAL) -> int:
        """Adds a conversation; its number.

        Raises:
            RuntimeFailure: The prompt does not fit, or the cache that it needs is too large.
        """
        error, number = new_error(), ffi.new("uint32_t *")
        prompt, kept = c_prompt(request)
        status = library().mllm_schedule_add(
            self._open(), prompt, c_options(request), priority, number, error
        )
        check(status, error)
        self._kept[number[0]] = kept
        return int(number[0])

    def turns(self) -> Iterator[Turn]:
        """Goes on until no conversation is left; more may be added meanwhile."""
        error, turn = new_error(), ffi.new("mllm_turn *")
        while True:
            check(library().mllm_schedule_next(self._open(), turn, error), error)
            if turn.conversation == NO_TOKEN:
                return
            token = None if turn.piece.token == NO_TOKEN else int(turn.piece.token)
            size = turn.piece.bytes
            raw = bytes(ffi.buffer(turn.piece.text, size)) if size else b""
            fault = None
            if turn.error.status:
                code, words = text_of(turn.error.code), text_of(turn.error.message)
                fault = failure(code, words, location=text_of(turn.error.location))
            if token is None:
                self._kept.pop(turn.conversation, None)
            piece = Piece(token, raw.decode("utf-8"))
            yield Turn(int(turn.conversation), piece, statistics_of(turn.statistics), fault)

    def end(self, conversation: int) -> None:
        """Ends a conversation early."""
        library().mllm_schedule_end(self._open(), conversation)
        self._kept.pop(conversation, None)

    @property
    def counted(self) -> Counted:
        """Figures so far."""
        found = library().mllm_schedule_count(self._open())
        return Counted(
            chunks=found.chunks,
            steps=found.steps,
            most_bytes=found.most_bytes,
            prepared=found.prepared,
            bubbles=found.bubbles,
            slept=found.slept,
            woke=found.woke,
            most=found.most,
            waiting=found.waiting,
            running=found.running,
        )

    def _open(self) -> CData:
        if self._schedule == ffi.NULL:
            raise RuntimeFailure("MLC-X001", "the schedule is closed", remedy="make a new one")
        return self._schedule
