"""A build without libcrypto says so, and runs what its caller has verified."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from runtime_stub import Model, RuntimeFailure
try:
    Model.open(sys.argv[1], allow_unsigned=True)
except RuntimeFailure as failure:
    print(failure.code)
with Model.open(sys.argv[1], already_verified=True, threads=1) as model:
    print(sum(1 for _ in model.generate("the", max_new_tokens=3)) > 0)
"""


def test_without_libcrypto(tmp_path: Path, language_bundle: Path) -> None:
    tools = Path(sys.executable).parent
    cmake = tools / "cmake" if (tools / "cmake").exists() else Path("cmake")
    options = ["-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    subprocess.run([cmake, "-S", ROOT, "-B", tmp_path, *options], check=True)
    subprocess.run([cmake, "--build", tmp_path, "-j2", "--target", "mllm"], check=True)
    library = next(tmp_path.rglob("libmllm.so"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, language_bundle],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MLLM_LIBRARY": str(library)},
    )
    assert done.stdout.split() == ["MLC-X020", "True"]
