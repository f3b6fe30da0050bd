"""Compile time, load time and speed of the real models, beside onnxruntime on the same ONNX.

    python tests/benchmarks/speed.py --json docs/figures/speed.json

A ratio is our speed over the peer's: above 1 is faster. `..._w4a8_...` are of SmolLM2 by the recipe
`w4a8`, in turns with llama.cpp.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from mllm_compiler.recipes import find_model
from runtime_stub import Model
from tests.benchmarks.figures import best_of, publish, read_bandwidth
from tests.benchmarks.speed_llama_cpp import beside_llama_cpp

THREADS = 2
TOKENS = 64
Inputs = dict[str, NDArray[np.float32]]


def compiled(name: str, folder: Path, *options: str) -> tuple[Path, float, float]:
    """The bundle of a recipe, and the seconds and MB that its compilation took."""
    bundle = folder / f"{name}{len(options)}.mllm_bundle"
    words = [sys.executable, "-m", "mllm_compiler.cli", "compile", name, "--unsigned", *options]
    start = time.perf_counter()
    subprocess.run([*words, "-o", bundle], check=True, stdout=subprocess.DEVNULL)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    return bundle, time.perf_counter() - start, peak


def peer(file: Path, inputs: Inputs) -> float:
    """Seconds of a run with onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return best_of(5, lambda: session.run(None, inputs))


def encoder_ratio(bundle: Path, entry: str, file: Path, inputs: Inputs) -> float:
    """Our speed over onnxruntime's on one graph."""
    with Model.open(bundle, allow_unsigned=True, threads=THREADS) as model:
        ours = best_of(5, lambda: model.run(entry, dict(inputs)))
    return peer(file, inputs) / ours


def language_model(bundle: Path) -> dict[str, float]:
    """Load time, speeds and memory of a language model."""
    load = best_of(3, lambda: Model.open(bundle, allow_unsigned=True, threads=THREADS).close())
    with Model.open(bundle, allow_unsigned=True, threads=THREADS) as model:
        words = "Tell me a long story about a compiler. " * 12
        for _ in model.generate(words, max_new_tokens=TOKENS):
            continue
        found = model.statistics
    size = bundle.stat().st_size
    speed = found.decode_tokens_per_second
    return {
        "load_ms": load * 1e3,
        "prefill_tokens_per_s": found.prompt_tokens_per_second,
        "decode_tokens_per_s": speed,
        "decode_bandwidth_share": speed * size / read_bandwidth(),
        "rss_over_bundle": found.peak_bytes / size,
    }


def main() -> int:
    """Measure everything."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bundle, seconds, peak = compiled("smollm2-135m", folder)
        figures = {"compile_s": seconds, "compile_rss_mb": peak, **language_model(bundle)}
        narrow, seconds, peak = compiled("smollm2-135m", folder, "--quant", "w4a8")
        figures |= {"compile_w4a8_s": seconds, "compile_w4a8_rss_mb": peak}
        figures |= beside_llama_cpp(narrow)
        bundle, _, _ = compiled("dinov2-s14", folder)
        pixels: Inputs = {
            "pixel_values": random.standard_normal((1, 3, 224, 224)).astype(np.float32)
        }
        file = find_model("dinov2-s14", lambda line: None) / "vision_encoder.onnx"
        figures["dinov2_fp32_ratio"] = encoder_ratio(bundle, "vision", file, pixels)
        bundle, _, _ = compiled("whisper-base", folder)
        mel: Inputs = {"input_features": random.standard_normal((1, 80, 3000)).astype(np.float32)}
        file = find_model("whisper-base", lambda line: None) / "encoder_model.onnx"
        figures["whisper_fp32_ratio"] = encoder_ratio(bundle, "encoder", file, mel)
    return publish(figures)


if __name__ == "__main__":
    sys.exit(main())
