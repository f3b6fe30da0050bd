"""Perplexity of SmolLM2-135M before and after quantisation, by what `mllmc compile` made.

Scored are the first 1,536 tokens of `pydoc_topics.txt` (Python's language reference) in windows of
512, ids without a start token. Calibrated is on `sklearn_descr.txt` and docstrings of the standard
library alone. The weights of this model lie on a grid of 4 bits in blocks of 32; so a model that is
the same function off that grid, after an orthogonal rotation of its residual stream, is held to the
same bounds.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.dialects.types import bits_of
from mllm_compiler.generation.model import NumpyModel, open_model
from mllm_compiler.quality.prediction import Predictions
from mllm_compiler.quantisation.hadamard import (
    fold_into_inputs,
    fold_into_outputs,
    random_orthogonal,
)
from mllm_compiler.recipes import FOLDER
from models.recipe.gguf_weights import smollm2
from models.recipe.llama import EMBEDDING, decoder

MODEL = "smollm2-135m"
RECIPES = Path(__file__).resolve().parent / "recipes"
W4A8, W8A8 = RECIPES / "smollm2_w4a8.toml", RECIPES / "smollm2_w8a8.toml"
TEXTS = Path(__file__).resolve().parent / "texts"
TOKENS, WINDOW = 1536, 512
LINEARS = 210
DOCUMENTED = (
    "argparse",
    "asyncio.streams",
    "collections",
    "configparser",
    "contextlib",
    "csv",
    "datetime",
    "decimal",
    "difflib",
    "email.message",
    "fractions",
    "heapq",
    "inspect",
    "ipaddress",
    "json",
    "logging",
    "mailbox",
    "optparse",
    "pathlib",
    "pickletools",
    "random",
    "shutil",
    "socketserver",
    "statistics",
    "subprocess",
    "tarfile",
    "textwrap",
    "threading",
    "traceback",
    "typing",
    "unittest.mock",
    "urllib.request",
    "zipfile",
)
"""Modules whose docstrings are calibrated on; none is among the topics that are scored."""


def figures() -> dict[str, float]:
    """Every figure of this model."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = calibration(folder / "data")
        other = rotated(folder / "rotated")
        real = predictions(compiled(MODEL, None, data, folder))
        coded = compared(real, predictions(compiled(MODEL, W8A8, data, folder)))
        found = {"smollm2_fp32_ppl": coded["perplexity_float"]}
        found |= named("smollm2_w8a8", coded)
        start = time.perf_counter()
        small, used = compiled_with_usage(MODEL, W4A8, data, folder)
        found["smollm2_w4a8_compile_s"] = time.perf_counter() - start
        found["smollm2_w4a8_compile_user_s"] = used.ru_utime
        found["smollm2_w4a8_compile_rss_mb"] = used.ru_maxrss / 1e3
        found["smollm2_w4a8_bits"] = linear_bits(small)
        found["smollm2_w4a8_bits_model"] = model_bits(small)
        found |= named("smollm2_w4a8", compared(real, predictions(small)))
        turned = predictions(compiled(str(other), None, data, folder))
        coded = compared(turned, predictions(compiled(str(other), W4A8, data, folder)))
        found["smollm2_rot_fp32_ppl"] = coded["perplexity_float"]
        found |= named("smollm2_rot_w4a8", coded)
    return found


def named(model: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """What a model is gated on: perplexity, points of top-1 accuracy lost, tokens changed."""
    wanted = {"ppl": "perplexity", "top1_drop": "top1_drop", "changed_tokens": "changed_tokens"}
    return {f"{model}_{short}": metrics[name] for short, name in wanted.items()}


def calibration(folder: Path) -> Path:
    """A folder of texts to calibrate on."""
    folder.mkdir()
    shutil.copy(TEXTS / "sklearn_descr.txt", folder)
    for name in DOCUMENTED:
        text = "\n\n".join(docstrings(name))
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def docstrings(name: str) -> Iterator[str]:
    """What a module says of itself and of its own public functions and classes."""
    module = importlib.import_module(name)
    yield inspect.getdoc(module) or name
    for word, value in sorted(vars(module).items()):
        own = getattr(value, "__module__", None) == name and not word.startswith("_")
        if own and (inspect.isclass(value) or inspect.isroutine(value)):
            yield f"{word}\n\n{inspect.getdoc(value) or ''}"


def rotated(folder: Path) -> Path:
    """The model with a rotated residual stream: the same function, norms folded, head untied."""
    language = smollm2()
    weights, norm = dict(language.weights), "model.norm.weight"
    turn = random_orthogonal(language.config.hidden, seed=1)
    weights["lm_head.weight"] = fold_into_inputs(weights[EMBEDDING] * weights[norm], turn)
    weights[EMBEDDING] = fold_into_inputs(weights[EMBEDDING], turn)
    for layer in range(language.config.layers):
        name = f"model.layers.{layer}."
        first, second = f"{name}input_layernorm.weight", f"{name}post_attention_layernorm.weight"
        reads = {f"{name}self_attn.{part}_proj.weight": first for part in "qkv"}
        reads |= {f"{name}mlp.{part}_proj.weight": second for part in ("gate", "up")}
        for part, before in reads.items():
            weights[part] = fold_into_inputs(weights[part] * weights[before], turn)
        for part in (f"{name}self_attn.o_proj.weight", f"{name}mlp.down_proj.weight"):
            weights[part] = fold_into_outputs(weights[part], turn)
        weights[first], weights[second] = (
            np.ones_like(weights[first]),
            np.ones_like(weights[second]),
        )
    weights[norm] = np.ones_like(weights[norm])
    folder.mkdir()
    config = replace(language.config, tied=False)
    decoder(config, weights).save(folder / "model.onnx", external=True)
    language.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(language.template, encoding="utf-8")
    shutil.copy(FOLDER / MODEL / "model.toml", folder)
    return folder


def compiled(
    model: str, recipe: Path | None, data: Path, folder: Path, *, longest: int = WINDOW
) -> NumpyModel:
    """A model compiled under a recipe for so many tokens, opened for the reference."""
    return compiled_with_usage(model, recipe, data, folder, longest=longest)[0]


def compiled_with_usage(
    model: str, recipe: Path | None, data: Path, folder: Path, *, longest: int = WINDOW
) -> tuple[NumpyModel, resource.struct_rusage]:
    """The same, and what the compiler's process used."""
    bundle = folder / "model.mllm_bundle"
    words = [sys.executable, "-m", "mllm_compiler.cli", "compile", model, "--unsigned"]
    words += ["--target", "numpy", "--dim", f"sequence_length<={longest}", "-o", str(bundle)]
    words += [] if recipe is None else ["--quant", str(recipe), "--data", str(data)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return open_model(open_bundle(bundle, Policy(allow_unsigned=True))), used


@dataclass(frozen=True)
class Window:
    """What a model predicts of a piece of the scored text.

    Attributes:
        logits: [tokens, vocabulary].
        targets: [tokens], what stands there.
    """

    logits: NDArray[np.float32]
    targets: NDArray[np.int64]


def predictions(model: NumpyModel) -> list[Window]:
    """Of the scored text, each window by itself."""
    text = (TEXTS / "pydoc_topics.txt").read_text(encoding="utf-8")
    ids = np.array(model.tokenizer().encode(text, add_special_tokens=False).ids[: TOKENS + 1])
    starts = range(0, TOKENS, WINDOW)
    return [
        Window(logits_of(model, ids[at : at + WINDOW]), ids[at + 1 : at + WINDOW + 1])
        for at in starts
    ]


def compared(real: Sequence[Window], given: Sequence[Window]) -> dict[str, float]:
    """What `mllmc check accuracy` says of the predictions of two models."""
    sums = Predictions()
    for one, other in zip(real, given, strict=True):
        sums.add(one.logits, other.logits, one.targets)
    return sums.metrics()


def logits_of(model: NumpyModel, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """[tokens, vocab] of one sequence that nothing goes before."""
    inputs: dict[str, NDArray[np.generic]] = {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[None],
    }
    for name in (given.name for given in model.entry("decoder").inputs):
        past = None if name in inputs else model.runner.empty_past("decoder", name)
        inputs |= {} if past is None else {name: past}
    return model.runner.run("decoder", inputs)["logits"][0].astype(np.float32)


def weights_of(model: NumpyModel) -> dict[str, WeightOp]:
    """The weights of a bundle by digest, each once."""
    ops = [op for op in model.runner.module.walk() if isinstance(op, WeightOp)]
    return {op.value.digest.data: op for op in ops}


def stored_bits(weights: list[WeightOp]) -> int:
    """Bits of codes, scales, zero points and real numbers as they are stored."""
    return sum(math.prod(op.value.dims) * bits_of(op.value.element) for op in weights)


def linear_bits(model: NumpyModel) -> float:
    """Bits a weight of the products in the blocks, scales and zero points counted."""
    own = [op for op in weights_of(model).values() if "_proj.weight" in name_of(op)]
    matrices = [op for op in own if name_of(op).endswith(".weight")]
    # Products that read the same codes are one: their names are joined by +.
    count = sum(name_of(op).count("_proj.weight") for op in matrices)
    if count != LINEARS:
        raise ValueError(f"{count} products where the model has {LINEARS}")
    return stored_bits(own) / sum(math.prod(op.value.dims) for op in matrices)


def model_bits(model: NumpyModel) -> float:
    """Bits a weight of the whole model, embedding, head and norms counted."""
    own = list(weights_of(model).values())
    plain = [op for op in own if not name_of(op).endswith((".scale", ".zero"))]
    return stored_bits(own) / sum(math.prod(op.value.dims) for op in plain)


def name_of(op: WeightOp) -> str:
    """The name of a weight, empty where it has none."""
    return "" if op.weight_name is None else op.weight_name.data
