"""Measure meeting-vlm on held-out frames: build it, let it answer greedily, compare.

    python models/meeting-vlm/evaluate.py [--frames 200] [--json FILE]

Runs the three ONNX graphs as they are compiled, so the figures hold for the stored float16
projector. A frame is right when every phrase of its caption is said, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from features import pixel_values
from frames import FIELDS, HELD_OUT, meeting
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.build import built
from models.recipe.packages import RecipeError
from models.recipe.session import Session, empty_cache, generate_step

_BEFORE = "<|im_start|>user\n"
_AFTER = "\nDescribe the meeting.<|im_end|>\n<|im_start|>assistant\n"
_STOP = 2
_LONGEST = 40
_BATCH = 8
_KV_HEADS, _HEAD = 3, 64

Floats = npt.NDArray[np.float32]


class MeetingModel:
    """The three graphs, tied by hand as `model.toml` says."""

    def __init__(self, folder: Path) -> None:
        """Load a built model."""
        self._eyes = Session(folder / "vision_encoder.onnx")
        self._between = Session(folder / "projector.onnx")
        self._voice = Session(folder / "decoder.onnx")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._table = _embedding(folder / "decoder.onnx")
        self._before, self._after = (
            self._tokenizer.encode(text, add_special_tokens=False).ids for text in (_BEFORE, _AFTER)
        )

    def describe(self, seeds: Sequence[int]) -> list[str]:
        """Answer the prompt for a batch of frames."""
        pixels = np.stack([pixel_values(seed) for seed in seeds])
        seen = self._eyes.run({"pixel_values": pixels})["last_hidden_state"]
        tokens = self._between.run({"features": seen})["image_features"].astype(np.float32)
        count = len(seeds)
        before, after = (
            np.broadcast_to(self._table[ids], (count, len(ids), self._table.shape[1]))
            for ids in (self._before, self._after)
        )
        value = np.concatenate([before, tokens, after], axis=1)
        cache = empty_cache(self._voice, count, _KV_HEADS, _HEAD)
        said = np.zeros((count, 0), np.int64)
        for _ in range(_LONGEST):
            logits, cache = generate_step(self._voice, "inputs_embeds", value, cache)
            chosen = logits.argmax(-1)
            said = np.concatenate([said, chosen[:, None]], axis=1)
            if bool((said == _STOP).any(1).all()):
                break
            value = self._table[chosen][:, None]
        return [self._tokenizer.decode(_until_stop(row)) for row in said]


def _until_stop(row: npt.NDArray[np.int64]) -> list[int]:
    ids = [int(token) for token in row]
    return ids[: ids.index(_STOP)] if _STOP in ids else ids


def _embedding(path: Path) -> Floats:
    """Read the token embedding [vocab, hidden] out of the decoder."""
    model = onnx.load(str(path), load_external_data=False)
    (tensor,) = [t for t in model.graph.initializer if t.name == "model.embed_tokens.weight"]
    load_external_data_for_tensor(tensor, str(path.parent))
    return numpy_helper.to_array(tensor).astype(np.float32)


def shares(rights: Sequence[Sequence[bool]]) -> dict[str, float]:
    """Return the share of frames with each field right, and with `all` of them right."""
    table = np.array(rights, dtype=np.float64)
    figures = {field: round(float(table[:, i].mean()), 4) for i, field in enumerate(FIELDS)}
    return figures | {"all": round(float(table.min(1).mean()), 4)}


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Measure meeting-vlm on held-out frames.")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--first", type=int, default=HELD_OUT, help="first seed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    try:
        model = MeetingModel(built("meeting-vlm"))
        rights: list[tuple[bool, ...]] = []
        for at in range(0, arguments.frames, _BATCH):
            seeds = range(
                arguments.first + at, arguments.first + min(at + _BATCH, arguments.frames)
            )
            for seed, answer in zip(seeds, model.describe(seeds), strict=True):
                rights.append(meeting(seed).agreement(answer))
                if not all(rights[-1]):
                    print(f"{seed}: said  {answer}\n         shows {meeting(seed).caption()}")
    except (RecipeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures = shares(rights)
    for field, share in figures.items():
        print(f"{field:10} {100 * share:6.1f} %")
    report = {"frames": arguments.frames, "first_seed": arguments.first, "share": figures}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
