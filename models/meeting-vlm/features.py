"""Encoder features of frames, computed once and kept in the cache.

A frame of 224x224 becomes 16x16 patch tokens of 384; each 2x2 of them is folded into one token,
so that a frame is [64, 1536] float16.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from frames import frame

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.build import built
from models.recipe.packages import cache_root
from models.recipe.session import Session

Features = npt.NDArray[np.float16]
CHUNK = 250
_BATCH = 10
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_STD = np.array([0.229, 0.224, 0.225], np.float32)


def pixel_values(seed: int) -> npt.NDArray[np.float32]:
    """Return a frame as the encoder takes it: [3, 224, 224] float32."""
    pixels = np.asarray(frame(seed), np.float32) / 255
    return ((pixels - _MEAN) / _STD).transpose(2, 0, 1).astype(np.float32)


def fold(hidden: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Fold [n, 257, 384] (class token dropped) into [n, 64, 1536]."""
    cells = hidden[:, 1:].reshape(-1, 8, 2, 8, 2, 384)
    return cells.transpose(0, 1, 3, 2, 4, 5).reshape(-1, 64, 1536)


def features(start: int, count: int, threads: int = 2) -> Features:
    """Return the features of consecutive seeds, [count, 64, 1536]; chunks are kept on disk."""
    folder = cache_root() / "features" / _frames_digest()
    folder.mkdir(parents=True, exist_ok=True)
    chunks: list[Features] = []
    for first in range(start, start + count, CHUNK):
        path = folder / f"{first}.npy"
        if not path.exists():
            part = path.with_suffix(".part.npy")
            np.save(part, _compute(range(first, first + CHUNK), threads))
            part.rename(path)
            print(f"features of frames {first}..{first + CHUNK - 1}", flush=True)
        chunks.append(np.load(path))
    return np.concatenate(chunks)[:count]


def _compute(seeds: Sequence[int], threads: int) -> Features:
    """Draw frames and run the encoder over them."""
    encoder = Session(built("dinov2-s14") / "vision_encoder.onnx", threads)
    parts: list[Features] = []
    for at in range(0, len(seeds), _BATCH):
        batch = np.stack([pixel_values(seed) for seed in seeds[at : at + _BATCH]])
        hidden = encoder.run({"pixel_values": batch})["last_hidden_state"].astype(np.float32)
        parts.append(fold(hidden).astype(np.float16))
    return np.concatenate(parts)


def _frames_digest() -> str:
    """Return a name for what `frames.py` draws, from the pixels of a few frames."""
    digest = hashlib.sha256()
    for seed in (*range(8), 1_000_000, 1_000_001):
        digest.update(frame(seed).tobytes())
    return digest.hexdigest()[:12]
