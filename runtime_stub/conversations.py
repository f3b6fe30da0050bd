"""Caches of conversations in a pool of pages, which share what they have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fsencode
from typing import Final

from runtime_stub.library import CData, check, failure, ffi, library, new_error

STATES: Final = ("awake", "sleeping", "dropped")


@dataclass(frozen=True)
class PoolStatistics:
    """What a pool holds.

    Attributes:
        room_bytes: Of the pool.
        used_bytes: Of pages, to whole granules.
        most_bytes: That were used at a time.
        largest_free_bytes: The longest stretch that is free.
        moved_bytes: By defragmenting, so far.
        copied_pages: Before a write, because another conversation had them too.
        demoted_pages: To 4 bits, so far.
        adopted_tokens: That need not be computed, because another conversation began so.
        forgotten_pages: Of beginnings, so far.
        spilled_pages: To the pool's file, so far.
        spilled_bytes: To the pool's file, so far.
        woken_pages: Of those, so far.
        woken_bytes: Of those, so far.
        dropped_pages: Of conversations that were dropped, so far.
        dropped_bytes: Of conversations that were dropped, so far.
        asleep_pages: In the file, now.
        published_pages: Of beginnings, now.
        native_pages: Now.
        demoted: Now.
        shared_pages: That several conversations have.
        conversations: That have the pool.
    """

    room_bytes: int
    used_bytes: int
    most_bytes: int
    largest_free_bytes: int
    moved_bytes: int
    copied_pages: int
    demoted_pages: int
    adopted_tokens: int
    forgotten_pages: int
    spilled_pages: int
    spilled_bytes: int
    woken_pages: int
    woken_bytes: int
    dropped_pages: int
    dropped_bytes: int
    asleep_pages: int
    published_pages: int
    native_pages: int
    demoted: int
    shared_pages: int
    conversations: int


class Pool:
    """Pages of one of a model's caches; close it after its conversations, before the model."""

    def __init__(self, model: CData, cache: int, room: int) -> None:
        """Reserves `room` bytes; the system gives memory as pages are written.

        Raises:
            RuntimeFailure: A page does not fit, or the model has no such cache.
        """
        error, made = new_error(), ffi.new("mllm_kv_pool **")
        check(library().mllm_kv_pool_create(model, cache, room, made, error), error)
        self._pool: CData = made[0]
        self._model, self._cache = model, cache

    def close(self) -> None:
        """Gives the memory back; a second call does nothing.

        Raises:
            RuntimeFailure: A conversation still has pages in it.
        """
        error = new_error()
        check(library().mllm_kv_pool_destroy(self._pool, error), error)
        self._pool = ffi.NULL

    def conversation(self, max_tokens: int = 0) -> Conversation:
        """An empty conversation of at most so many tokens (0: as compiled).

        Raises:
            RuntimeFailure: The model's cache is bounded below that.
        """
        error, made = new_error(), ffi.new("mllm_cache **")
        status = library().mllm_cache_create_in(self._pool, self._model, max_tokens, made, error)
        check(status, error)
        return Conversation(made[0], self._cache)

    def restore(self, path: str | PathLike[str], key: bytes) -> Conversation:
        """A conversation as `save` wrote it, to the bit.

        Raises:
            RuntimeFailure: The file was changed or cut, is of another key or another model, cannot
                be read, or the pool has no room for it.
        """
        error, made = new_error(), ffi.new("mllm_cache **")
        name, secret = _file(path, key)
        check(library().mllm_cache_restore(self._pool, name, secret, made, error), error)
        return Conversation(made[0], self._cache)

    def spill_to(self, folder: str | PathLike[str] | None, most_bytes: int = 0) -> None:
        """Gives the pool a file without a name for those that sleep; nothing: none any more.

        Raises:
            RuntimeFailure: Conversations sleep, or no file can be made there.
        """
        error = new_error()
        name = ffi.NULL if folder is None else ffi.new("char[]", fsencode(folder))
        check(library().mllm_kv_pool_set_spill(self._pool, name, most_bytes, error), error)

    def allow(self, *, demotes: bool = False, drops: bool = False, recent: int = 0) -> None:
        """What relief may do besides forgetting beginnings and letting conversations sleep.

        Args:
            demotes: Pages that end before the last `recent` tokens may fall to 4 bits.
            drops: Conversations of low priority may be lost.
            recent: Tokens.

        Raises:
            RuntimeFailure: There is no memory for a page.
        """
        error, lib = new_error(), library()
        what = lib.MLLM_KV_MAY_DEMOTE * demotes | lib.MLLM_KV_MAY_DROP * drops
        check(lib.mllm_kv_pool_allow(self._pool, what, recent, error), error)

    def relieve(self, room: int, below: int) -> int:
        """Makes room for so many bytes more; those that came free, all of them or more.

        Args:
            room: Bytes.
            below: Only conversations less urgent than this priority give way.

        Raises:
            RuntimeFailure: Fewer came free.
        """
        error, freed = new_error(), ffi.new("uint64_t *")
        check(library().mllm_kv_pool_relieve(self._pool, room, below, freed, error), error)
        return int(freed[0])

    def admits(self, tokens: int, priority: int) -> bool:
        """Whether a new conversation of so many tokens would find room, relief counted."""
        return bool(library().mllm_kv_pool_admits(self._pool, tokens, priority))

    def defragment(self, most_bytes: int) -> int:
        """Moves pages to close gaps, at most so many bytes; the bytes that were moved."""
        return int(library().mllm_kv_defragment_step(self._pool, most_bytes))

    @property
    def statistics(self) -> PoolStatistics:
        """What the pool holds now."""
        found = library().mllm_kv_pool_statistics(self._pool)
        return PoolStatistics(
            room_bytes=found.room_bytes,
            used_bytes=found.used_bytes,
            most_bytes=found.most_bytes,
            largest_free_bytes=found.largest_free_bytes,
            moved_bytes=found.moved_bytes,
            copied_pages=found.copied_pages,
            demoted_pages=found.demoted_pages,
            adopted_tokens=found.adopted_tokens,
            forgotten_pages=found.forgotten_pages,
            spilled_pages=found.spilled_pages,
            spilled_bytes=found.spilled_bytes,
            woken_pages=found.woken_pages,
            woken_bytes=found.woken_bytes,
            dropped_pages=found.dropped_pages,
            dropped_bytes=found.dropped_bytes,
            asleep_pages=found.asleep_pages,
            published_pages=found.published_pages,
            native_pages=found.pages[0],
            demoted=found.pages[1] + found.pages[2],
            shared_pages=found.shared_pages,
            conversations=found.caches,
        )


class Conversation:
    """Keys and values of one conversation."""

    def __init__(self, cache: CData, index: int) -> None:
        """Owns a cache, the model's of that index."""
        self._cache, self._index = cache, index

    def close(self) -> None:
        """Gives its pages back; no session uses it any more. A second call does nothing."""
        library().mllm_cache_destroy(self._cache)
        self._cache = ffi.NULL

    def use_in(self, session: CData) -> None:
        """From now on, runs of the session append to it and read from it.

        Raises:
            RuntimeFailure: The session is of another model.
        """
        error = new_error()
        check(library().mllm_session_use_cache(session, self._index, self._cache, error), error)

    def fork(self) -> Conversation:
        """A second one with the same tokens; pages are shared until one of both writes.

        Raises:
            RuntimeFailure: It is in no pool, or there is no memory.
        """
        error, made = new_error(), ffi.new("mllm_cache **")
        check(library().mllm_cache_fork(self._cache, made, error), error)
        return Conversation(made[0], self._index)

    def save(self, path: str | PathLike[str], key: bytes) -> None:
        """Writes it to a file that only who has the key of 32 bytes can read.

        Raises:
            RuntimeFailure: The file cannot be written; what stood there before still does.
        """
        error, (name, secret) = new_error(), _file(path, key)
        check(library().mllm_cache_save(self._cache, name, secret, error), error)

    def spill(self) -> None:
        """Sleeps: its pages go to the pool's file, but for those that another conversation has.

        Raises:
            RuntimeFailure: There is no file, or no room in it; then it stays awake.
        """
        error = new_error()
        check(library().mllm_cache_spill(self._cache, error), error)

    def wake(self) -> None:
        """Brings its pages back, to the bit.

        Raises:
            RuntimeFailure: The pool is full, then it sleeps on; or the file was changed, then its
                tokens are lost and it is dropped.
        """
        error = new_error()
        check(library().mllm_cache_wake(self._cache, error), error)

    @property
    def state(self) -> str:
        """What it is: "awake", "sleeping" or "dropped"."""
        return STATES[int(library().mllm_cache_state_of(self._cache))]

    def set_priority(self, priority: int) -> None:
        """How long it keeps its pages when room is short: 0 high, 1 normal, 2 low.

        Raises:
            RuntimeFailure: There is no such priority.
        """
        error = new_error()
        check(library().mllm_cache_set_priority(self._cache, priority, error), error)

    def swap(self, other: Conversation) -> None:
        """Each gets the other's tokens, in one step.

        Raises:
            RuntimeFailure: They are not of one pool.
        """
        error = new_error()
        check(library().mllm_cache_swap(self._cache, other._cache, error), error)

    @property
    def length(self) -> int:
        """Tokens that it holds."""
        return int(library().mllm_cache_length(self._cache))

    def rewind(self, length: int) -> None:
        """Forgets what lies behind so many tokens.

        Raises:
            RuntimeFailure: It holds fewer.
        """
        error = new_error()
        check(library().mllm_cache_set_length(self._cache, length, error), error)

    def publish(self, ids: Sequence[int], identity: bytes = b"") -> None:
        """Lets others begin with these, its first tokens, by whole stretches of 32.

        Args:
            ids: Of the tokens.
            identity: What keys and values depend on besides, as digests of image and adapter.

        Raises:
            RuntimeFailure: It holds fewer.
        """
        error, (given, who) = new_error(), _beginning(ids, identity)
        status = library().mllm_cache_publish(self._cache, given, len(ids), who, error)
        check(status, error)

    def adopt(self, ids: Sequence[int], identity: bytes = b"") -> int:
        """Begins with as many of the tokens as are known under the same identity.

        Returns:
            How many these are; the others are to be computed.

        Raises:
            RuntimeFailure: It is not empty.
        """
        error, tokens = new_error(), ffi.new("uint32_t *")
        given, who = _beginning(ids, identity)
        status = library().mllm_cache_adopt(self._cache, given, len(ids), who, tokens, error)
        check(status, error)
        return int(tokens[0])

    def demote(self, recent: int) -> int:
        """Pages that end before the last `recent` tokens fall to 4 bits; gives the freed bytes."""
        return int(library().mllm_cache_demote(self._cache, recent))


def _beginning(ids: Sequence[int], identity: bytes) -> tuple[CData, CData]:
    """Ids, and an identity of any length as one of 32 bytes."""
    who = hashlib.sha256(identity).digest() if identity else bytes(32)
    return ffi.new("uint32_t[]", list(ids)), ffi.new("uint8_t[]", who)


def _file(path: str | PathLike[str], key: bytes) -> tuple[CData, CData]:
    """A path and a key, for C."""
    if len(key) != library().MLLM_CACHE_KEY_BYTES:
        raise failure("MLC-X001", f"a key has 32 bytes, not {len(key)}")
    return ffi.new("char[]", fsencode(path)), ffi.new("uint8_t[]", key)
