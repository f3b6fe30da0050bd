"""What tests with Rockchip's toolkit share: without it they are skipped, and the line says why."""

from __future__ import annotations

import pytest

from mllm_compiler.backends.rknn.sdk import find_toolkit

NEEDS_TOOLKIT = [
    pytest.mark.vendor,
    pytest.mark.skipif(
        find_toolkit() is None,
        reason="Rockchip's toolkit has an environment of its own; 'make vendor' sets it up",
    ),
]
