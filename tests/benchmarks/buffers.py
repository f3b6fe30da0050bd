"""Problems for the memory planner: published ones, a long chain of layers, a large pipeline."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mllm_compiler.passes.arena import Interval

FOLDER = Path(__file__).resolve().parent / "planner"


def hard_instances() -> dict[str, list[Interval]]:
    """The instances of MiniMalloc in `planner/`, by letter."""
    found: dict[str, list[Interval]] = {}
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found[path.name.partition(".")[0]] = [
                Interval(row["id"], int(row["lower"]), int(row["upper"]) - 1, int(row["size"]))
                for row in csv.DictReader(file)
            ]
    return found


def chain(count: int) -> list[Interval]:
    """A buffer a stage: most live for some stages, one in thirty for up to 2,000."""
    random = np.random.default_rng(0)
    long = random.random(count) > 0.97
    lives = np.where(long, random.integers(50, 2000, count), random.geometric(0.3, count))
    sizes = 64 * random.integers(1, 4096, count)
    return [
        Interval(str(at), at, min(count, at + int(life)), int(size))
        for at, (life, size) in enumerate(zip(lives, sizes, strict=True))
    ]


@dataclass(frozen=True)
class Pipeline:
    """Sessions that run one behind the other, and what they keep in memory.

    Attributes:
        buffers: The buffers of all sessions on one axis of time.
        users: The sessions that touch each buffer; more than one where it is handed on.
        spans: The first and the last tick of each session.
    """

    buffers: Sequence[Interval]
    users: Sequence[Collection[str]]
    spans: Mapping[str, tuple[int, int]]


ELEMENT = 2
"""Bytes of an f16 activation."""


def vision_language() -> Pipeline:
    """ViT-L/14 at 336 pixels, a projector of two layers, and 32 layers of a language model.

    The sizes are those of LLaVA-1.5-7B. The prompt is 576 image tokens and 64 of text, in one
    piece; the projector writes into the prompt, whose rows of text were put there before. Residual
    sums are in place, attention keeps no scores, and keys and values are the cache's.
    """
    patches, image, prompt, width, wide = 577, 576, 640, 1024, 4096
    vision = _layers("vision", 0, 24, (patches, width, 4096))
    behind = vision[0].last + 1
    features = Interval("features", behind - 1, behind + 1, image * width * ELEMENT)
    hidden = Interval("projector: hidden", behind, behind + 1, image * wide * ELEMENT)
    language = _layers("language", behind + 2, 32, (prompt, wide, 2 * 11008))
    end = language[0].last
    given = Interval("prompt", behind + 1, end, prompt * wide * ELEMENT)
    users = [{"vision"}] * len(vision) + [{"projector"}] + [{"language"}] * len(language)
    return Pipeline(
        buffers=[*vision, hidden, *language, features, given],
        users=[*users, {"vision", "projector"}, {"projector", "language"}],
        spans={
            "vision": (0, behind - 1),
            "projector": (behind, behind + 1),
            "language": (behind + 2, end),
        },
    )


def _layers(name: str, start: int, count: int, shape: tuple[int, int, int]) -> list[Interval]:
    """Transformer layers of [tokens, width] with an MLP of `hidden` values a token, and a norm."""
    tokens, width, hidden = shape
    row, steps = tokens * ELEMENT, 7
    parts = {"norm": width, "qkv": 3 * width, "heads": width, "sum": width}
    parts |= {"mlp norm": width, "mlp": hidden, "mlp sum": width}
    made = [Interval(f"{name}: x", start, start + steps * count, row * width)]
    for layer in range(count):
        at = start + steps * layer
        made += [
            Interval(f"{name}: {layer}/{part}", at + i, at + i + 1, row * size)
            for i, (part, size) in enumerate(parts.items())
        ]
    return made
