"""Pixels and sound against independent computations."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mllm_compiler.errors import CompileError
from mllm_compiler.generation.features import log_mel, log_mel_of, mel_filters, pixels_of, read_wave
from mllm_compiler.generation.settings import AudioSettings, ImageSettings

IMAGE = ImageSettings(size=(8, 6), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
AUDIO = AudioSettings(rate=16000, n_fft=400, hop=160, mels=80, window_s=1)


def test_a_plain_picture_keeps_its_colour(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10), (255, 51, 0)).save(tmp_path / "p.png")
    pixels = pixels_of(tmp_path / "p.png", IMAGE)
    assert pixels.shape == (1, 3, 8, 6)
    for channel, value in enumerate((2.5, (0.2 - 0.4) / 0.3, -0.75)):
        np.testing.assert_allclose(pixels[0, channel], value, rtol=1e-6)


def test_cropping_keeps_the_middle(tmp_path: Path) -> None:
    wide = np.zeros((8, 18, 3), np.uint8)
    wide[:, 6:12] = 255
    Image.fromarray(wide).save(tmp_path / "p.png")
    settings = ImageSettings(size=(8, 6), mean=(0.0,) * 3, std=(1.0,) * 3, fit="crop")
    assert pixels_of(tmp_path / "p.png", settings)[0].min() > 0.9


def test_mel_filters_are_slaneys() -> None:
    filters = mel_filters(AUDIO)
    assert filters.shape == (80, 201)
    centres = filters.argmax(axis=1) * 40
    assert centres[0] == 40
    assert np.all(np.diff(centres) >= 0)
    low = filters[10]
    np.testing.assert_allclose(low.sum() * 40, 1.0, rtol=0.05)


def test_a_tone_is_loud_in_its_band_alone() -> None:
    samples = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    spectrum = log_mel(samples, AUDIO)[0]
    assert spectrum.shape == (80, 100)
    loudest = spectrum[:, 50].argmax()
    assert abs(mel_filters(AUDIO)[loudest].argmax() * 40 - 1000) <= 40
    assert spectrum.max() - spectrum.min() == pytest.approx(2.0, abs=1e-6)


def test_short_sound_is_followed_by_silence(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "s.wav"), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(np.full((1600, 2), (16384, 0), np.int16).tobytes())
    samples, rate = read_wave(tmp_path / "s.wav")
    assert (rate, len(samples), samples[0]) == (16000, 1600, 0.25)
    assert log_mel_of(tmp_path / "s.wav", AUDIO).shape == (1, 80, 100)


def test_a_frame_that_is_cut_short_is_left_out(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "s.wav"), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(np.full((16, 2), 16384, np.int16).tobytes())
    whole = (tmp_path / "s.wav").read_bytes()
    for cut in range(1, 8):
        (tmp_path / "s.wav").write_bytes(whole[:-cut])
        samples, _ = read_wave(tmp_path / "s.wav")
        assert samples.tolist() == [0.5] * (16 - (cut + 3) // 4)


@pytest.mark.parametrize("raw", [b"", b"RIFF", b"\x89PNG\r\n\x1a\n", b"P6 9 9 255\n"])
def test_what_is_no_picture_or_sound_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(CompileError) as caught:
        pixels_of(path, IMAGE)
    assert caught.value.code == "MLC-X023"
    with pytest.raises(CompileError) as caught:
        log_mel_of(path, AUDIO)
    assert caught.value.code == "MLC-X024"
