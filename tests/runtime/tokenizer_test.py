"""The tokenizer in C against the tokenizers library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from mllm_compiler.bundle.tokenizer_tables import tokenizer_tables
from mllm_compiler.recipes import build_recipe
from runtime_stub import Model, RuntimeFailure
from tests.runtime.text_models import language_module, write_text_bundle

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SCALARS = "".join(chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
PARTS = [*" \n\t'sdlvermtXY1½²٣éあ漢😀\u0301\u00a0\u200b\x85<|>", *SPECIAL, "<x>", "'ll"]
MIXED = st.lists(
    st.sampled_from(PARTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    max_size=40,
).map("".join)


def trained(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    """A tokenizer of 2000 tokens, trained on Python's help texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    made.train_from_iterator(list(topics.values())[:30], trainer)
    made.add_tokens([AddedToken("<x>"), AddedToken("<x><|im", normalized=True), AddedToken("é<")])
    return made


def smollm() -> Tokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return trained(
        pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    )


def whisper() -> Tokenizer:
    made = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.post_processor = TemplateProcessing(
        single="<|im_start|> $A <|im_end|>",
        special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)],
    )
    return made


def spaced() -> Tokenizer:
    digits = pre_tokenizers.Digits(individual_digits=False)
    return trained(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel()]))


def uncut() -> Tokenizer:
    return trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))


Pair = tuple[Tokenizer, Model]


@pytest.fixture(scope="module", params=[smollm, whisper, spaced, uncut])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, trust: Path
) -> Pair:
    make: Callable[[], Tokenizer] = request.param
    made = make()
    path = tmp_path_factory.mktemp("tokenizer") / "bundle"
    tables = {"text/tokenizer.bin": tokenizer_tables(made.to_str().encode())}
    write_text_bundle(path, *language_module(), replaced=tables)
    return made, Model.open(path, trust=trust, threads=1)


def check(pair: Pair, text: str) -> None:
    library, model = pair
    ids = library.encode(text, add_special_tokens=True).ids
    assert model.tokenize(text, special=True) == ids
    for special in (False, True):
        decoded = library.decode(ids, skip_special_tokens=not special)
        assert model.detokenize(ids, special=special) == decoded


def test_encodes_and_decodes_a_corpus(pair: Pair) -> None:
    for text in topics.values():
        check(pair, text)


def test_code_points_of_every_plane(pair: Pair) -> None:
    for at in range(0, len(SCALARS), 7919):
        check(pair, SCALARS[at : at + 99] + " ".join(SCALARS[at + 99 : at + 999 : 9]))


@given(MIXED)
@settings(deadline=None, max_examples=300)
def test_any_text(pair: Pair, text: str) -> None:
    check(pair, text)


@given(st.lists(st.integers(0, 1999), max_size=30))
@settings(deadline=None)
def test_any_ids(pair: Pair, ids: list[int]) -> None:
    library, model = pair
    assert model.detokenize(ids) == library.decode(ids)


LONG = ["a" * 60_000, " " * 60_000 + "x", "ab" * 30_000, "é<x><|im_end|>"]


@pytest.mark.parametrize("text", LONG)
def test_long_words(pair: Pair, text: str) -> None:
    check(pair, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m", "whisper-base"])
def test_the_real_tokenizers(tmp_path: Path, trust: Path, name: str) -> None:
    file = build_recipe(name, lambda line: None) / "tokenizer.json"
    made = Tokenizer.from_file(str(file))
    tables = {"text/tokenizer.bin": tokenizer_tables(file.read_bytes())}
    path = write_text_bundle(tmp_path / "bundle", *language_module(), replaced=tables)
    pair = made, Model.open(path, trust=trust, threads=1)
    for text in topics.values():
        check(pair, text)
    check(pair, SCALARS[::50])
    for token in made.get_added_tokens_decoder().values():
        check(pair, f"a {token.content}b")


def test_plain_text_makes_no_marker(pair: Pair) -> None:
    """What a user writes cannot end their turn."""
    _, model = pair
    ids = model.tokenize("hello<|im_end|>there")
    assert not {0, 1, 2} & set(ids)
    assert model.detokenize(ids).lstrip() == "hello<|im_end|>there"


def test_an_unknown_id_is_told(pair: Pair) -> None:
    with pytest.raises(RuntimeFailure, match="no token 99999"):
        pair[1].detokenize([99999])


@pytest.mark.parametrize("at", range(8, 48, 4))
def test_tables_with_a_changed_header_are_refused(tmp_path: Path, trust: Path, at: int) -> None:
    tables = bytearray(tokenizer_tables(smollm().to_str().encode()))
    tables[at + 1] ^= 0xFF
    path = tmp_path / "bundle"
    write_text_bundle(path, *language_module(), replaced={"text/tokenizer.bin": bytes(tables)})
    with pytest.raises(RuntimeFailure, match=r"text/tokenizer\.bin"):
        Model.open(path, trust=trust, threads=1).tokenize("x")
