"""What an answer of the meeting model costs in memory: a part of `memory.py`.

`bytes_copied` is what the runtime copies from the output of one stage to the input of another,
while the model looks at a frame and says 16 tokens.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import find_model
from runtime_stub import Model


def figures() -> dict[str, float]:
    """Every figure of this area."""
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "out.mllm_bundle"
        compile_model(Request(model=find_model("meeting-vlm", lambda line: None), output=path))
        with Model.open(path, allow_unsigned=True) as model:
            tokens = list(model.generate(image=pixels, max_new_tokens=16))
            assert len(tokens) > 1
            return {"bytes_copied": float(model.statistics.copied_bytes)}
