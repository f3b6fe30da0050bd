"""Quotations that a synthesiser reads aloud: as much speech to calibrate on as one wants.

Real speech that may be passed on is short, and a decoder learns little from it: half a minute has
some 70 tokens. The quotations are those of Debian's `fortunes`, the voices are Flite's, made from
CMU Arctic; both are fetched, nothing of them is kept here.
"""

from __future__ import annotations

import os
import re
import subprocess
from itertools import cycle
from pathlib import Path

from models.recipe.packages import DebianPackage, fetch_debian

QUOTATIONS = (
    DebianPackage(
        name="fortunes-min",
        sha256="9eed5b45064e41133dae0967cf3a17588ad77c014fcc7bf1527fa3ea48e44d07",
    ),
    DebianPackage(
        name="fortunes",
        sha256="41d0551dc0ff52f875a2ecef7c39da2f672ab468c37e170119f7e0245a9d63c5",
    ),
)
READER = (
    DebianPackage(
        name="flite",
        sha256="f4ce03470bf9974c2cb9cacd981e6be29339ef4c97cf994dd6fa3f90e6544db9",
    ),
    DebianPackage(
        name="libflite1",
        sha256="bfa8c591f1b47730b30b372ec38e02918a1c9795eada67684e1746390ad2f061",
    ),
    DebianPackage(
        name="libasound2",
        sha256="44c77b076a7b11ae99712439022d822245b1994c435da564ebd320bb676faf4c",
    ),
)
"""The program, its voices, and what it is linked with."""

VOICES = ("slt", "rms", "awb")
TOPICS = ("literature", "wisdom", "people", "education", "humorists", "science")
PROSE = re.compile(r"[A-Z][A-Za-z ,;:'?!.\-]{60,300}[.!?]")
"""A quotation of plain sentences."""

WORDS = 62
"""A window has so many words at least: some 20 s."""
APART = 130
"""The quotations taken lie evenly over so many parts of all."""


def read_aloud(folder: Path, windows: int = 24) -> Path:
    """Adds windows of quotations to a folder, `aloud_NN.wav` of 16 kHz, by three voices in turn."""
    program, *libraries = (fetch_debian(package) / "usr" for package in READER)
    paths = [str(path) for library in libraries for path in (library / "lib").iterdir()]
    known = quotations()
    texts = cycle(known[:: len(known) // APART])
    for number, voice in zip(range(windows), cycle(VOICES), strict=False):
        said: list[str] = []
        while sum(len(text.split()) for text in said) < WORDS:
            said.append(next(texts))
        subprocess.run(
            [
                str(program / "bin" / "flite"),
                *("-voice", voice, "-t", " ".join(said)),
                str(folder / f"aloud_{number:02}.wav"),
            ],
            env=os.environ | {"LD_LIBRARY_PATH": ":".join(paths)},
            check=True,
        )
    return folder


def quotations() -> list[str]:
    """Quotations without who said them, in the order of the topics."""
    folders = [fetch_debian(package) / "usr/share/games/fortunes" for package in QUOTATIONS]
    files = {path.name: path for folder in folders for path in folder.iterdir()}
    whole = "\n%\n".join(files[topic].read_text(errors="ignore") for topic in TOPICS)
    alone = [re.sub(r"\n\s*--.*", "", text, flags=re.DOTALL) for text in whole.split("\n%\n")]
    plain = [" ".join(text.split()) for text in alone]
    return [text for text in plain if PROSE.fullmatch(text) and "LITE" not in text]
