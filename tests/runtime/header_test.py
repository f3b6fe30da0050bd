"""The public headers: C and C++ read them, and the compiler's numbers are theirs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mllm_compiler.dialects.cpu import conv, elementwise, linalg
from tests.runtime.library import ROOT, ffi, library

INCLUDE = ROOT / "runtime_stub/include"
HEADERS = sorted(INCLUDE.glob("*.h"))
PARTS = ("MAJOR", "MINOR", "PATCH")
COMPILERS = [
    command
    for command in (["cc", "-std=c11", "-xc"], ["c++", "-std=c++17", "-xc++"])
    if command[0] == "cc" or shutil.which(command[0])
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda command: command[0])
def test_stands_alone(header: Path, compiler: list[str]) -> None:
    warnings = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{INCLUDE}"]
    text = f'#include "{header.name}"\n'
    done = subprocess.run(
        [*compiler, *warnings, "-"], input=text, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def numbers(prefix: str) -> dict[str, int]:
    text = (INCLUDE / "mllm_program.h").read_text(encoding="utf-8")
    found = re.findall(rf"\b{prefix}(\w+) = (\d+)", text)
    return {name.lower(): int(number) for name, number in found}


def test_elementwise_numbers_are_those_of_the_dialect() -> None:
    special = {
        "load": elementwise.LOAD,
        "const": elementwise.CONST,
        "iconst": elementwise.ICONST,
        "select": elementwise.SELECT,
    }
    assert numbers("MLLM_EW_") == special | elementwise.UNARY | elementwise.BINARY


def test_enumerations_are_those_of_the_dialect() -> None:
    activations = numbers("MLLM_ACTIVATION_")
    assert sorted(activations, key=activations.__getitem__) == list(linalg.ACTIVATIONS)
    reductions = numbers("MLLM_REDUCE_")
    assert sorted(reductions, key=reductions.__getitem__) == list(linalg.REDUCTIONS)
    assert numbers("MLLM_POOL_") == {name: i for i, name in enumerate(conv.POOLS)}


def test_library_and_header_are_of_one_version() -> None:
    text = (INCLUDE / "mllm.h").read_text(encoding="utf-8")
    (abi,) = re.findall(r"MLLM_ABI_VERSION = (\d+)", text)
    parts = [re.findall(rf"MLLM_VERSION_{part} = (\d+)", text)[0] for part in PARTS]
    assert library().mllm_abi_version() == int(abi)
    assert ffi().string(library().mllm_version()).decode() == ".".join(parts)
