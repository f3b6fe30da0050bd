"""`tokenizer.json` of the tokenizers library, compiled into the tables of `text/tokenizer.bin`.

The format stands in `runtime_stub/include/mllm_tokenizer.h`. Byte-level BPE as GPT-2, SmolLM2 and
Whisper use it; anything else is refused here, at compile time, so that the runtime never tokenizes
almost right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final

import numpy as np

from mllm_compiler.bundle.tokenizer_json import AddedToken, ByteLevelBpe, read_tokenizer, refuse
from mllm_compiler.bundle.unicode_classes import class_ranges

MAGIC: Final = b"MLLMTOK\x01"
NO_TOKEN: Final = 0xFFFFFFFF
EXISTS, ADDED, SPECIAL, NORMALIZED = 1, 2, 4, 8


def tokenizer_tables(tokenizer_json: bytes) -> bytes:
    """The bytes of `text/tokenizer.bin`; the same `tokenizer.json` gives the same bytes.

    Raises:
        CompileError: `MLC-B014` it is no byte-level BPE tokenizer that the runtime can follow.
    """
    bpe = read_tokenizer(tokenizer_json)
    contents = {token.id: token.content for token in bpe.added}
    for token, index in bpe.vocabulary.items():
        contents.setdefault(index, token)
    pool = [_token_bytes(contents[index]) if index in contents else b"" for index in _ids(contents)]
    literal = sorted(((token.content.encode(), token) for token in bpe.added), key=itemgetter(0))
    added: list[tuple[int, int, int, int]] = []
    at = sum(map(len, pool))
    for text, token in literal:
        added.append((token.id, at, len(text), _flags(token)))
        at += len(text)
    own = sorted((_token_bytes(token), index) for token, index in bpe.vocabulary.items())
    words = [index for token, index in own if pool[index] == token]
    slots = _slots(bpe)
    ranges = class_ranges()
    counts = (bpe.flags, len(pool), len(added), len(slots), len(ranges), len(words))
    sections = [
        (*counts, len(bpe.before), len(bpe.after), at, 0),
        [bpe.vocabulary.get(character, NO_TOKEN) for character in _alphabet()],
        np.cumsum([0, *map(len, pool)]),
        _token_flags(bpe, contents),
        words,
        added,
        slots,
        ranges,
        bpe.before,
        bpe.after,
    ]
    tables = b"".join(np.array(section, "<u4").tobytes() for section in sections)
    return b"".join([MAGIC, tables, *pool, *(text for text, _ in literal)])


def pair_hash(left: int, right: int) -> int:
    """Where the search for a pair of tokens starts, as `mllm_pair_hash` in C."""
    mixed = (left * 0x9E3779B1 ^ right * 0x85EBCA77) & 0xFFFFFFFF
    return mixed ^ mixed >> 15


def _ids(contents: Mapping[int, str]) -> Iterable[int]:
    last = max(contents, default=-1)
    if last >= 1 << 24:
        refuse(f"room for token {last}")
    return range(last + 1)


def _alphabet() -> list[str]:
    """The character that byte-level BPE writes for each byte: itself, or one from U+0100 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return [chr(byte if byte in kept else 0x100 + moved.index(byte)) for byte in range(256)]


BYTES: Final = {character: byte for byte, character in enumerate(_alphabet())}


def _token_bytes(token: str) -> bytes:
    """What a token decodes to; one with a character outside the alphabet stands for itself."""
    if all(character in BYTES for character in token):
        return bytes(BYTES[character] for character in token)
    return token.encode()


def _flags(token: AddedToken) -> int:
    return ADDED | (SPECIAL if token.special else 0) | (NORMALIZED if token.normalized else 0)


def _token_flags(bpe: ByteLevelBpe, contents: Mapping[int, str]) -> list[int]:
    flags = [EXISTS if index in contents else 0 for index in _ids(contents)]
    for token in bpe.added:
        flags[token.id] |= _flags(token)
    return flags


def _slots(bpe: ByteLevelBpe) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """The open-addressing table of merges, at most half full."""
    size = 1 << (2 * len(bpe.merges)).bit_length() if bpe.merges else 0
    slots = np.full((size, 4), NO_TOKEN, np.uint32)
    taken: dict[tuple[int, int], int] = {}
    free = bytearray(b"\x01" * size)
    for rank, (left, right) in enumerate(bpe.merges):
        for token in (left, right, left + right):
            if token not in bpe.vocabulary:
                refuse(f"merge of '{left}' and '{right}': '{token}' is not in the vocabulary")
        pair = bpe.vocabulary[left], bpe.vocabulary[right]
        at = taken.get(pair, pair_hash(*pair) & (size - 1))
        while pair not in taken and not free[at]:
            at = (at + 1) & (size - 1)
        taken[pair], free[at] = at, 0
        slots[at] = (*pair, rank, bpe.vocabulary[left + right])
    return slots
