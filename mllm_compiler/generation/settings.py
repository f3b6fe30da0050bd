"""`config.json` of a bundle, typed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

Segment = Mapping[str, str | bool]


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """How pixels go in; `size` is height, width."""

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fit: str = "stretch"


@dataclass(frozen=True, kw_only=True)
class AudioSettings:
    """How sound goes in."""

    rate: int
    n_fft: int
    hop: int
    mels: int
    window_s: float

    @property
    def frames(self) -> int:
        """How many columns the spectrogram of a window has."""
        return int(self.window_s * self.rate / self.hop)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the loop must know of a model."""

    stop: frozenset[int] = frozenset()
    prompt: str | None = None
    embedding: str | None = None
    image_token: str | None = None
    template: Mapping[str, Sequence[Segment]] = field(default_factory=dict[str, Sequence[Segment]])
    image: ImageSettings | None = None
    audio: AudioSettings | None = None
    forced_prompt: tuple[int, ...] = ()
    suppress: frozenset[int] = frozenset()
    begin_suppress: frozenset[int] = frozenset()
    max_new_tokens: int = 128


def read_settings(raw: bytes) -> Settings:
    """The settings of a believed `config.json`; keys that are not known here are passed over."""
    root = cast("dict[str, dict[str, object]]", json.loads(raw))
    text, generation = root.get("text", {}), root.get("generation", {})
    image, audio = root.get("image"), root.get("audio")
    return Settings(
        stop=frozenset(_ids(text, "stop")),
        prompt=cast("str | None", text.get("prompt")),
        embedding=cast("str | None", text.get("embedding")),
        image_token=cast("str | None", text.get("image_token")),
        template=cast("Mapping[str, Sequence[Segment]]", text.get("template", {})),
        image=None if image is None else _image(image),
        audio=None if audio is None else _audio(audio),
        forced_prompt=tuple(_ids(generation, "forced_prompt")),
        suppress=frozenset(_ids(generation, "suppress")),
        begin_suppress=frozenset(_ids(generation, "begin_suppress")),
        max_new_tokens=cast(int, generation.get("max_new_tokens", 128)),
    )


def _ids(block: Mapping[str, object], key: str) -> list[int]:
    return cast("list[int]", block.get(key, []))


def _image(block: Mapping[str, object]) -> ImageSettings:
    height, width = cast("list[int]", block["size"])
    return ImageSettings(
        size=(height, width),
        mean=tuple(cast("list[float]", block["mean"])),
        std=tuple(cast("list[float]", block["std"])),
        fit=cast(str, block.get("fit", "stretch")),
    )


def _audio(block: Mapping[str, object]) -> AudioSettings:
    numbers = cast("dict[str, int]", block)
    return AudioSettings(
        rate=numbers["rate"],
        n_fft=numbers["n_fft"],
        hop=numbers["hop"],
        mels=numbers["mels"],
        window_s=float(numbers["window_s"]),
    )
