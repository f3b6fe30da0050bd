"""`mllm-opt` reads back what it printed, bit for bit, and says what text is no module."""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.cli.opt import run

Captured = pytest.CaptureFixture[str]

CONSTANTS = """
func.func @f() -> (tensor<3xf32>, tensor<f16>) {
  %0 = mllm.constant dense<"0x0000807F000080FF0000C07F"> : tensor<3xf32>
  %1 = mllm.constant dense<"0x00FC"> : tensor<f16>
  func.return %0, %1 : tensor<3xf32>, tensor<f16>
}
"""


@pytest.mark.parametrize("words", [(), ("--print-op-generic",)])
def test_constants_that_are_no_numbers_come_back(
    words: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(CONSTANTS)
    assert run([str(path), *words]) == 0
    once = capsys.readouterr().out
    assert 'dense<"0x0000807F000080FF0000C07F">' in once
    assert 'dense<"0x00FC">' in once
    path.write_text(once)
    assert run([str(path), *words]) == 0
    assert capsys.readouterr().out == once


@pytest.mark.parametrize("first", "#%!^")
def test_text_that_is_no_module_is_a_located_line(
    first: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"{first} a title\n")
    assert run([str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    told = f"README.md:1:1: error: Expected suffix identifier after '{first}' [MLC-U008]"
    assert told in line
