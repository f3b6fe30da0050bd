"""The libraries of metrics and pictures, imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mllm_compiler.errors import CompileError


def library(name: str) -> Any:
    """A module of the extra `check`.

    Raises:
        CompileError: `MLC-X027`, it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as fault:
        package = name.partition(".")[0].replace("_", "-")
        raise CompileError(
            "MLC-X027",
            f"the package {package} is not installed",
            location="mllmc check",
            remedy="pip install 'mllm-compiler[check]'",
        ) from fault
