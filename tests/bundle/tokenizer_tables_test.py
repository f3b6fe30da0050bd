"""Tables of a tokenizer: exact classes of code points, stable bytes, refusals by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from mllm_compiler.bundle.tokenizer_json import read_tokenizer
from mllm_compiler.bundle.tokenizer_tables import NO_TOKEN, pair_hash, tokenizer_tables
from mllm_compiler.bundle.unicode_classes import CLASSES, class_ranges
from mllm_compiler.errors import CompileError

SCALARS = np.r_[0:0xD800, 0xE000:0x110000]
TEXT = "".join(map(chr, SCALARS.tolist()))
PATTERNS = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s"}


def small() -> Tokenizer:
    vocabulary = {"a": 0, "b": 1, "ab": 2, "Ġ": 3}
    made = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<s>", normalized=False)])
    return made


def members(name: str) -> NDArray[np.bool_]:
    """Whether each scalar is in a class."""
    inside = np.zeros(0x110000, np.bool_)
    for first, last, bits in class_ranges():
        inside[first : last + 1] = bool(bits & CLASSES[name])
    return inside[SCALARS]


@pytest.mark.parametrize("name", PATTERNS)
def test_classes_are_those_of_the_library(name: str) -> None:
    split = pre_tokenizers.Split(Regex(f"{PATTERNS[name]}+"), "removed")
    inside = np.ones(len(TEXT), np.bool_)
    for _, (start, end) in split.pre_tokenize_str(TEXT):
        inside[start:end] = False
    assert np.array_equal(inside, members(name))


def test_digits_are_those_of_the_library() -> None:
    digits = pre_tokenizers.Digits(individual_digits=False)
    inside = np.zeros(len(TEXT), np.bool_)
    for turn, (_, (start, end)) in enumerate(digits.pre_tokenize_str(TEXT)):
        inside[start:end] = turn % 2 == 1  # the first piece, U+0000 to '/', has none
    assert np.array_equal(inside, members("digit"))


def test_the_same_tokenizer_gives_the_same_bytes() -> None:
    raw = small().to_str().encode()
    tables = tokenizer_tables(raw)
    assert tables == tokenizer_tables(json.dumps(json.loads(raw), indent=7).encode())
    assert tables.startswith(b"MLLMTOK\x01")


def test_merges_as_text_and_as_pairs_are_the_same() -> None:
    whole = json.loads(small().to_str())
    pairs = tokenizer_tables(json.dumps(whole).encode())
    whole["model"]["merges"] = ["a b"]
    assert tokenizer_tables(json.dumps(whole).encode()) == pairs


def test_the_hash_spreads_pairs() -> None:
    starts = {pair_hash(left, right) & 0xFFFF for left in range(200) for right in range(200)}
    assert len(starts) > 0.4 * 0x10000
    assert pair_hash(NO_TOKEN, NO_TOKEN) < 1 << 32


def test_ids_around_a_text() -> None:
    made = small()
    made.post_processor = TemplateProcessing(single="<s> $A <s>", special_tokens=[("<s>", 4)])
    read = read_tokenizer(made.to_str().encode())
    assert (read.before, read.after) == ([4], [4])


def unigram(made: Tokenizer) -> Tokenizer:
    return Tokenizer(models.Unigram())


def normalised(made: Tokenizer) -> Tokenizer:
    from tokenizers.normalizers import NFC

    made.normalizer = NFC()
    return made


def other_regex(made: Tokenizer) -> Tokenizer:
    split = pre_tokenizers.Split(Regex("x"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel()])
    return made


def strips(made: Tokenizer) -> Tokenizer:
    made.add_tokens([AddedToken("<m>", lstrip=True)])
    return made


def no_decoder(made: Tokenizer) -> Tokenizer:
    made.decoder = decoders.WordPiece()
    return made


REFUSED: list[tuple[Callable[[Tokenizer], Tokenizer], str]] = [
    (unigram, "tokenizer model 'Unigram'"),
    (normalised, "normalizer 'NFC'"),
    (other_regex, r"pre-tokenizer Split \+ ByteLevel"),
    (strips, "'lstrip' for added token '<m>'"),
    (no_decoder, "decoder 'WordPiece'"),
]


@pytest.mark.parametrize(("change", "what"), REFUSED)
def test_what_the_runtime_lacks_is_named(
    change: Callable[[Tokenizer], Tokenizer], what: str
) -> None:
    with pytest.raises(CompileError, match=what) as caught:
        tokenizer_tables(change(small()).to_str().encode())
    assert caught.value.code == "MLC-B014"


def test_no_json_is_told() -> None:
    with pytest.raises(CompileError, match="not JSON") as caught:
        tokenizer_tables(b"{")
    assert caught.value.code == "MLC-B014"
