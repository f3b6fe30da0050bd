"""Drawn frames of video meetings, with captions that name every attribute of them.

    python models/meeting-vlm/frames.py --seed 1000000 --out frame.png

writes one frame of 224x224 pixels (PNG or PPM, by the name) and prints its caption. A seed gives
the same frame always. Seeds from 1,000,000 on are held out: training never sees them, nor the
photos that are shared in them.
"""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.recipe.packages import RecipeError, Wheel, fetch_wheel, read_members

SIZE = 224
HELD_OUT = 1_000_000
NUMBERS = ("One", "Two", "Three", "Four", "Five", "Six")
SHARED = ("nothing", "a slide", "a chart", "a photo")
FIELDS = ("people", "speaking", "shared", "hand", "muted", "light")

_SCALE = 2  # drawn larger, then reduced, for smooth edges
_PHOTOS = Wheel(
    name="scikit-image",
    version="0.26.0",
    sha256="74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    platform="manylinux_2_28_x86_64",
)
_PHOTO_NAMES = (
    *("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg"),
    *("motorcycle_left.png", "camera.png", "hubble_deep_field.jpg"),
)
_HELD_OUT_PHOTOS = Wheel(
    name="scikit-learn",
    version="1.7.2",
    sha256="89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
    platform="manylinux2014_x86_64",
)
_HELD_OUT_NAMES = ("china.jpg", "flower.jpg")
_SKINS = ((240, 205, 175), (222, 178, 140), (190, 140, 105), (140, 95, 65), (95, 65, 45))
_AMBER, _RED, _GREEN = (255, 190, 20), (225, 30, 45), (50, 235, 90)

Box = tuple[float, float, float, float]
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Meeting:
    """What a frame shows; the caption says all of it.

    Attributes:
        people: Number of participants, 1 to 6.
        speaking: Someone has a green border.
        shared: One of `SHARED`.
        hand: Someone's hand is raised.
        muted: Someone has a red microphone badge.
        light: The participants' cameras see well.
    """

    people: int
    speaking: bool
    shared: str
    hand: bool
    muted: bool
    light: bool

    def phrases(self) -> tuple[str, str, str, str, str, str]:
        """Return the caption's phrases, in the order of `FIELDS`."""
        return (
            f"{NUMBERS[self.people - 1]} {'person' if self.people == 1 else 'people'}",
            f"{'one' if self.speaking else 'nobody'} speaking",
            f"{self.shared} shared",
            f"{'a' if self.hand else 'no'} hand raised",
            f"{'one' if self.muted else 'nobody'} muted",
            f"{'good' if self.light else 'poor'} light",
        )

    def caption(self) -> str:
        """Return the caption, one sentence of fixed grammar."""
        return ", ".join(self.phrases()) + "."

    def agreement(self, answer: str) -> tuple[bool, ...]:
        """Say for each of `FIELDS` whether an answer has the caption's phrase in its place."""
        said, true = parse_caption(answer), self.phrases()
        return tuple(len(said) == len(true) and said[i] == phrase for i, phrase in enumerate(true))


def parse_caption(text: str) -> tuple[str, ...]:
    """Return the phrases of a caption; as many as it has, in its order."""
    return tuple(phrase.strip() for phrase in text.strip().removesuffix(".").split(","))


def meeting(seed: int) -> Meeting:
    """Return what the frame of a seed shows."""
    return _draw_meeting(np.random.default_rng(seed))


def frame(seed: int) -> Image.Image:
    """Return the frame of a seed, RGB, 224x224."""
    random = np.random.default_rng(seed)
    shown = _draw_meeting(random)
    side = SIZE * _SCALE
    image = Image.new("RGB", (side, side), _colour(random, 14, 30))
    area: Box = (0, 0, side, side)
    if shown.shared != "nothing":
        edge = side * 0.49
        _draw_shared(image, (10, 8, side - 10, edge - 4), shown.shared, random, seed >= HELD_OUT)
        area = (0, edge, side, side)
    _draw_people(image, area, shown, random)
    pixels = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.LANCZOS), np.float32)
    noisy = pixels + random.normal(0, 3, pixels.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _draw_meeting(random: np.random.Generator) -> Meeting:
    people = int(random.integers(1, 7))
    speaking, hand, muted, light = (bool(random.integers(2)) for _ in range(4))
    if people == 1 and speaking and muted:  # who speaks is not muted
        speaking, muted = (True, False) if random.integers(2) else (False, True)
    return Meeting(people, speaking, SHARED[random.integers(4)], hand, muted, light)


def _colour(random: np.random.Generator, low: int, high: int) -> Colour:
    red, green, blue = (int(v) for v in random.integers(low, high, 3))
    return red, green, blue


def _draw_shared(
    image: Image.Image, box: Box, shared: str, random: np.random.Generator, held_out: bool
) -> None:
    x0, y0, x1, y1 = (int(v) for v in box)
    if shared == "a photo":
        image.paste(_photo_crop((x1 - x0, y1 - y0), random, held_out), (x0, y0))
        return
    draw = ImageDraw.Draw(image)
    paper = int(random.integers(236, 256))
    draw.rectangle(box, fill=(paper, paper, paper - 4))
    if shared == "a slide":
        _draw_slide(draw, box, random)
    else:
        _draw_chart(draw, box, random)


def _draw_slide(draw: ImageDraw.ImageDraw, box: Box, random: np.random.Generator) -> None:
    """A title and four to six lines of text."""
    x0, y0, x1, y1 = box
    width, ink = x1 - x0, _colour(random, 20, 110)
    draw.rectangle((x0 + 20, y0 + 16, x0 + width * random.uniform(0.4, 0.8), y0 + 40), fill=ink)
    lines = int(random.integers(4, 7))
    pitch = (y1 - y0 - 64) / lines
    for line in range(lines):
        top = y0 + 58 + line * pitch
        draw.ellipse((x0 + 24, top, x0 + 34, top + 10), fill=ink)
        end = x0 + width * random.uniform(0.45, 0.95)
        draw.rectangle((x0 + 46, top, end, top + 10), fill=(90, 90, 96))


def _draw_chart(draw: ImageDraw.ImageDraw, box: Box, random: np.random.Generator) -> None:
    """Four to seven bars over an axis."""
    x0, y0, x1, y1 = box
    bars = int(random.integers(4, 8))
    pitch = (x1 - x0 - 60) / bars
    for bar in range(bars):
        left = x0 + 36 + bar * pitch
        top = y1 - 18 - (y1 - y0 - 40) * random.uniform(0.2, 1)
        draw.rectangle((left, top, left + pitch * 0.7, y1 - 18), fill=_colour(random, 30, 220))
    draw.line((x0 + 24, y1 - 18, x1 - 16, y1 - 18), fill=(30, 30, 30), width=4)
    draw.line((x0 + 24, y0 + 14, x0 + 24, y1 - 18), fill=(30, 30, 30), width=4)


@cache
def _photos(held_out: bool) -> tuple[Image.Image, ...]:
    """Return the photos of one of the two sets, read out of a package."""
    wheel, folder, names = (
        (_HELD_OUT_PHOTOS, "sklearn/datasets/images", _HELD_OUT_NAMES)
        if held_out
        else (_PHOTOS, "skimage/data", _PHOTO_NAMES)
    )
    members = read_members(fetch_wheel(wheel), *(f"{folder}/{name}" for name in names))
    return tuple(Image.open(io.BytesIO(member)).convert("RGB") for member in members)


def _photo_crop(size: tuple[int, int], random: np.random.Generator, held_out: bool) -> Image.Image:
    """Return a random crop of a random photo, perhaps mirrored, at the size wanted."""
    choices = _photos(held_out)
    photo = choices[random.integers(len(choices))]
    ratio = size[0] / size[1]
    width = min(photo.width, photo.height * ratio) * random.uniform(0.55, 1)
    height = width / ratio
    left = random.uniform(0, photo.width - width)
    top = random.uniform(0, photo.height - height)
    crop = photo.resize(size, Image.Resampling.BILINEAR, (left, top, left + width, top + height))
    if random.integers(2):
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return ImageEnhance.Color(crop).enhance(float(random.uniform(0.5, 1.2)))


def _draw_people(
    image: Image.Image, area: Box, shown: Meeting, random: np.random.Generator
) -> None:
    """Fill the area with one tile a participant, then mark who speaks, asks and is muted."""
    order = [int(v) for v in random.permutation(shown.people)]
    speaker = order[0] if shown.speaking else -1
    muted = order[-1] if shown.muted else -1
    asking = int(random.integers(shown.people)) if shown.hand else -1
    dim = 1.0 if shown.light else float(random.uniform(0.36, 0.5))
    for index, box in enumerate(_tiles(area, shown.people)):
        x0, y0, x1, y1 = (int(v) for v in box)
        tile = _person((x1 - x0, y1 - y0), index == asking, random)
        image.paste(ImageEnhance.Brightness(tile).enhance(dim), (x0, y0))
        draw = ImageDraw.Draw(image)
        badge = min(max(0.36 * min(x1 - x0, y1 - y0), 44), 80)
        if index == speaker:
            draw.rectangle((x0, y0, x1, y1), outline=_GREEN, width=9)
        if index == asking:
            _draw_hand(draw, x0 + 10, y0 + 10, badge, (255, 255, 255), _AMBER)
        if index == muted:
            _draw_mute(draw, x1 - 10 - badge, y1 - 10 - badge, badge)


def _tiles(area: Box, people: int) -> list[Box]:
    """Split an area into equal tiles with gaps: up to three in a row, rows centred."""
    x0, y0, x1, y1 = area
    wide = (x1 - x0) > 1.5 * (y1 - y0)
    columns = min(people, 3) if wide or people > 4 else (1 if people == 1 else 2)
    rows = -(-people // columns)
    width, height = (x1 - x0) / max(columns, 2 if wide else 1), (y1 - y0) / rows
    boxes: list[Box] = []
    for index in range(people):
        row = index // columns
        used = min(columns, people - row * columns)
        left = (x0 + x1 - used * width) / 2 + (index % columns) * width
        top = y0 + row * height
        boxes.append((left + 6, top + 6, left + width - 6, top + height - 6))
    return boxes


def _person(size: tuple[int, int], asking: bool, random: np.random.Generator) -> Image.Image:
    """Return a camera picture: a wall, shoulders, a face, perhaps an arm in the air."""
    width, height = size
    tile = Image.new("RGB", size, _colour(random, 100, 205))
    draw = ImageDraw.Draw(tile)
    skin = _SKINS[random.integers(len(_SKINS))]
    shirt, hair = _colour(random, 20, 230), _colour(random, 10, 100)
    unit = min(width, height) * random.uniform(0.2, 0.25)
    x, y = width * random.uniform(0.46, 0.54), height * random.uniform(0.42, 0.48)
    draw.ellipse((x - unit * 2, y + unit * 1.1, x + unit * 2, y + unit * 4), fill=shirt)
    draw.rectangle((x - unit * 0.4, y + unit * 0.6, x + unit * 0.4, y + unit * 1.4), fill=skin)
    draw.ellipse((x - unit, y - unit * 1.15, x + unit, y + unit * 1.1), fill=skin)
    draw.pieslice(
        (x - unit * 1.08, y - unit * 1.3, x + unit * 1.08, y + unit * 0.7), 180, 360, hair
    )
    for side in (-0.4, 0.4):
        eye = x + side * unit
        draw.ellipse((eye - unit * 0.13, y, eye + unit * 0.13, y + unit * 0.24), fill=(25, 20, 20))
    draw.arc(
        (x - unit * 0.4, y + unit * 0.3, x + unit * 0.4, y + unit * 0.8), 20, 160, (120, 40, 40), 3
    )
    if asking:
        arm = (x + unit * 1.45, y - unit * 0.3, x + unit * 2.0, y + unit * 3)
        draw.rectangle(arm, fill=shirt)
        _draw_hand(draw, x + unit * 1.05, y - unit * 1.6, unit * 1.4, skin, None)
    return tile


def _draw_hand(
    draw: ImageDraw.ImageDraw, x: float, y: float, side: float, ink: Colour, back: Colour | None
) -> None:
    """An open palm with fingers, on a badge where `back` is given."""
    if back is not None:
        draw.rounded_rectangle((x, y, x + side, y + side), side * 0.25, back)
    draw.ellipse((x + side * 0.26, y + side * 0.42, x + side * 0.72, y + side * 0.9), fill=ink)
    for finger, top in enumerate((0.24, 0.14, 0.16, 0.26)):
        left = x + side * (0.27 + 0.12 * finger)
        box = (left, y + side * top, left + side * 0.09, y + side * 0.65)
        draw.rounded_rectangle(box, side * 0.04, ink)
    draw.line(
        (x + side * 0.7, y + side * 0.7, x + side * 0.86, y + side * 0.46), ink, int(side * 0.1)
    )


def _draw_mute(draw: ImageDraw.ImageDraw, x: float, y: float, side: float) -> None:
    """A red disc with a white microphone, struck through."""
    white = (255, 255, 255)
    draw.ellipse((x, y, x + side, y + side), fill=_RED)
    mic = (x + side * 0.4, y + side * 0.2, x + side * 0.6, y + side * 0.58)
    draw.rounded_rectangle(mic, side * 0.1, white)
    cup = (x + side * 0.3, y + side * 0.3, x + side * 0.7, y + side * 0.7)
    draw.arc(cup, 20, 160, white, max(2, int(side * 0.06)))
    draw.line((x + side * 0.5, y + side * 0.7, x + side * 0.5, y + side * 0.82), white, 3)
    draw.line((x + side * 0.2, y + side * 0.2, x + side * 0.8, y + side * 0.8), white, 5)


def main() -> int:
    """Write one frame and print its caption."""
    parser = argparse.ArgumentParser(description="Draw one meeting frame and print its caption.")
    parser.add_argument("--seed", type=int, required=True, help="held-out seeds start at 1000000")
    parser.add_argument("--out", type=Path, required=True, help="a .png or .ppm file")
    arguments = parser.parse_args()
    try:
        frame(arguments.seed).save(arguments.out)
    except (RecipeError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(meeting(arguments.seed).caption())
    return 0


if __name__ == "__main__":
    sys.exit(main())
