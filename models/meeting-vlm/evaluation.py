"""Does the model say what a frame shows? Greedy answers, compared phrase by phrase."""

# pyright: basic, reportMissingImports=false
# (PyTorch is an extra; it is not there where the rest is checked.)

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from dialogue import Dialogue
from frames import FIELDS, meeting
from language_model import LanguageModel
from torch import Tensor, nn

_BATCH = 25
_LONGEST = 40


def new_projector() -> nn.Sequential:
    """Return the projector: [.., 1536] -> [.., 576]."""
    return nn.Sequential(nn.LayerNorm(1536), nn.Linear(1536, 576), nn.GELU(), nn.Linear(576, 576))


def prompt_embeddings(model: LanguageModel, talk: Dialogue, visual: Tensor) -> Tensor:
    """Put the frame's tokens [batch, 64, 576] between the ids around them."""
    before, after = (
        model.embedding[torch.tensor(ids)].expand(len(visual), -1, -1)
        for ids in (talk.before, talk.after)
    )
    return torch.cat((before, visual, after), 1)


@torch.no_grad()
def answers(model: LanguageModel, talk: Dialogue, visual: Tensor) -> list[str]:
    """Answer greedily for a batch of frames' tokens."""
    hidden, cache = model.hidden(prompt_embeddings(model, talk, visual))
    said: list[list[int]] = [[] for _ in range(len(visual))]
    open_rows = set(range(len(visual)))
    for _ in range(_LONGEST):
        nearest = model.logits(hidden[:, -1]).argmax(-1)
        for row in sorted(open_rows):
            token = int(nearest[row])
            if token == talk.stop:
                open_rows.discard(row)
            else:
                said[row].append(token)
        if not open_rows:
            break
        hidden, cache = model.hidden(model.embedding[nearest][:, None], cache)
    return [talk.text(ids) for ids in said]


@torch.no_grad()
def accuracy(
    model: LanguageModel,
    talk: Dialogue,
    projector: nn.Sequential,
    inputs: Tensor,
    seeds: Sequence[int],
) -> dict[str, float]:
    """Return the share of frames with each field right, and with `all` of them right."""
    right: list[tuple[bool, ...]] = []
    for at in range(0, len(seeds), _BATCH):
        said = answers(model, talk, projector(inputs[at : at + _BATCH].float()))
        right += [
            meeting(seed).agreement(text) for text, seed in zip(said, seeds[at:], strict=False)
        ]
    table = np.array(right)
    figures = {field: round(float(table[:, i].mean()), 4) for i, field in enumerate(FIELDS)}
    return figures | {"all": round(float(table.all(1).mean()), 4)}
