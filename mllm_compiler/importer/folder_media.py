"""What the folder of a Hugging Face model says of pixels and sound: `preprocessor_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mllm_compiler.importer.model_toml import AudioSpec, ImageSpec
from mllm_compiler.importer.typed_tables import load_json, typed

PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """Log mel bands as Whisper takes them; `chunk_length` is in seconds."""

    sampling_rate: int
    n_fft: int
    hop_length: int
    feature_size: int
    chunk_length: int


@dataclass(frozen=True, kw_only=True)
class Processor:
    """How pictures are brought to size, and normalised.

    Attributes:
        size: `height` and `width`, or `shortest_edge`; a number is both edges.
        crop_size: What is cut out of the middle, where `do_center_crop` says so.
        image_mean: By channel, of pixels from 0 to 1.
        image_std: By channel.
    """

    size: Mapping[str, int] | int = field(default_factory=dict[str, int])
    crop_size: Mapping[str, int] | int = field(default_factory=dict[str, int])
    do_center_crop: bool = False
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]


def audio_of(folder: Path) -> AudioSpec | None:
    """How sound goes in; None where no Whisper feature extractor is there.

    Raises:
        CompileError: MLC-I022, a key of it is missing or cannot be used.
    """
    name, table = _settings(folder, "feature_extractor")
    if table.get("feature_extractor_type") != "WhisperFeatureExtractor":
        return None
    given = typed(Extractor, table, file=name, closed=False)
    return AudioSpec(
        rate=given.sampling_rate,
        n_fft=given.n_fft,
        hop=given.hop_length,
        mels=given.feature_size,
        window_s=given.chunk_length,
    )


def image_of(folder: Path) -> ImageSpec | None:
    """How pixels go in; None where nothing says so, or no `[image]` can say the same.

    Raises:
        CompileError: MLC-I022, a key is missing or cannot be used.
    """
    name, table = _settings(folder, "image_processor")
    if "image_mean" not in table:
        return None
    given = typed(Processor, table, file=name, closed=False)
    size, fit = _edges(given.size), "stretch"
    if given.do_center_crop:
        shortest = (
            given.size.get("shortest_edge") if isinstance(given.size, Mapping) else given.size
        )
        size, fit = _edges(given.crop_size), "crop"
        if size is None or shortest not in size or size[0] != size[1]:
            return None
    if size is None:
        return None
    return ImageSpec(size=size, mean=given.image_mean, std=given.image_std, fit=fit)


def _edges(given: Mapping[str, int] | int) -> tuple[int, int] | None:
    """Height and width."""
    if isinstance(given, int):
        return given, given
    found = [given[edge] for edge in ("height", "width") if edge in given]
    return (found[0], found[1]) if len(found) == 2 else None


def _settings(folder: Path, part: str) -> tuple[str, Mapping[str, object]]:
    """The file that has the settings of a part of the preprocessing, and those."""
    file, joined = folder / PREPROCESSOR, folder / PROCESSOR
    if file.is_file():
        return file.name, load_json(file)
    inner = load_json(joined).get(part) if joined.is_file() else None
    return joined.name, cast("Mapping[str, object]", inner) if isinstance(inner, dict) else {}
