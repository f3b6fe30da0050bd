"""Small bundles that generate text, made from hand-made modules."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.c.compile import compile_module
from mllm_compiler.bundle.manifest import Manifest
from mllm_compiler.bundle.template_segments import template_segments
from mllm_compiler.bundle.tokenizer_tables import tokenizer_tables
from mllm_compiler.bundle.writer import Content, content_of_bytes, write_bundle
from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.passes.split_language_model import SplitLanguageModel
from mllm_compiler.reference.kv_cache import PAGE
from mllm_compiler.weights import WeightStore
from tests.backends.small_models import Graph, llama
from tests.bundle.small_bundle import KEY

sys.path.insert(0, str(Path(__file__).parents[2]))

from models.recipe.tiny_text import TEMPLATE, VOCAB, tiny_tokenizer

Array = NDArray[np.generic]
WIDTH, SIDE, PATCH = 16, 16, 8
EMBEDDING = "decoder:model.embed_tokens.weight"
IMAGE = {"size": [SIDE, SIDE], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}


def tokenizer_json() -> bytes:
    return tiny_tokenizer().to_str().encode()


def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


def language_module(past: int = 64) -> tuple[ModuleOp, WeightStore]:
    """A decoder that takes ids."""
    return llama(vocabulary=VOCAB, width=WIDTH, max_past=past)


def write_small_pages(path: Path, page_tokens: int, tokens: int) -> Path:
    """The language bundle with other pages than the compiler makes, so that few steps fill many."""
    module, _ = language_module(tokens)
    SplitLanguageModel(EMBEDDING).apply(Context(), module)
    program = compile_module(module).program
    shape = (2, 2, WIDTH // 4)
    compiled, wanted = (struct.pack("<4I", *shape, page) for page in (PAGE, page_tokens))
    assert program.count(compiled) == 1
    replaced = {"targets/c/program.bin": program.replace(compiled, wanted)}
    return write_text_bundle(path, *language_module(tokens), replaced=replaced)


def vision_module() -> tuple[ModuleOp, WeightStore]:
    """A decoder that takes embeddings, an encoder of 2x2 patches and a projector."""
    module, store = llama(embeds=True, vocabulary=VOCAB, width=WIDTH)
    pixels = tensor_of(f32, (1, 3, SIDE, SIDE))
    vision = Graph("vision", "encoder", store, {"pixel_values": pixels}, seed=1)
    weight = vision.weight("patch", 12, 3, PATCH, PATCH)
    patches = vision.add(mllm.PatchEmbedOp(vision["pixel_values"], weight))
    vision.finish({"last_hidden_state": patches})
    features = tensor_of(f32, (1, 4, 12))
    projector = Graph("projector", "projector", store, {"features": features}, seed=2)
    tokens = projector.linear(projector["features"], "project", WIDTH)
    projector.finish({"tokens": tokens})
    block = module.body.block
    for made in (vision.func, projector.func):
        block.insert_op_before(made, block.first_op)  # type: ignore[arg-type]
    pipeline = next(op for op in block.ops if isinstance(op, mllm.PipelineOp))
    edge = mllm.EdgeAttr.of("projector", "features", "vision", "last_hidden_state")
    pipeline.properties["edges"] = type(pipeline.edges)([*pipeline.edges, edge])
    return module, store


def write_text_bundle(
    path: Path,
    module: ModuleOp,
    store: WeightStore,
    *,
    config: Mapping[str, object] | None = None,
    replaced: Mapping[str, bytes] | None = None,
) -> Path:
    """Compiles a module for the C runtime and writes a signed bundle around it."""
    SplitLanguageModel(EMBEDDING).apply(Context(), module)
    artifact = compile_module(module)
    settings = {
        "text": {"stop": [0, 2], "template": template_segments(TEMPLATE, image_token="<image>")},
        "image": IMAGE,
        **(config or {}),
    }
    members = {
        "config.json": json.dumps(settings, sort_keys=True).encode(),
        "text/tokenizer.bin": tokenizer_tables(tokenizer_json()),
        "targets/c/program.bin": artifact.program,
        **(replaced or {}),
    }
    weights = Content("weights/c.bin", artifact.weight_bytes, lambda: artifact.stream(store))
    contents = [*(content_of_bytes(n, raw) for n, raw in members.items()), weights]
    write_bundle(path, Manifest(name="small", targets=("c",), entries={}), contents, key=KEY)
    return path


def rendered(prompt: str, *, image: bool = False) -> str:
    content = f"<image>\n{prompt}" if image else prompt
    return f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"


def function(module: ModuleOp, name: str) -> FuncOp:
    return next(
        op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == name
    )


def weight(module: ModuleOp, store: WeightStore, graph: str, name: str) -> Array:
    """The values of a weight of a graph."""
    for op in function(module, graph).walk():
        if isinstance(op, mllm.WeightOp) and op.weight_name and op.weight_name.data == name:
            return store.array(op.value.digest.data, "f32", op.value.dims)
    raise KeyError(name)


def flat(ids: Sequence[int]) -> Array:
    return np.array([ids], np.int64)
