"""The readable C compiles without a warning and gives the stage table's bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cffi import FFI
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c import compile as c
from mllm_compiler.backends.c.emit_c import CSource, emit_c, expression
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import llama, llama_inputs
from tests.backends.small_pipelines import eyes, features, whisper
from tests.passes.quantise_cache_test import calibration, coded

ROOT = Path(__file__).parents[2]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-shared", "-fPIC"]
Array = np.ndarray[Any, Any]


def built(source: CSource, folder: Path) -> tuple[FFI, Any]:
    """The shared library of the source, and its declarations."""
    from runtime_stub.library import declarations, library_path

    for suffix, text in (("h", source.header), ("c", source.source)):
        (folder / f"{source.name}.{suffix}").write_text(text)
    include, out = ROOT / "runtime_stub/include", folder / "model.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    command = [compiler, *FLAGS, f"-I{include}", str(folder / f"{source.name}.c"), "-o", str(out)]
    library = library_path().resolve()
    command += [str(library), f"-Wl,-rpath,{library.parent}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ffi = FFI()
    names = ("mllm_frame", "mllm", "mllm_kernels")
    headers = [*(include / f"{name}.h" for name in names), folder / f"{source.name}.h"]
    text = "".join(declarations(header.read_text()) for header in headers)
    ffi.cdef(re.sub(r"_caches\[\w+\]", "_caches[]", text))
    return ffi, ffi.dlopen(str(out))


class Compiled:
    """Calls the generated functions."""

    def __init__(self, module: ModuleOp, store: WeightStore, folder: Path) -> None:
        self.artifact = c.compile_module(module)
        self.source = emit_c(module, "small-model")
        self.ffi, self.lib = built(self.source, folder)
        ffi = self.ffi
        self.memory = [
            np.frombuffer(b"".join(self.artifact.stream(store)), np.uint8),
            np.zeros(self.artifact.plan.plan + 64, np.uint8),
        ]
        room = np.zeros(self.memory[0].nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        room[start : start + self.memory[0].nbytes] = self.memory[0]
        self.memory.append(room)
        options, context = ffi.new("mllm_context_options *"), ffi.new("mllm_context **")
        options.threads = 1
        caches = sorted({e.cache.cache for e in self.artifact.entries if e.cache})
        options.n_caches = len(caches)
        if caches:
            options.caches = self.lib.small_model_caches
        if "KEY_SCALES" in self.source.header:
            channels = re.search(r"KEY_SCALES (\d+)u", self.source.header)
            assert channels is not None
            scales = ffi.new("uint16_t[]", int(channels[1]))
            infos = ffi.new("mllm_cache_info[]", len(caches))
            weights = ffi.cast("unsigned char *", room.ctypes.data + start)
            self.lib.small_model_scaled_caches(weights, scales, infos)
            options.caches = infos
        self.error = ffi.new("mllm_error *")
        assert self.lib.mllm_context_create(options, context, self.error) == 0
        self.context = context
        self.model = ffi.new("small_model *")
        self.model.context = context[0]
        arena = self.memory[1].ctypes.data
        self.model.arena = ffi.cast("unsigned char *", arena + -arena % 64)
        self.model.weights = ffi.cast("unsigned char *", room.ctypes.data + start)

    def close(self) -> None:
        self.lib.mllm_context_destroy(self.context[0])

    def run(
        self, entry: str, inputs: dict[str, Array], shapes: dict[str, Array]
    ) -> dict[str, Array]:
        """Outputs with the shapes that are given; an input that is not given is left NULL."""
        described = next(e for e in self.artifact.entries if e.name == entry)
        ffi = self.ffi
        cache = described.cache
        symbols = dict[str, int]()
        for port in described.inputs:
            for axis, dim in enumerate(port.shape):
                if dim.isidentifier() and (cache is None or dim != cache.past_symbol):
                    symbols.setdefault(dim, 1)
                    if port.name in inputs:
                        symbols[dim] = inputs[port.name].shape[axis]
        results = {
            p.name: np.empty_like(shapes[p.name]) for p in described.outputs if p.name in shapes
        }
        arrays = [
            np.ascontiguousarray(inputs[p.name]) if p.name in inputs else None
            for p in described.inputs
        ]
        ends = [*arrays, *(results.get(p.name) for p in described.outputs)]
        pointers = [ffi.NULL if a is None else ffi.cast("void *", a.ctypes.data) for a in ends]
        function = getattr(self.lib, f"small_model_{entry}")
        status = function(self.model, *symbols.values(), *pointers, self.error)
        assert status == 0, ffi.string(self.error.message)
        return results


def same(got: dict[str, Array], want: dict[str, Array]) -> None:
    for name, array in got.items():
        assert array.tobytes() == want[name].tobytes(), name


@pytest.mark.parametrize("recipe", ["", "kv16", "kv8", "kv4"])
def test_a_language_model(tmp_path: Path, recipe: str) -> None:
    module, store = llama()
    inputs = llama_inputs(module, past=0, tokens=4)
    if recipe:
        calibration(module, tmp_path)
        coded(module, store, tmp_path, recipe)
    SplitLanguageModel().apply(Context(), module)
    compiled = Compiled(module, store, tmp_path)
    ids = inputs["input_ids"]
    with CRunner(compiled.artifact, store) as runner:
        for entry, given in (
            ("prefill", {"input_ids": ids}),
            ("decode", {"input_ids": ids[:, :1]}),
            ("decode", {"input_ids": ids[:, 1:2]}),
        ):
            want = runner.run(entry, given, only=("logits",))
            same(compiled.run(entry, given, want), want)
        assert compiled.lib.mllm_context_cache_length(compiled.context[0], 0) == 6
        runner.forget("decoder")
        reset = compiled.lib.mllm_context_cache_set_length
        assert reset(compiled.context[0], 0, 0, compiled.error) == 0
        raw = {n: a for n, a in inputs.items() if not n.startswith("past")}
        want = runner.run("decoder", raw, only=("logits",))
        same(compiled.run("decoder", raw, want), want)
    compiled.close()


def test_a_pipeline_through_the_arena(tmp_path: Path) -> None:
    module, store = eyes()
    compiled = Compiled(module, store, tmp_path)
    pixels = np.random.default_rng(3).standard_normal((1, 3, 12, 12)).astype(np.float32)
    with CRunner(compiled.artifact, store) as runner:
        want = runner.run("vision", {"pixel_values": pixels})
        tokens = runner.run("projector", {"features": want["last_hidden_state"]})
    assert compiled.run("vision", {"pixel_values": pixels}, {}) == {}
    same(compiled.run("projector", {}, tokens), tokens)
    compiled.close()


def test_two_decoders_of_one_cache(tmp_path: Path) -> None:
    module, store = whisper()
    compiled = Compiled(module, store, tmp_path)
    ids = np.array([[3, 1, 4, 1, 5]])
    with CRunner(compiled.artifact, store) as runner:
        runner.run("encoder", {"input_features": features()}, only=())
        compiled.run("encoder", {"input_features": features()}, {})
        for start, end in ((0, 3), (3, 4), (4, 5)):
            entry = "decoder" if start == 0 else "decoder_with_past"
            given = {"input_ids": ids[:, start:end]}
            want = runner.run(entry, given, only=("logits",))
            same(compiled.run(entry, given, want), want)
    compiled.close()


@pytest.mark.parametrize("make", [llama, eyes, whisper])
def test_the_same_module_gives_the_same_text(
    make: Callable[[], tuple[ModuleOp, WeightStore]],
) -> None:
    def text() -> CSource:
        module, _ = make()
        c.compile_module(module)
        return emit_c(module)

    assert text() == text()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("past + 2 * seq", "2 * seq + past"),
        ("0", "0"),
        ("seq floordiv 2 + 1", "floordiv(seq, 2) + 1"),
        ("-3 * a * b", "-3 * a * b"),
    ],
)
def test_dims_are_c_expressions(text: str, want: str) -> None:
    env = {"past": 5, "seq": 7, "a": 2, "b": 3}
    got = expression(Dim.parse(text))
    value = eval(got, {"floordiv": lambda a, b: a // b}, env)
    assert (
        value == Dim.parse(text).evaluate(env) == eval(want, {"floordiv": lambda a, b: a // b}, env)
    )
