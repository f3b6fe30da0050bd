"""lit's view of the `.mlir` files: `lit tests` runs their RUN lines with the installed tools."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "mllm-compiler"  # type: ignore[name-defined]  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # type: ignore[name-defined]  # noqa: F821
config.suffixes = [".mlir"]  # type: ignore[name-defined]  # noqa: F821
tools = Path(sys.executable).parent
config.environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"  # type: ignore[name-defined]  # noqa: F821
