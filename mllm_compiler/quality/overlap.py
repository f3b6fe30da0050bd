"""How much of a reference an answer has: ROUGE-L (rouge-score) and BLEU-4 (sacrebleu)."""

from __future__ import annotations

from collections.abc import Sequence

from mllm_compiler.quality.libraries import library


def rouge_l(references: Sequence[str], answers: Sequence[str]) -> float:
    """The mean F measure of the longest common subsequence of words, in percent.

    Raises:
        CompileError: `MLC-X027`, rouge-score is not installed.
    """
    scorer = library("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    pairs = zip(references, answers, strict=True)
    scores = [scorer.score(reference, answer)["rougeL"].fmeasure for reference, answer in pairs]
    return 100 * sum(scores) / len(scores)


def bleu_4(references: Sequence[str], answers: Sequence[str]) -> float:
    """BLEU over one to four words, of the whole corpus, in percent.

    Raises:
        CompileError: `MLC-X027`, sacrebleu is not installed.
    """
    return float(library("sacrebleu").corpus_bleu(list(answers), [list(references)]).score)
