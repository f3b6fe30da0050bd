"""A folder of data is told apart by its names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.quality.data import Data, read_data, read_text


def test_files_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in ("a.txt", "b.wav", "b.txt", "c.PNG", "c.txt", "d.jpg", "e.wav", "notes.md"):
        (tmp_path / name).touch()
    for name in ("q.prompt.txt", "q.answer.txt", "r.prompt.txt"):
        (tmp_path / name).touch()
    (tmp_path / "decoder").mkdir()
    (tmp_path / "decoder" / "1.npz").touch()
    at = tmp_path.joinpath
    assert read_data(tmp_path) == Data(
        texts=(at("a.txt"),),
        speech=((at("b.wav"), at("b.txt")),),
        pictures=(at("c.PNG"), at("d.jpg")),
        captions=((at("c.PNG"), at("c.txt")),),
        questions=((at("q.prompt.txt"), at("q.answer.txt")),),
        tensors=(("decoder", at("decoder", "1.npz")),),
    )


def test_nothing_to_check_on_is_a_located_line(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with pytest.raises(CompileError) as caught:
        read_data(tmp_path)
    assert (caught.value.code, caught.value.location) == ("MLC-U016", str(tmp_path))
    with pytest.raises(CompileError) as caught:
        read_data(tmp_path / "absent")
    assert caught.value.code == "MLC-U005"


def test_a_text_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(CompileError, match="byte 3 is not UTF-8 text"):
        read_text(tmp_path / "a.txt")
