"""What a folder of calibration data holds: texts, pictures, sounds, or tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mllm_compiler.bundle.files import reading
from mllm_compiler.errors import CompileError

TEXTS = (".txt", ".md")
IMAGES = (".png", ".jpg", ".jpeg", ".ppm", ".bmp")
SOUNDS = (".wav",)
TENSORS = (".npz",)


@dataclass(frozen=True)
class Sources:
    """The files of a folder, in the order of their names.

    Attributes:
        folder: The folder.
        texts: Texts that belong to no picture or sound.
        images: Pictures.
        sounds: WAV files.
        tensors: `.npz` files of each graph that has a folder; those of no folder are under "".
    """

    folder: Path
    texts: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()
    sounds: tuple[Path, ...] = ()
    tensors: Mapping[str, tuple[Path, ...]] = field(default_factory=dict[str, tuple[Path, ...]])

    def text(self) -> str:
        """All texts, one behind the other.

        Raises:
            CompileError: `MLC-Q003`, one is not UTF-8; `MLC-U005`, one cannot be read.
        """
        return "\n\n".join(read_text(path) for path in self.texts)


def read_text(path: Path) -> str:
    """A text.

    Raises:
        CompileError: `MLC-Q003`, it is not UTF-8; `MLC-U005`, it cannot be read.
    """
    with reading(path):
        raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        message = f"byte {fault.start} is not UTF-8 text"
        raise _unusable(path, message, "save it as UTF-8") from fault


def words_beside(path: Path) -> str | None:
    """The text of a picture or sound: the `.txt` of its name."""
    beside = path.with_suffix(".txt")
    return read_text(beside).strip() if beside.is_file() else None


def read_sources(folder: Path, graphs: tuple[str, ...]) -> Sources:
    """What a folder holds for a model with these graphs.

    Raises:
        CompileError: `MLC-U005`, there is no such folder; `MLC-Q003`, nothing in it can be used.
    """
    if not folder.is_dir():
        message = "not a folder" if folder.exists() else "there is no such folder"
        raise CompileError("MLC-U005", message, location=str(folder), remedy="check the path")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    images, sounds = _of(files, IMAGES), _of(files, SOUNDS)
    beside = {path.with_suffix(".txt") for path in (*images, *sounds)}
    tensors = {"": _of(files, TENSORS)}
    tensors |= {g: _of(sorted((folder / g).glob("*")), TENSORS) for g in graphs}
    found = Sources(
        folder=folder,
        texts=tuple(path for path in _of(files, TEXTS) if path not in beside),
        images=images,
        sounds=sounds,
        tensors={graph: paths for graph, paths in tensors.items() if paths},
    )
    if not (found.texts or images or sounds or found.tensors):
        known = ", ".join((*TEXTS, *IMAGES, *SOUNDS, *TENSORS))
        other = f", only {files[0].name}" if files else ""
        raise _unusable(folder, f"no calibration data in it{other}", f"files end in {known}")
    return found


def _of(files: list[Path], kinds: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(path for path in files if path.suffix.lower() in kinds)


def _unusable(path: Path, message: str, remedy: str) -> CompileError:
    return CompileError("MLC-Q003", message, location=str(path), remedy=remedy)
