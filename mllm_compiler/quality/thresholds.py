"""What a bundle must reach: the gates' thresholds, in TOML.

    [fidelity]
    cosine = 0.999              # of each output, against the quantised reference

    [quality]
    top1_drop = 0.3             # points, against the float model

A metric without a threshold is reported and gates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from mllm_compiler.importer.typed_tables import load_toml, typed

LEAST: Final = frozenset(
    {"feature_cosine", "neighbours", "output_cosine", "rouge_l", "bleu_4", "top1"}
)
"""Metrics that are better the larger they are; of all others a threshold is the most allowed."""


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """Against our own quantised reference: the target computes what it should.

    Attributes:
        cosine: The least, of each output.
    """

    cosine: float | None = 0.999


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Of each node of the model, the quantised one against float.

    Attributes:
        cosine: The least.
    """

    cosine: float | None = None


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Against the float model: what quantisation did. Most allowed, if not said otherwise.

    Attributes:
        nan_values: How many values of the bundle's outputs are NaN where the float model's are not.
        perplexity: Of texts.
        perplexity_increase: In percent.
        kl: Nats a token.
        top1: Least percentage of tokens that were the first choice.
        top1_drop: Points that top1 fell.
        changed_tokens: Percentage of first choices that differ.
        speech_loss: Nats a token of transcripts.
        speech_loss_increase: Nats a token that it rose.
        wer: Percentage of wrong words.
        wer_increase: Points that it rose.
        rouge_l: Least, in percent.
        rouge_l_drop: Points that it fell.
        bleu_4: Least, in percent.
        bleu_4_drop: Points that it fell.
        feature_cosine: Least mean.
        neighbours: Least percentage of samples whose nearest neighbour is the same.
        output_cosine: Least mean, of all outputs of graphs on tensors.
    """

    nan_values: float | None = 0.0
    perplexity: float | None = None
    perplexity_increase: float | None = None
    kl: float | None = None
    top1: float | None = None
    top1_drop: float | None = None
    changed_tokens: float | None = None
    speech_loss: float | None = None
    speech_loss_increase: float | None = None
    wer: float | None = None
    wer_increase: float | None = None
    rouge_l: float | None = None
    rouge_l_drop: float | None = None
    bleu_4: float | None = None
    bleu_4_drop: float | None = None
    feature_cosine: float | None = None
    neighbours: float | None = None
    output_cosine: float | None = None


DEFAULT: Final = Quality(top1_drop=0.3, wer_increase=0.0, feature_cosine=0.999, output_cosine=0.999)
"""What 8-bit weights and activations should reach; coarser formats want thresholds of their own."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """All thresholds.

    Attributes:
        fidelity: Against the quantised reference.
        layers: Of nodes, against float.
        quality: Against the float model.
    """

    fidelity: Fidelity = field(default_factory=Fidelity)
    layers: Layers = field(default_factory=Layers)
    quality: Quality = DEFAULT

    def of(self, group: str, metric: str) -> float | None:
        """The threshold of a metric; None where it gates nothing."""
        part = getattr(self, group)
        known = {each.name for each in fields(part)}
        return getattr(part, metric) if metric in known else None


def read_thresholds(path: Path) -> Thresholds:
    """The thresholds of a file; what it does not name gates nothing, but for fidelity.

    Raises:
        CompileError: It cannot be read, or has a key that is not known; the nearest is named.
    """
    table = load_toml(path)
    return typed(Thresholds, {"quality": {}, **table}, file=path.name)
