"""The data of a check: a folder of texts, sounds, pictures and tensors, told apart by their names.

| file | what it is |
|---|---|
| `NAME.wav` and `NAME.txt` | speech and its transcript |
| `NAME.png` (`.jpg`, `.jpeg`, `.ppm`) and `NAME.txt` | a picture and what to say of it |
| a picture alone | for encoders |
| `NAME.prompt.txt` and `NAME.answer.txt` | a question and its answer |
| `NAME.txt` alone | a text, for perplexity |
| `GRAPH/NAME.npz` | tensors: an array for each input of a graph |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mllm_compiler.bundle.files import reading
from mllm_compiler.errors import CompileError

PICTURES: Final = (".png", ".jpg", ".jpeg", ".ppm")
PROMPT: Final = ".prompt.txt"
ANSWER: Final = ".answer.txt"


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a folder holds, each in the order of the names.

    Attributes:
        texts: Texts by themselves.
        speech: Sounds, with what is said in them.
        pictures: All pictures.
        captions: Pictures with what should be said of them.
        questions: Prompts with what should be answered.
        tensors: Files of tensors, by graph.
    """

    texts: tuple[Path, ...] = ()
    speech: tuple[tuple[Path, Path], ...] = ()
    pictures: tuple[Path, ...] = ()
    captions: tuple[tuple[Path, Path], ...] = ()
    questions: tuple[tuple[Path, Path], ...] = ()
    tensors: tuple[tuple[str, Path], ...] = ()


def read_data(folder: Path) -> Data:
    """What a folder holds.

    Raises:
        CompileError: `MLC-U005`, it cannot be read; `MLC-U016`, it holds nothing of all that.
    """
    with reading(folder):
        files = sorted(path for path in folder.iterdir() if path.is_file())
    pictures = tuple(path for path in files if path.suffix.lower() in PICTURES)
    sounds = [path for path in files if path.suffix.lower() == ".wav"]
    prompts = [path for path in files if path.name.endswith(PROMPT)]
    answers = {p: p.with_name(p.name.removesuffix(PROMPT) + ANSWER) for p in prompts}
    captions = _with_text(pictures)
    speech = _with_text(sounds)
    beside = {text for _, text in (*captions, *speech, *answers.items())} | set(prompts)
    texts = tuple(path for path in files if path.suffix == ".txt" and path not in beside)
    tensors = tuple((path.parent.name, path) for path in sorted(folder.glob("*/*.npz")))
    data = Data(
        texts=texts,
        speech=speech,
        pictures=pictures,
        captions=captions,
        questions=tuple((p, answer) for p, answer in answers.items() if answer.is_file()),
        tensors=tensors,
    )
    if data == Data():
        message = "no text, sound, picture or file of tensors"
        remedy = "docs/checking.md says what the data of a check looks like"
        raise CompileError("MLC-U016", message, location=str(folder), remedy=remedy)
    return data


def read_text(path: Path) -> str:
    """A text.

    Raises:
        CompileError: `MLC-U005`, it cannot be read; `MLC-U016`, it is no UTF-8.
    """
    with reading(path):
        raw = path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as fault:
        message = f"byte {fault.start} is not UTF-8 text"
        remedy = "save it as UTF-8"
        raise CompileError("MLC-U016", message, location=str(path), remedy=remedy) from fault


def _with_text(files: tuple[Path, ...] | list[Path]) -> tuple[tuple[Path, Path], ...]:
    pairs = ((path, path.with_suffix(".txt")) for path in files)
    return tuple((path, text) for path, text in pairs if text.is_file())
