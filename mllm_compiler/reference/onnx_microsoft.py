"""The meanings of ONNX Runtime's operators (`com.microsoft`)."""

from __future__ import annotations

from mllm_compiler.reference.executor import Meaning

MEANINGS: dict[str, Meaning] = {}
"""Op name to meaning."""
