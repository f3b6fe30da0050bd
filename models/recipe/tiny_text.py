"""A tokenizer for the tiny recipes: 256 bytes, a few merges, a few markers."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
IMAGE = "<image>"
MERGES = (
    *(("t", "h"), ("th", "e"), ("i", "n"), ("e", "r"), ("o", "n"), ("Ġ", "the"), ("Ġ", "a")),
    *(
        ("in", "g"),
        ("e", "e"),
        ("m", "ee"),
        ("mee", "t"),
        ("meet", "ing"),
        ("u", "s"),
        ("us", "er"),
    ),
)
VOCAB = len(MARKERS) + 256 + len(MERGES) + 1
END_OF_TEXT, START, END = range(3)
_ANSWER = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_TURN = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
_END = "{{ message['content'] + '<|im_end|>\\n' }}{% endfor %}"
_LOOK = "{% if message['role'] == 'user' and loop.first %}{{ '<image>\\n' }}{% endif %}"
TEMPLATE = _TURN + _END + _ANSWER
IMAGE_TEMPLATE = _TURN + _LOOK + _END + _ANSWER


def tiny_tokenizer() -> Tokenizer:
    """Return a byte-level BPE tokenizer of `VOCAB` tokens; `<image>` is the last."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*MARKERS, *alphabet, *("".join(pair) for pair in MERGES), IMAGE]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocabulary, list(MERGES)))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    made.decoder = decoders.ByteLevel()
    markers = [AddedToken(token, special=True, normalized=False) for token in (*MARKERS, IMAGE)]
    made.add_special_tokens(markers)
    return made
