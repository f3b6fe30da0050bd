"""Activations and cache of meeting-vlm beside the plain way to run it: a part of `memory.py`.

Ours is one arena for all graphs, keys and values of 8 bits in pages, and the rows of the prompt.
The plain pipeline has the same weights, an arena for each of its sessions, a copy of what one hands
to the next, the same rows of a prompt, and a contiguous f16 cache of the full length.

`peak_ratio` is at the full length, with every page written; `peak_ratio_answer` at the end of a
real answer about a frame, where ours has the pages that it needed and the plain cache is there all
the same.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import find_model
from runtime_stub import Model
from runtime_stub.conversations import Pool
from runtime_stub.library import ffi, library, new_error
from tests.benchmarks.memory_joint import separate, sessions

FLOAT, HALF = 4, 2


def figures() -> dict[str, float]:
    """Every figure of this area."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "out.mllm_bundle"
        model = find_model("meeting-vlm", lambda line: None)
        compiled = compile_model(Request(model=model, output=path, quant="kv8"))
        assert compiled.manifest is not None
        plain = sum(separate(sessions(compiled.module)).values())
        with Model.open(path, allow_unsigned=True) as opened:
            return _ratios(opened, compiled.manifest.plan.plan, plain)


def _ratios(model: Model, arena: int, arenas: int) -> dict[str, float]:
    """Both ratios, given the bytes of our arena and of all separate ones."""
    handles = model._handles  # what the binding does not show: a pool of its own
    info = ffi.new("mllm_cache_info *")
    library().mllm_model_cache(handles.model, 0, info)
    contiguous = info.layers * 2 * info.kv_heads * info.head_dim * HALF * info.max_tokens
    width, features = model_width(model)
    pool = Pool(handles.model, 0, contiguous)
    talk = pool.conversation()
    talk.use_in(handles.session)
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    answer = list(model.generate(image=pixels, max_new_tokens=64))
    asked = model.statistics.prompt_tokens * width * FLOAT
    used = pool.statistics.used_bytes
    assert answer
    assert used > 0
    talk.rewind(0)
    error, zeros = new_error(), ffi.new(f"float[{info.kv_heads * info.max_tokens * info.head_dim}]")
    for place in np.ndindex(info.layers, 2):
        status = library().mllm_session_cache_write(
            handles.session, 0, *place, zeros, info.max_tokens, error
        )
        assert status == 0
    full, rows = pool.statistics.used_bytes, info.max_tokens * width * FLOAT
    library().mllm_session_use_cache(handles.session, 0, ffi.NULL, error)
    talk.close()
    pool.close()
    copies = 2 * features  # the encoder's output for the projector, its output for the prompt
    return {
        "peak_ratio": (arena + full + rows) / (arenas + contiguous + rows + copies),
        "peak_ratio_answer": (arena + used + asked) / (arenas + contiguous + asked + copies),
        "peak_mb": (arena + full + rows) / 1e6,
    }


def model_width(model: Model) -> tuple[int, int]:
    """Channels of a row of the prompt, and the bytes of an image's rows."""
    projector = next(e for e in model.entries.values() if e.role == "projector")
    shape = projector.outputs[0].shape
    rows, width = (n for n in shape[-2:])
    assert isinstance(rows, int)
    assert isinstance(width, int)
    return width, rows * width * FLOAT
