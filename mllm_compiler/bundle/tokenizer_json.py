"""What `tokenizer.json` says, as far as byte-level BPE needs it; the rest is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, cast

from mllm_compiler.errors import CompileError

Object = Mapping[str, object]

DIGITS, SINGLE_DIGITS, GPT2_WORDS, LEADING_SPACE, WHOLE_WORDS = 1, 2, 4, 8, 16
LOCATION: Final = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that is split off before the text is cut into words."""

    id: int
    content: str
    special: bool
    normalized: bool


@dataclass(frozen=True, kw_only=True)
class ByteLevelBpe:
    """A byte-level BPE tokenizer.

    Attributes:
        vocabulary: Id of each of the model's tokens, in the alphabet of byte-level BPE.
        merges: Pairs of tokens, the first to merge first.
        added: Added tokens.
        flags: How text is cut, as the header of the tables has it.
        before: Ids in front of a whole text when special tokens are asked for.
        after: Ids behind it.
    """

    vocabulary: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    added: Sequence[AddedToken]
    flags: int
    before: Sequence[int]
    after: Sequence[int]


def refuse(what: str) -> NoReturn:
    """Says that a tokenizer has something that the runtime's tables cannot hold."""
    raise CompileError(
        "MLC-B014",
        f"the runtime has no {what}",
        location=LOCATION,
        remedy="use a byte-level BPE tokenizer, or compile without [text]",
    )


def read_tokenizer(raw: bytes) -> ByteLevelBpe:
    """Reads `tokenizer.json`.

    Raises:
        CompileError: `MLC-B014` it is no byte-level BPE tokenizer that the runtime can follow.
    """
    try:
        whole = cast(Object, json.loads(raw))
    except ValueError as error:
        message = f"not JSON: {error}"
        raise CompileError("MLC-B014", message, location=LOCATION) from error
    model = _object(whole, "model")
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        refuse(f"tokenizer model '{model.get('type')}'")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            refuse(f"BPE option '{key}'")
    if whole.get("normalizer") is not None:
        refuse(f"normalizer '{_object(whole, 'normalizer').get('type')}'")
    if _object(whole, "decoder").get("type") != "ByteLevel":
        refuse(f"decoder '{_object(whole, 'decoder').get('type')}'")
    before, after = _surroundings(_object(whole, "post_processor"))
    whole_words = WHOLE_WORDS if model.get("ignore_merges") else 0
    return ByteLevelBpe(
        vocabulary=cast("Mapping[str, int]", model["vocab"]),
        merges=[_pair(merge) for merge in cast("Sequence[object]", model["merges"])],
        added=[_added(token) for token in cast("Sequence[Object]", whole.get("added_tokens", []))],
        flags=_cutting(_object(whole, "pre_tokenizer")) | whole_words,
        before=before,
        after=after,
    )


def _object(parent: Object, key: str) -> Object:
    return cast(Object, parent.get(key) or {})


def _pair(merge: object) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else cast("Sequence[str]", merge)
    if len(parts) != 2:
        refuse(f"merge of {len(parts)} parts")
    return parts[0], parts[1]


def _added(token: Object) -> AddedToken:
    for key in ("single_word", "lstrip", "rstrip"):
        if token.get(key):
            refuse(f"'{key}' for added token '{token['content']}'")
    return AddedToken(
        id=cast(int, token["id"]),
        content=cast(str, token["content"]),
        special=bool(token.get("special", False)),
        normalized=bool(token.get("normalized", True)),
    )


def _cutting(pre_tokenizer: Object) -> int:
    """Flags of `Digits?, ByteLevel`, the one order in which the runtime cuts."""
    steps = [pre_tokenizer]
    if pre_tokenizer.get("type") == "Sequence":
        steps = list(cast("Sequence[Object]", pre_tokenizer["pretokenizers"]))
    kinds = [step.get("type") for step in steps]
    if kinds not in (["ByteLevel"], ["Digits", "ByteLevel"]):
        refuse(f"pre-tokenizer {' + '.join(str(kind) for kind in kinds)}")
    flags = 0
    if kinds[0] == "Digits":
        flags |= DIGITS | (SINGLE_DIGITS if steps[0].get("individual_digits") else 0)
    flags |= GPT2_WORDS if steps[-1].get("use_regex", True) else 0
    return flags | (LEADING_SPACE if steps[-1].get("add_prefix_space", True) else 0)


def _surroundings(post_processor: Object) -> tuple[list[int], list[int]]:
    """Ids that the post-processor puts before and after a text."""
    steps = [post_processor] if post_processor else []
    if post_processor.get("type") == "Sequence":
        steps = list(cast("Sequence[Object]", post_processor["processors"]))
    # ByteLevel only moves offsets here.
    steps = [step for step in steps if step.get("type") != "ByteLevel"]
    if not steps:
        return [], []
    if len(steps) > 1 or steps[0].get("type") != "TemplateProcessing":
        refuse(f"post-processor '{steps[0].get('type')}'")
    known = cast("Mapping[str, Mapping[str, Sequence[int]]]", steps[0]["special_tokens"])
    before: list[int] = []
    after: list[int] = []
    side = before
    for piece in cast("Sequence[Mapping[str, Mapping[str, str]]]", steps[0]["single"]):
        if "Sequence" in piece:
            side = after
            continue
        side.extend(known[piece["SpecialToken"]["id"]]["ids"])
    return before, after
