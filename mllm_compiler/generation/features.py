"""Pixels and sound as the tensors that encoders take."""

from __future__ import annotations

import wave
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mllm_compiler.bundle.files import reading
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.settings import AudioSettings, ImageSettings

Array = NDArray[np.float32]


def pixels_of(path: Path, settings: ImageSettings) -> Array:
    """[1, 3, height, width]: resized (bicubic), then (value / 255 - mean) / std.

    Raises:
        CompileError: It is no picture, or cannot be read.
    """
    picture = open_picture(path)
    height, width = settings.size
    wide, high = width, height
    if settings.fit == "crop":
        scale = max(width / picture.width, height / picture.height)
        wide = max(width, int(picture.width * scale + 1e-6))
        high = max(height, int(picture.height * scale + 1e-6))
    resized = picture.resize((wide, high), Image.Resampling.BICUBIC)
    left, top = (wide - width) // 2, (high - height) // 2
    values = np.asarray(resized, np.float32)[top : top + height, left : left + width] / 255
    mean, std = np.array(settings.mean, np.float32), np.array(settings.std, np.float32)
    return ((values - mean) / std).transpose(2, 0, 1)[None].astype(np.float32, order="C")


def open_picture(path: Path) -> Image.Image:
    """A picture in RGB.

    Raises:
        CompileError: `MLC-X023`, the file is no picture; `MLC-U005`, it cannot be read.
    """
    with reading(path):
        source = BytesIO(path.read_bytes())
    try:
        return Image.open(source).convert("RGB")
    except UnidentifiedImageError as fault:
        raise _unreadable("MLC-X023", path, "not a picture that can be read") from fault
    except Exception as fault:  # the decoder of a damaged picture raises whatever it met
        raise _unreadable("MLC-X023", path, f"the picture is damaged: {fault}") from fault


def log_mel_of(path: Path, settings: AudioSettings) -> Array:
    """[1, mels, frames]: Whisper's log-mel spectrogram of the first window of a WAV file.

    Raises:
        CompileError: `MLC-X024`, no 16-bit WAV file of the model's rate.
    """
    samples, rate = read_wave(path)
    if rate != settings.rate:
        raise _unreadable("MLC-X024", path, f"{rate} Hz, the model takes {settings.rate} Hz")
    length = settings.frames * settings.hop
    padded = np.zeros(length, np.float64)
    padded[: min(length, len(samples))] = samples[:length]
    return log_mel(padded, settings)


def read_wave(path: Path) -> tuple[Array, int]:
    """The samples of a WAV file, mono, -1 to 1, and their rate.

    Raises:
        CompileError: `MLC-X024`, no 16-bit WAV file of one or two channels; `MLC-U005`, it cannot
            be read.
    """
    with reading(path):
        try:
            with wave.open(str(path), "rb") as sound:
                width, channels = sound.getsampwidth(), sound.getnchannels()
                rate, raw = sound.getframerate(), sound.readframes(sound.getnframes())
        except (wave.Error, EOFError) as fault:
            raise _unreadable("MLC-X024", path, "not a WAV file") from fault
    if width != 2:
        raise _unreadable("MLC-X024", path, f"{8 * width} bits a sample where 16 are read")
    if channels > 2:
        raise _unreadable("MLC-X024", path, f"{channels} channels where one or two are read")
    whole = len(raw) // (2 * channels) * channels
    frames = np.frombuffer(raw, "<i2", whole).reshape(-1, channels)
    return (frames.mean(axis=1) / 32768.0).astype(np.float32), rate


def log_mel(samples: NDArray[np.float64], settings: AudioSettings) -> Array:
    """The spectrogram of a whole window."""
    half = settings.n_fft // 2
    around = np.pad(samples, half, mode="reflect")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(settings.n_fft) / settings.n_fft)
    starts = np.arange(settings.frames) * settings.hop
    frames = around[starts[:, None] + np.arange(settings.n_fft)] * hann
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    mel = mel_filters(settings) @ power.T
    log = np.log10(np.maximum(mel, 1e-10))
    log = np.maximum(log, log.max() - 8.0)
    return ((log + 4.0) / 4.0).astype(np.float32)[None]


def mel_filters(settings: AudioSettings) -> NDArray[np.float64]:
    """[mels, n_fft / 2 + 1]: triangles of equal area on Slaney's mel scale."""
    bins = np.linspace(0, settings.rate / 2, settings.n_fft // 2 + 1)
    top = _mel(settings.rate / 2)
    edges = _hertz(np.linspace(0, top, settings.mels + 2))
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    return np.maximum(0, np.minimum(rising, falling)) * area[:, None]


def _mel(hertz: float) -> float:
    return 15 + 27 * np.log(hertz / 1000) / np.log(6.4) if hertz >= 1000 else 3 * hertz / 200


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel >= 15, 1000 * np.exp((mel - 15) * np.log(6.4) / 27), mel * 200 / 3)


def _unreadable(code: str, path: Path, message: str) -> CompileError:
    remedy = {
        "MLC-X023": "give a PNG, JPEG or PPM picture",
        "MLC-X024": "give a 16-bit PCM WAV file, one or two channels, of the model's rate",
    }[code]
    return CompileError(code, message, location=str(path), remedy=remedy)
