"""Public-domain speech for checks: LibriVox clips out of a Debian package, and log-mel features."""

from __future__ import annotations

import re
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.recipe.packages import DebianPackage, fetch_debian

CLIPS = DebianPackage(
    name="pocketsphinx-testdata",
    sha256="eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
)
_FOLDER = "usr/share/pocketsphinx/test/data/librivox"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Clip:
    """A recording of 16 kHz, one channel, and what is said in it (lower case, no punctuation)."""

    path: Path
    transcript: str


def clips() -> list[Clip]:
    """Return the five LibriVox clips, 24.7 s together, sorted by name."""
    folder = fetch_debian(CLIPS) / _FOLDER
    lines = (folder / "transcription").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\((\S+)\)", line) for line in lines]
    pairs = sorted((match[2], match[1]) for match in found if match is not None)
    return [Clip(folder / f"{name}.wav", said) for name, said in pairs]


def samples(path: Path) -> Floats:
    """Return the samples of a 16-bit mono file, in [-1, 1)."""
    with wave.open(str(path)) as file:
        raw = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return raw.astype(np.float32) / np.float32(32768)


def log_mel(sound: Floats, *, mels: int = 80, rate: int = 16000, window_s: int = 30) -> Floats:
    """Return Whisper's features of a window, [1, mels, 100 * window_s]: cut or padded to it."""
    n_fft, hop = 400, 160
    length = rate * window_s
    padded = np.pad(sound[:length], (0, max(0, length - len(sound))))
    padded = np.pad(padded, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop][:-1]
    power = np.abs(np.fft.rfft(frames * np.hanning(n_fft + 1)[:-1], axis=1)) ** 2
    levels = np.log10(np.maximum(mel_filters(mels, rate, n_fft) @ power.T, 1e-10))
    levels = np.maximum(levels, levels.max() - 8)
    return ((levels + 4) / 4).astype(np.float32)[None]


def mel_filters(mels: int, rate: int, n_fft: int) -> npt.NDArray[np.float64]:
    """Return triangular filters [mels, n_fft / 2 + 1] on Slaney's scale, each of area one."""
    frequencies = np.linspace(0, rate / 2, n_fft // 2 + 1)
    edges = _mel_to_hertz(np.linspace(0, _hertz_to_mel(rate / 2), mels + 2))
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return triangles * (2 / (edges[2:] - edges[:-2]))[:, None]


def _hertz_to_mel(hertz: float) -> float:
    """Linear up to 1 kHz, logarithmic above (Slaney 1998)."""
    return 15 + float(np.log(hertz / 1000)) * 27 / float(np.log(6.4))


def _mel_to_hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mel >= 15, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)), mel * 200 / 3)
