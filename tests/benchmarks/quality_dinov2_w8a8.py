"""DINOv2-S/14 with 8-bit weights and activations, beside the float model, on 44 photo crops.

`dinov2_w8a8_cosine` is the mean cosine of the class token's features on the target c,
`dinov2_w8a8_patch_cosine` that of the patches'; `right` and `same` are those of
`quality_dinov2.py`. The recipe is `w8a8-g64`; `w8a8`, with one scale a token, stands beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects import make_context
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.quantise_linears import QuantiseLinears
from mllm_compiler.weights import WeightStore
from tests.benchmarks.photos import crops, mean_cosine, nearest, right_neighbours
from tests.benchmarks.quality_dinov2 import lifted, runner

MODEL, SIZE = "dinov2-s14", 224
RECIPES = {"dinov2_w8a8": "w8a8-g64", "dinov2_w8a8_token": "w8a8"}

Array = np.ndarray[Any, np.dtype[Any]]


def features(module: ModuleOp, store: WeightStore, images: Array) -> Array:
    """What the module gives on the target c: [n, tokens, features]."""
    with runner(module, store) as encoder:
        runs = [encoder.run("vision", {"pixel_values": image[None]}) for image in images]
    return np.concatenate([results["last_hidden_state"] for results in runs])


def figures() -> dict[str, float]:
    """The figures of each recipe."""
    module, store = lifted(MODEL)
    images, photo = crops(SIZE)
    real = features(module.clone(), store, images)
    found: dict[str, float] = {"dinov2_fp32_right": right_neighbours(real[:, 0], photo)}
    for name, recipe in RECIPES.items():
        coded = module.clone()
        run_passes(coded, [QuantiseLinears(recipe=recipe)], make_context(store))
        made = features(coded, store, images)
        same = nearest(made[:, 0]) == nearest(real[:, 0])
        found |= {
            f"{name}_cosine": mean_cosine(made[:, 0], real[:, 0]),
            f"{name}_patch_cosine": mean_cosine(made[:, 1:], real[:, 1:]),
            f"{name}_right": right_neighbours(made[:, 0], photo),
            f"{name}_same": int(same.sum()),
        }
    return found
