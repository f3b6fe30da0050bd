"""llama.cpp as a peer: `python with_llama_cpp.py FILE.gguf FORMAT`, run by the peers' own Python.

The model in FORMAT ("Q4_0") is made of the file by llama.cpp's own quantiser and lies beside it.
Each line on standard input asks for one measurement; the answer is a line `prefill decode`, both in
tokens a second: a prompt of 256 tokens, then 64 steps behind it.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from pathlib import Path

import llama_cpp

PROMPT, STEPS, THREADS = 256, 64, 2
FORMATS = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
"""llama.cpp's numbers of its file types."""


def in_format(file: Path, name: str) -> Path:
    """The file in another format, made where it is not there."""
    target = file.with_suffix(f".{name}.gguf")
    if target.exists():
        return target
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FORMATS[name]
    params.allow_requantize = True
    part = target.with_suffix(".part")
    made = llama_cpp.llama_model_quantize(
        str(file).encode(), str(part).encode(), ctypes.byref(params)
    )
    if made != 0:
        raise SystemExit(f"llama.cpp does not make {name} of {file}")
    part.rename(target)
    return target


def main() -> None:
    """Answers until its input ends."""
    file = in_format(Path(sys.argv[1]), sys.argv[2])
    model = llama_cpp.Llama(
        str(file), n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=THREADS,
        n_threads_batch=THREADS, verbose=False,
    )  # fmt: skip
    draw = random.Random(0)
    tokens = [draw.randrange(100, 40_000) for _ in range(PROMPT)]
    for _ in sys.stdin:
        model.reset()
        start = time.perf_counter()
        model.eval(tokens)
        read = time.perf_counter()
        for step in range(STEPS):
            model.eval([1000 + step])
        end = time.perf_counter()
        sys.stdout.write(f"{PROMPT / (read - start)} {STEPS / (end - read)}\n")
        sys.stdout.flush()


main()
