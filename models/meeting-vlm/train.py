"""Train the projector between the frozen vision encoder and the frozen language model.

    pip install -e '.[dev,train]'
    python models/meeting-vlm/train.py

About an hour and a half on two cores. Everything that takes long is kept in the cache: encoder
features by chunk, and a checkpoint every 50 steps from which a second call goes on. At the end it
writes `projector.npz` (float16) and `projector.json` (accuracy on 200 held-out frames).
"""

# pyright: basic, reportMissingImports=false
# (PyTorch is an extra; it is not there where the rest is checked.)

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention
from dialogue import Dialogue
from evaluation import accuracy, new_projector, prompt_embeddings
from features import features
from frames import HELD_OUT, SHARED, meeting
from language_model import LanguageModel
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.recipe.gguf_weights import smollm2
from models.recipe.packages import cache_root

HERE = Path(__file__).resolve().parent
NAMES = ("norm", "linear_1", "", "linear_2")  # of the projector's four stages, in the file
TESTED = 200
VALIDATED = range(HELD_OUT + TESTED, HELD_OUT + TESTED + 50)
_KEPT_EVERY = 50
_WATCHED_EVERY = 100


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Rise linearly over the first tenth, then fall along a cosine to 1 % of the peak."""
    warm = max(1, steps // 10)
    if step < warm:
        return peak * (step + 1) / warm
    phase = (step - warm) / max(1, steps - warm)
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * phase)))


def labels(seeds: range) -> Tensor:
    """Return every frame's attributes as class numbers, [frames, 6]."""
    shown = [asdict(meeting(seed)) for seed in seeds]
    rows = [
        [
            v["people"] - 1,
            v["speaking"],
            SHARED.index(v["shared"]),
            v["hand"],
            v["muted"],
            v["light"],
        ]
        for v in shown
    ]
    return torch.tensor(rows, dtype=torch.int64)


def thinned(inputs: Tensor) -> Tensor:
    """Drop a tenth of the features, so that frames are not learned by heart."""
    return F.dropout(inputs.float(), 0.1)


class Probes(nn.Module):
    """Read the attributes off projected tokens; thrown away after the warm start."""

    def __init__(self) -> None:
        """Make one attention pool and one linear reader an attribute."""
        super().__init__()
        self.look = nn.Linear(576, 6)
        self.read = nn.ModuleList(nn.Linear(576, classes) for classes in (6, 2, 4, 2, 2, 2))

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """Return the scores of every attribute from [batch, 64, 576]."""
        shares = self.look(tokens).softmax(1)
        pooled = torch.einsum("bta,btd->bad", shares, tokens)
        return [read(pooled[:, i]) for i, read in enumerate(self.read)]


def warm_start(
    projector: nn.Sequential, inputs: Tensor, seeds: range, spread: float, epochs: int
) -> None:
    """Teach the projector to expose the attributes, then scale its output like embeddings."""
    probes = Probes()
    steps = epochs * (len(inputs) // 32)
    learner = torch.optim.AdamW([*projector.parameters(), *probes.parameters()], weight_decay=0.01)
    true = labels(seeds)
    torch.manual_seed(1)
    for step in range(steps):
        for group in learner.param_groups:
            group["lr"] = learning_rate(step, steps, 1e-3)
        chosen = torch.randint(len(inputs), (32,))
        scores = cast("list[Tensor]", probes(projector(thinned(inputs[chosen])) / spread))
        losses = [F.cross_entropy(s, true[chosen, i]) for i, s in enumerate(scores)]
        learner.zero_grad()
        torch.stack(losses).sum().backward()
        learner.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"warm {step}: " + " ".join(f"{loss.item():.3f}" for loss in losses), flush=True)
    with torch.no_grad():
        last = cast("nn.Linear", projector[3])
        ratio = spread / projector(inputs[:64].float()).std()
        last.weight.mul_(ratio)
        last.bias.mul_(ratio)


def caption_loss(
    model: LanguageModel, talk: Dialogue, visual: Tensor, seeds: list[int]
) -> tuple[Tensor, float]:
    """Return the weighted loss of the captions, and the share of deciding tokens foreseen."""
    ids, weights = talk.batch(seeds)
    prompt = prompt_embeddings(model, talk, visual)
    hidden, _ = model.hidden(torch.cat((prompt, model.embedding[ids[:, :-1]]), 1))
    logits = model.logits(hidden[:, prompt.shape[1] - 1 :])
    each = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
    deciding = weights == 1
    foreseen = (logits.argmax(-1) == ids)[deciding].float().mean().item()
    return (each * weights).sum() / weights.sum(), foreseen


def train(arguments: argparse.Namespace, model: LanguageModel, talk: Dialogue) -> nn.Sequential:
    """Run or resume the training and return the projector."""
    inputs = torch.from_numpy(features(arguments.first, arguments.frames))
    watched = torch.from_numpy(features(VALIDATED.start, len(VALIDATED)))
    torch.manual_seed(0)
    projector = new_projector()
    learner = torch.optim.AdamW(projector.parameters(), weight_decay=0.01)
    kept = cache_root() / "training" / f"{arguments.run}.pt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    start = 0
    if kept.exists():
        state = torch.load(kept)
        projector.load_state_dict(state["projector"])
        learner.load_state_dict(state["learner"])
        start = state["step"]
        print(f"resumed at step {start}", flush=True)
    else:
        seen = range(arguments.first, arguments.first + arguments.frames)
        warm_start(projector, inputs, seen, float(model.embedding.std()), arguments.warm)
    begun, smooth = time.monotonic(), [1.0, 0.0]
    for step in range(start, arguments.steps):
        for group in learner.param_groups:
            group["lr"] = learning_rate(step, arguments.steps, arguments.peak)
        random = np.random.default_rng([7, step])
        rows = [int(row) for row in random.choice(len(inputs), arguments.batch, replace=False)]
        seeds = [arguments.first + row for row in rows]
        loss, foreseen = caption_loss(model, talk, projector(thinned(inputs[rows])), seeds)
        learner.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(projector.parameters(), 1.0)
        learner.step()
        smooth = [0.9 * smooth[0] + 0.1 * loss.item(), 0.9 * smooth[1] + 0.1 * foreseen]
        if (step + 1) % 10 == 0:
            pace = (time.monotonic() - begun) / (step + 1 - start)
            print(
                f"{step + 1}: loss {smooth[0]:.4f} deciding {smooth[1]:.3f} {pace:.2f} s",
                flush=True,
            )
        if (step + 1) % _KEPT_EVERY == 0 or step + 1 == arguments.steps:
            state = {"projector": projector.state_dict(), "learner": learner.state_dict()}
            torch.save(state | {"step": step + 1}, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)
        if (step + 1) % _WATCHED_EVERY == 0:
            print(step + 1, accuracy(model, talk, projector, watched, VALIDATED), flush=True)
    return projector


def save(projector: nn.Sequential, path: Path) -> None:
    """Write the weights as float16, and keep only what float16 keeps."""
    stored: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float16]]] = {}
    with torch.no_grad():
        for name, value in projector.named_parameters():
            stage, kind = name.split(".")
            value.copy_(value.half().float())
            stored[f"multi_modal_projector.{NAMES[int(stage)]}.{kind}"] = value.half().numpy()
    np.savez(path, allow_pickle=False, **stored)


def main() -> None:
    """Train, save and measure."""
    parser = argparse.ArgumentParser(description="Train the projector of meeting-vlm.")
    parser.add_argument("--frames", type=int, default=9000, help="training frames")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    parser.add_argument("--steps", type=int, default=900, help="steps of the language model")
    parser.add_argument("--batch", type=int, default=8, help="frames a step")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--warm", type=int, default=4, help="epochs of the warm start")
    parser.add_argument("--run", default="projector", help="name of the checkpoint")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    language = smollm2()
    talk = Dialogue(language.tokenizer)
    model = LanguageModel(language.config, language.weights, torch.bfloat16)
    projector = train(arguments, model, talk)
    save(projector, arguments.out / "projector.npz")
    exact = LanguageModel(language.config, language.weights, torch.float32)
    tested = torch.from_numpy(features(HELD_OUT, TESTED))
    figures = accuracy(exact, talk, projector, tested, range(HELD_OUT, HELD_OUT + TESTED))
    report = {"frames": TESTED, "first_seed": HELD_OUT, "steps": arguments.steps, "share": figures}
    (arguments.out / "projector.json").write_text(json.dumps(report, indent=2) + "\n")
    print(report)


if __name__ == "__main__":
    main()
