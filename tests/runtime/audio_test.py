"""WAV files, resampling and log-mel features against NumPy."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.internals import Internals

RATE, N_FFT, HOP, MELS, FRAMES = 16000, 400, 160, 80, 3000
Samples = NDArray[np.float32]


def mel_filters() -> NDArray[np.float64]:
    """Slaney's scale and norm, as librosa computes them."""

    def mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
        log = 15 + np.log(np.maximum(hertz, 1) / 1000) * 27 / np.log(6.4)
        return np.where(hertz >= 1000, log, hertz * 3 / 200)

    def hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(mel >= 15, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)), mel * 200 / 3)

    bins = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    points = hertz(np.linspace(0, mel(np.array(RATE / 2)), MELS + 2))
    steps, ramps = np.diff(points), points[:, None] - bins
    triangles = np.minimum(-ramps[:-2] / steps[:-1, None], ramps[2:] / steps[1:, None])
    return np.maximum(0, triangles) * (2 / (points[2:] - points[:-2]))[:, None]


def log_mel(samples: Samples) -> NDArray[np.float64]:
    padded = np.pad(samples.astype(np.float64), N_FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP]
    spectrum = np.fft.rfft(frames * np.hanning(N_FFT + 1)[:-1], axis=1)[:-1]
    mel = np.log10(np.maximum(mel_filters() @ (np.abs(spectrum) ** 2).T, 1e-10))
    return (np.maximum(mel, mel.max() - 8) + 4) / 4


@pytest.mark.parametrize("length", [0, 5, 50_000, 480_000])
def test_log_mel_is_that_of_numpy(internals: Internals, length: int) -> None:
    c, rng = internals, np.random.default_rng(length)
    samples = np.zeros(FRAMES * HOP, np.float32)
    tone = 0.3 * np.sin(np.arange(length) * 0.17) + 0.05 * rng.standard_normal(length)
    samples[:length] = tone
    config = c.ffi.new("mllm_audio_config *", [RATE, N_FFT, HOP, MELS, FRAMES])
    out = np.empty((MELS, FRAMES), np.float32)
    given, made = (c.ffi.cast("float *", a.ctypes.data) for a in (samples, out))
    assert c.lib.mllm_log_mel(config, given, made, c.ffi.NULL) == 0
    np.testing.assert_allclose(out, log_mel(samples), atol=1e-5)


def wav(pcm: NDArray[np.int16], rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(pcm.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.astype("<i2").tobytes())
    return out.getvalue()


def read(c: Internals, raw: bytes, extra: int = 0) -> Samples:
    parsed, error = c.ffi.new("mllm_wav *"), c.ffi.new("mllm_error *")
    held = c.ffi.from_buffer(raw)
    if c.lib.mllm_wav_parse(held, len(raw), parsed, error):
        raise ValueError(c.ffi.string(error.message).decode())
    count = c.lib.mllm_resampled_frames(parsed.frames, parsed.rate, RATE) + extra
    out = np.empty(count, np.float32)
    c.lib.mllm_wav_read(parsed, RATE, c.ffi.cast("float *", out.ctypes.data), count)
    return out


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_is_mixed_and_resampled(internals: Internals, rate: int, channels: int) -> None:
    pcm = np.random.default_rng(0).integers(-32768, 32768, (2001, channels)).astype(np.int16)
    mono = (pcm.astype(np.float32) / 32768).mean(1)
    at = np.arange(int(len(mono) * RATE / rate)) * rate / RATE
    expected = np.interp(at, np.arange(len(mono)), mono)
    out = read(internals, wav(pcm, rate), extra=3)
    np.testing.assert_allclose(out[:-3], expected, atol=1e-6)
    assert not out[-3:].any()


def test_a_wav_is_refused_or_read_wherever_it_is_cut(internals: Internals) -> None:
    raw = wav(np.ones((20, 1), np.int16), RATE)
    for size in range(44):
        with pytest.raises(ValueError, match="WAV"):
            read(internals, raw[:size])
    assert len(read(internals, raw[:50])) == 3


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [(20, 3, "16-bit PCM"), (34, 24, "16-bit PCM"), (22, 3, "two channels"), (24, 0, "rate")],
)
def test_refuses_other_sound(internals: Internals, at: int, value: int, why: str) -> None:
    raw = bytearray(wav(np.ones((20, 1), np.int16), RATE))
    raw[at : at + 2] = value.to_bytes(2, "little")
    with pytest.raises(ValueError, match=why):
        read(internals, bytes(raw))
