"""Speech with its words: five LibriVox clips, and the opening of A Tale of Two Cities.

All of it is in the public domain: read from the books of Jane Austen (24.7 s) and Charles Dickens
(44 s, cut into two windows at a pause). What is calibrated on is other speech: nine short sounds,
and nine half minutes of meetings out of the AMI corpus (CC BY 4.0), which pyannote.audio is tested
with.
"""

from __future__ import annotations

import io
import shutil
import wave
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.io import wavfile

from models.recipe.packages import (
    Sdist,
    Wheel,
    fetch_debian,
    fetch_sdist,
    fetch_wheel,
    read_members,
)
from models.recipe.speech import CLIPS, clips

Array = np.ndarray[Any, np.dtype[np.float64]]

MOONSHINE = Wheel(
    name="moonshine-voice",
    version="0.1.5",
    sha256="1ed9e0ccf94be4845d69e7fa862dcf4c8b5801a758796966494c694f48184496",
    platform="manylinux_2_34_x86_64",
)
OTHERS = ("beckett", "clone-test", "endgame_nagg_nell")
"""What else it has where somebody speaks."""

PYANNOTE = Sdist(
    name="pyannote-audio",
    version="4.0.7",
    sha256="3a903dfb5ca711d134cc2522561c9158b186836f5d62e8a57c46c6648e8a8229",
)
MEETINGS = [f"trn0{number}" for number in range(1, 10)]
"""Its clips that a recogniser may be trained on."""

RATE = 16000
PAUSE_S = 28.66
"""Between `the other way` and `in short`."""

AUSTEN = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his "
    "power to do for them.",
    "He was not an ill-disposed young man,",
    "unless to be rather cold-hearted and rather selfish is to be ill-disposed.",
    "Had he married a more amiable woman, he might have been made still more respectable than he "
    "was.",
    "He might even have been made amiable himself.",
)
"""What the clips say, in their order, written as the book writes it."""

DICKENS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season of Light, it was the season of Darkness, it was the spring of hope, it was the winter "
    "of despair, we had everything before us, we had nothing before us, we were all going direct "
    "to Heaven, we were all going direct the other way",
    "in short, the period was so far like the present period, that some of its noisiest "
    "authorities insisted on its being received, for good or for evil, in the superlative degree "
    "of comparison only.",
)


def spoken(folder: Path) -> Path:
    """A new folder of seven sounds of 16 kHz, `NAME.wav`, and their words, `NAME.txt`."""
    folder.mkdir()
    for clip, said in zip(clips(), AUSTEN, strict=True):
        shutil.copy(clip.path, folder)
        (folder / clip.path.with_suffix(".txt").name).write_text(said, encoding="utf-8")
    (raw,) = read_members(fetch_wheel(MOONSHINE), "moonshine_voice/assets/two_cities.wav")
    sound, cut = resampled(raw), int(PAUSE_S * RATE)
    for number, (part, said) in enumerate(zip((sound[:cut], sound[cut:]), DICKENS, strict=True)):
        write_wave(folder / f"two_cities_{number}.wav", part)
        (folder / f"two_cities_{number}.txt").write_text(said, encoding="utf-8")
    return folder


def other_sounds(folder: Path) -> Path:
    """A new folder of nine sounds to calibrate on: none of them, nor their voices, is scored."""
    folder.mkdir()
    names = [f"moonshine_voice/assets/{name}.wav" for name in OTHERS]
    for name, raw in zip(OTHERS, read_members(fetch_wheel(MOONSHINE), *names), strict=True):
        write_wave(folder / f"{name}.wav", resampled(raw))
    place = fetch_debian(CLIPS) / "usr/share/pocketsphinx/test/data"
    for card in sorted((place / "cards").glob("*.wav")):
        shutil.copy(card, folder / f"card_{card.name}")
    raw = (place / "goforward.raw").read_bytes()
    write_wave(folder / "goforward.wav", np.frombuffer(raw, "<i2").astype(np.float64))
    return folder


def meetings(folder: Path) -> Path:
    """Adds half minutes of meetings, by several voices each, to a folder."""
    names = [f"pyannote_audio-{PYANNOTE.version}/tests/data/{name}.wav" for name in MEETINGS]
    for name, raw in zip(MEETINGS, read_members(fetch_sdist(PYANNOTE), *names), strict=True):
        rate, sound = cast("tuple[int, Array]", wavfile.read(io.BytesIO(raw)))
        assert rate == RATE
        write_wave(folder / f"{name}.wav", sound * 32768.0)
    return folder


def resampled(raw: bytes) -> Array:
    """The samples of a 16-bit mono file at 16 kHz: its spectrum, cut off there."""
    with wave.open(io.BytesIO(raw)) as file:
        rate = file.getframerate()
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)
    count = len(sound) * RATE // rate
    return np.fft.irfft(np.fft.rfft(sound)[: count // 2 + 1], count) * (count / len(sound))


def write_wave(path: Path, sound: Array) -> None:
    """Writes samples, in steps of 16 bits, as a mono file of 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.clip(np.round(sound), -32768, 32767).astype("<i2").tobytes())
