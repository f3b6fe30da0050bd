"""What the cache of a conversation takes: a part of `memory.py`.

`kv4_page_ratio` is a demoted page as a part of the same page in f16, scales counted, the larger one
of heads of 64 and of 128 channels. `kv_..._mb` is what a pool gives for 2,048 tokens of a cache as
SmolLM2-135M has it (30 layers, 3 heads of 64 channels), written 256 at a time. With 4 bits, 512
tokens and the first 32 keep 8.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from runtime_stub.conversations import Pool
from tests.runtime.internals import Internals
from tests.runtime.kv_bench import in_ours
from tests.runtime.kv_layout_test import AS_FLOATS, AS_HALVES, BY_4, BY_8, DEMOTED, NATIVE, Pages
from tests.runtime.library import Model, Session
from tests.runtime.program_writer import ProgramWriter

LAYERS, KV_HEADS, DIM, PAGE, TOKENS, RECENT = 30, 3, 64, 256, 2048, 512
FORMATS = {"f32": AS_FLOATS, "f16": AS_HALVES, "kv8": BY_8, "kv4": BY_4}


def figures() -> dict[str, float]:
    """Every figure of this area."""
    with tempfile.TemporaryDirectory() as scratch:
        internals = Internals(Path(scratch))
        ratio = max(_ratio(internals, dim) for dim in (64, 128))
    used = {f"kv_{name}_mb": _used(form) / 1e6 for name, form in FORMATS.items()}
    return {"kv4_page_ratio": ratio} | used


def _ratio(internals: Internals, dim: int) -> float:
    low, halves = (Pages(internals, dim, [form]).bytes for form in (BY_4, AS_HALVES))
    return low[DEMOTED] / halves[NATIVE]


def _program(form: int) -> tuple[bytes, bytes]:
    """step: stores k and v of a page's tokens in every layer."""
    writer = ProgramWriter()
    k, v = (writer.io(name, "f32", [1, PAGE, KV_HEADS * DIM]) for name in "kv")
    for layer in range(LAYERS):
        writer.stage("f32_kv_store", [k, v], [], [layer, KV_HEADS])
    cache = writer.cache(
        "kv", layers=LAYERS, kv_heads=KV_HEADS, head_dim=DIM, tokens=TOKENS, page_tokens=PAGE,
        formats=[RECENT if form == BY_4 else 0, *[form, -1] * LAYERS],
    )  # fmt: skip
    writer.entry("step", inputs=[k, v], outputs=[], cache=cache)
    return writer.finish()


def _used(form: int) -> int:
    """Bytes of the pages that a conversation has when all of its tokens are written."""
    model = Model(*_program(form))
    session = Session(model)
    pool = Pool(in_ours(model.handle, "mllm_model"), 0, 200_000_000)
    talk = pool.conversation()
    talk.use_in(in_ours(session.handle, "mllm_session"))
    rows = np.random.default_rng(0).standard_normal((1, PAGE, KV_HEADS * DIM), np.float32)
    for _ in range(TOKENS // PAGE):
        session.run({"k": rows, "v": rows}, [], "step")
    assert talk.length == TOKENS
    used = pool.statistics.used_bytes
    del session
    talk.close()
    pool.close()
    return used
