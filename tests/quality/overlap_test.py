"""ROUGE-L, BLEU-4 and word errors against counts made by hand."""

from __future__ import annotations

import math

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.quality import libraries
from mllm_compiler.quality.overlap import bleu_4, rouge_l
from mllm_compiler.quality.recognition import word_error_rate


def test_rouge_l_counts_the_longest_common_subsequence() -> None:
    # Four of six words in order: precision 4 / 5, recall 4 / 6.
    reference, answer = "the cat sat on the mat", "the cat on the rug"
    precision, recall = 4 / 5, 4 / 6
    expected = 100 * 2 * precision * recall / (precision + recall)
    assert rouge_l([reference], [answer]) == pytest.approx(expected)
    assert rouge_l([reference, "a b"], [answer, "a b"]) == pytest.approx((expected + 100) / 2)


def test_bleu_4_is_the_mean_of_four_precisions() -> None:
    # Of eight words seven are right: runs of 7/8, 5/7, 4/6 and 3/5 of one to four words.
    reference = "a b c d e f g h"
    answer = "a b x d e f g h"
    expected = 100 * math.prod((7 / 8, 5 / 7, 3 / 6, 2 / 5)) ** 0.25
    assert bleu_4([reference], [answer]) == pytest.approx(expected)
    assert bleu_4([reference], [reference]) == pytest.approx(100)


def test_word_errors_are_edits_over_words() -> None:
    # One word is replaced, one left out, one added, of five; case and commas do not count.
    assert word_error_rate(["Go forward, ten meters now"], ["go backward ten now please"]) == 60
    assert word_error_rate(["a b", "c d"], ["A b.", "c"]) == 25
    assert word_error_rate(["an ill-disposed man"], ["An ill disposed man"]) == 0
    assert word_error_rate(["best of times\u2014it was"], ["best of times, it was"]) == 0


def test_a_library_that_is_missing_is_a_located_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(libraries, "import_module", absent)
    with pytest.raises(CompileError) as caught:
        rouge_l(["a"], ["a"])
    error = caught.value
    assert (error.code, error.exit_code) == ("MLC-X027", 4)
    assert "rouge-score" in error.message
    assert error.remedy == "pip install 'mllm-compiler[check]'"
