"""Entries over buckets in C, at every length: against the target `numpy`, and without buckets."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.importer import read_dims
from mllm_compiler.reference import find_function
from runtime_stub import Model
from tests.cli.recipes import tiny
from tests.passes.bucket_shapes_test import LLAMA, WHISPER, Arrays, both, llama, seeded

TOLERANCE = 2e-5


def opened(folder: Path, recipe: str, *dims: str) -> Model:
    path = folder / f"{recipe}-{len(dims)}.mllm_bundle"
    compile_model(Request(model=tiny(recipe), dims=read_dims(dims), output=path))
    return Model.open(path, allow_unsigned=True, threads=1)


def near(got: Arrays, want: Arrays) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].shape == array.shape, name
        error = np.abs(got[name] - array).max(initial=0)
        assert error <= TOLERANCE * max(np.abs(array).max(initial=0), 1), (name, error)


def test_a_language_model_at_every_length(tmp_path: Path) -> None:
    numpy = both(*LLAMA).padded
    with opened(tmp_path, *LLAMA) as padded, opened(tmp_path, "tiny-llama") as dynamic:
        for tokens, past in {*product(range(1, 25), (0, 7)), *product((1, 3), range(41))}:
            inputs = llama(tokens, past)
            got = padded.run("decoder", inputs)
            near(got, numpy.run("decoder", inputs))
            near(got, dynamic.run("decoder", inputs))


def test_a_decoder_over_sound_at_every_length(tmp_path: Path) -> None:
    made = both(*WHISPER)
    ranges = {"batch_size": range(1, 4), "decoder_sequence_length": range(1, 10, 2)}
    with opened(tmp_path, *WHISPER) as padded:
        for entry in ("encoder", "decoder", "decoder_with_past"):
            graph = find_function(made.dynamic, entry)
            symbols = sorted({s for v in graph.args for d in shape_of(v) for s in d.symbols()})
            for sizes in product(*(ranges.get(s, range(1, 17, 3)) for s in symbols)):
                inputs = seeded(graph, dict(zip(symbols, sizes, strict=True)))
                near(padded.run(entry, inputs), made.padded.run(entry, inputs))
