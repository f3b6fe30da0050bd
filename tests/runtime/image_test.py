"""Resizing against Pillow, normalising against NumPy, and the two file formats."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from runtime_stub.library import CData
from tests.runtime.internals import Internals

Pixels = NDArray[np.uint8]
SIDES = st.integers(1, 70)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def frame_of(c: Internals, pixels: Pixels) -> CData:
    return c.ffi.new(
        "mllm_frame *",
        c.lib.mllm_frame_rgb(c.ffi.from_buffer("uint8_t *", pixels), *pixels.shape[1::-1]),
    )


def prepared(c: Internals, frame: CData, config: CData) -> NDArray[np.float32]:
    out = np.empty((3, config.height, config.width), np.float32)
    pointer = c.ffi.cast("float *", out.ctypes.data)
    assert c.lib.mllm_image_prepare(frame, config, pointer, c.ffi.NULL) == 0
    return out


def resize(c: Internals, pixels: Pixels, width: int, height: int) -> Pixels:
    """A picture that is neither cropped nor normalised, in whole levels again."""
    config = c.ffi.new("mllm_image_config *", {"width": width, "height": height})
    config.mean, config.std = (0, 0, 0), (1, 1, 1)
    out = 255 * prepared(c, frame_of(c, pixels), config).transpose(1, 2, 0)
    assert np.abs(out - np.rint(out)).max() < 1e-4
    return np.rint(out).astype(np.uint8)


def pillow(pixels: Pixels, width: int, height: int) -> Pixels:
    """Across, then down: the order of the two passes differs between versions of Pillow."""
    across = Image.fromarray(pixels).resize((width, pixels.shape[0]), Image.Resampling.BICUBIC)
    return np.asarray(across.resize((width, height), Image.Resampling.BICUBIC))


@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_resizes_bit_for_bit(
    internals: Internals, width: int, height: int, wide: int, high: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if seed % 2:
        pixels = np.where(pixels > 127, 255, 0).astype(np.uint8)  # the worst overshoot
    assert np.array_equal(resize(internals, pixels, wide, high), pillow(pixels, wide, high))


def test_a_picture_is_within_a_grey_level_of_pillow(internals: Internals) -> None:
    y, x = np.mgrid[0:300, 0:400].astype(np.float32)
    waves = [np.sin(x / 17 + c) * np.cos(y / 23 - c) for c in range(3)]
    pixels = np.ascontiguousarray(127 + 120 * np.stack(waves, -1)).astype(np.uint8)
    direct = Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC)
    off = np.abs(resize(internals, pixels, 224, 224).astype(int) - np.asarray(direct))
    assert off.max() <= 1


@pytest.mark.parametrize("fit", [0, 1])
def test_prepares_as_numpy_does(internals: Internals, fit: int) -> None:
    c, rng = internals, np.random.default_rng(3)
    pixels = rng.integers(0, 256, (45, 90, 3), dtype=np.uint8)
    config = c.ffi.new("mllm_image_config *", {"width": 32, "height": 28, "fit": fit})
    config.mean, config.std = MEAN, STD
    out = prepared(c, frame_of(c, pixels), config)
    # crop: the height fits, so the width becomes 90 * 28 / 45 = 56, and 12 columns go on each side
    sized = pillow(pixels, 56, 28)[:, 12:44] if fit else pillow(pixels, 32, 28)
    expected = (sized.astype(np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    np.testing.assert_allclose(out, expected.transpose(2, 0, 1), rtol=1e-6, atol=1e-6)


def ppm(pixels: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "ppm")
    return out.getvalue()


def npy(array: NDArray[np.generic]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def parse(c: Internals, raw: bytes) -> Pixels:
    image, error = c.ffi.new("mllm_frame *"), c.ffi.new("mllm_error *")
    held = c.ffi.from_buffer(raw)
    if c.lib.mllm_image_parse(held, len(raw), image, error):
        raise ValueError(c.ffi.string(error.message).decode())
    flat = np.frombuffer(c.ffi.buffer(image.planes[0], image.height * image.width * 3), np.uint8)
    return flat.reshape(image.height, image.width, 3).copy()


@pytest.mark.parametrize("write", [ppm, npy])
def test_reads_both_formats(internals: Internals, write: object) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    raw = write(pixels)  # type: ignore[operator]
    assert np.array_equal(parse(internals, raw), pixels)
    for size in range(len(raw)):
        with pytest.raises(ValueError, match=r"."):
            parse(internals, raw[:size])


def test_reads_comments_in_a_ppm(internals: Internals) -> None:
    assert parse(internals, b"P6 # a\n1\n#b\n 2 255\nabcdef").tobytes() == b"abcdef"


REFUSED: Sequence[tuple[bytes, str]] = [
    (b"P5 1 1 255 a", "neither"),
    (b"P6 1 1 65535 ab", "levels"),
    (b"P6 99999 1 255 a", "too large"),
    (npy(np.zeros((2, 2, 3), np.float32)), "not uint8"),
    (npy(np.zeros((2, 2, 4), np.uint8)), "shape"),
    (npy(np.asfortranarray(np.zeros((2, 3, 3), np.uint8))), "Fortran"),
]


@pytest.mark.parametrize(("raw", "why"), REFUSED)
def test_refuses_other_files(internals: Internals, raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(internals, raw)
