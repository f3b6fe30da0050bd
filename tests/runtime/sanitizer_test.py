"""The C tests, built with address and undefined-behaviour sanitizers, and with the thread one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from tests.runtime.library import ROOT
from tests.runtime.text_models import write_small_pages

TOOLS = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_is_clean(tmp_path: Path, sanitizer: str) -> None:
    run("cmake", "-S", ROOT, "-B", tmp_path, f"-DMLLM_SANITIZE={sanitizer}", "-DMLLM_TESTS=ON",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DMLLM_PYTHON={sys.executable}")  # fmt: skip
    run("cmake", "--build", tmp_path, "-j", "2")
    run("ctest", "--test-dir", tmp_path, "--output-on-failure")
    bundle = tmp_path / "tiny-vlm.mllm_bundle"
    compile_model(Request(model=build_recipe("tiny-vlm", print), output=bundle))
    run(tmp_path / "tests/runtime/soak_week", bundle, "1")
    run(tmp_path / "tests/runtime/soak_week", bundle, "1", "prepares")
    small = write_small_pages(tmp_path / "small.mllm_bundle", page_tokens=64, tokens=320)
    run(tmp_path / "tests/runtime/soak_pressure", small, tmp_path, "1000", "1")


def run(tool: str | Path, *arguments: str | Path) -> None:
    found = TOOLS / tool
    command = [found if found.exists() else tool, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
