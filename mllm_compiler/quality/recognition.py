"""Words that a transcript gets wrong (jiwer)."""

from __future__ import annotations

from collections.abc import Sequence

from mllm_compiler.quality.libraries import library


def word_error_rate(references: Sequence[str], answers: Sequence[str]) -> float:
    """Errors in percent of the words of the references; case and punctuation do not count.

    Words that a hyphen or dash joins are words each, for a transcript may join them or not.

    Raises:
        CompileError: `MLC-X027`, jiwer is not installed.
    """
    jiwer = library("jiwer")
    plain = jiwer.Compose(
        [
            jiwer.ToLowerCase(),
            jiwer.SubstituteRegexes({"[-\u2010-\u2015]": " "}),
            jiwer.RemovePunctuation(),
            jiwer.RemoveMultipleSpaces(),
            jiwer.Strip(),
            jiwer.ReduceToListOfListOfWords(),
        ]
    )
    rate = jiwer.wer(
        list(references), list(answers), reference_transform=plain, hypothesis_transform=plain
    )
    return 100 * float(rate)
