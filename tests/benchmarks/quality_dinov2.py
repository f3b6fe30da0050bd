"""Dropping tokens of DINOv2-S/14 at 672x672, 2,304 patches to 196: layer, quality, cost.

    python tests/benchmarks/quality_dinov2.py --json docs/figures/dinov2_tokens.json

writes the curve; `quality.py` measures the layer that was chosen alone.

Features are the class token's, of four crops of each of eleven photos (`photos.py`), on the target
c. Of each layer that may choose: `cost`, the share of the whole encoder's operations as the
compiler counts them; `cosine` to the whole encoder's features; `right`, of how many of the 44
crops the nearest is of the same photo; `same`, of how many it is the very one that the whole
encoder finds. `CHOSEN` is one of them; `uniform` stands for an even grid of patches at its cost.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import AttentionOp
from mllm_compiler.hal import cost_of
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.drop_tokens import DropTokens, read_by
from mllm_compiler.passes.graphs import (
    block_of,
    graphs,
    named,
    remove_dead,
    result_names,
    return_of,
)
from mllm_compiler.pipelines import LOWER, PLACE, PLAN, pass_class, pass_names
from mllm_compiler.recipes import find_model
from mllm_compiler.weights import WeightStore
from tests.benchmarks.figures import publish
from tests.benchmarks.photos import crops, mean_cosine, nearest, right_neighbours

MODEL, SIZE, KEEP = "dinov2-s14-672", 672, 196
LAYERS = range(1, 13)
CHOSEN = DropTokens(after=(2,), keep=(KEEP,), score="norm", cover=7)

Array = np.ndarray[Any, np.dtype[Any]]
Encode = Callable[[Array], dict[str, Array]]
"""Gives results by name for what a graph reads, [n, ...] image by image."""


def lifted(name: str = MODEL) -> tuple[ModuleOp, WeightStore]:
    """The encoder in the mllm dialect."""
    imported = import_model(find_model(name, lambda line: None))
    passes = [pass_class(name)() for name in pass_names("lift")]
    run_passes(imported.module, passes, make_context(imported.store))
    return imported.module, imported.store


def layers_of(module: ModuleOp) -> list[AttentionOp]:
    """The attention of each layer."""
    return [op for op in block_of(graphs(module)[0]).ops if isinstance(op, AttentionOp)]


def with_layer_inputs(module: ModuleOp) -> ModuleOp:
    """The encoder with what each layer reads as further results, `layer.1` first."""
    module = module.clone()
    graph = graphs(module)[0]
    read = [read_by(attention) for attention in layers_of(module)]
    names = [*result_names(graph), *(f"layer.{i + 1}" for i in range(len(read)))]
    return_of(graph).operands = [*return_of(graph).operands, *read]
    graph.properties["res_attrs"] = named(names)
    graph.update_function_type()
    return module


def dropped(module: ModuleOp, store: WeightStore, this: DropTokens) -> tuple[ModuleOp, int]:
    """The encoder from the layer that drops tokens on, and the operations of all of it."""
    module = module.clone()
    start = read_by(layers_of(module)[this.after[0] - 1])
    run_passes(module, [this], make_context(store))
    operations = flops(module)
    graph = graphs(module)[0]
    block = block_of(graph)
    taken: SSAValue = block.insert_arg(start.type, 1)
    start.replace_all_uses_with(taken)
    remove_dead(graph)
    block.erase_arg(block.args[0])
    graph.properties["arg_attrs"] = named(["tokens"])
    graph.update_function_type()
    return module, operations


def flops(module: ModuleOp) -> int:
    """The floating-point operations for one image."""
    ops = block_of(graphs(module)[0]).ops
    return sum(cost_of(op, {"batch_size": 1}).flops for op in ops if op.results)


def runner(module: ModuleOp, store: WeightStore) -> CRunner:
    """The module on the target c."""
    lowering = [*PLACE.passes, *LOWER.passes, *PLAN.passes]
    run_passes(module, [pass_class(name)() for name in lowering], make_context(store))
    return CRunner(emit(module), store, threads=2)


def scored(features: Array, whole: Array, photo: Array, cost: float) -> dict[str, float]:
    """The figures of one configuration."""
    return {
        "cost": cost,
        "cosine": mean_cosine(features, whole),
        "right": right_neighbours(features, photo),
        "same": int((nearest(features) == nearest(whole)).sum()),
    }


def measured(folder: Path, layers: Sequence[int]) -> dict[str, float]:
    """Layers that may choose, by norm and by an even grid.

    Args:
        folder: Where what the layers read is kept meanwhile, 2 GB for all of them.
        layers: The layers, from 1.
    """
    module, store = lifted()
    total, images = flops(module), crops(SIZE)
    count, photo = len(images[0]), images[1]
    whole = np.zeros((count, 384), np.float32)
    shape = (count, *layers_of(module)[0].q.type.get_shape()[1:])  # type: ignore[attr-defined]
    read = {i: np.memmap(folder / f"{i}.f32", np.float32, "w+", shape=shape) for i in layers}
    with runner(with_layer_inputs(module), store) as encoder:
        for i, image in enumerate(images[0]):
            results = encoder.run("vision", {"pixel_values": image[None]})
            whole[i] = results["last_hidden_state"][0, 0]
            for layer, kept in read.items():
                kept[i] = results[f"layer.{layer}"][0]
            tell(f"encoded {i + 1} of {count}")

    def configuration(this: DropTokens) -> dict[str, float]:
        made, operations = dropped(module, store, this)
        features = np.zeros_like(whole)
        with runner(made, store) as encoder:
            for i, tokens in enumerate(read[this.after[0]]):
                results = encoder.run("vision", {"tokens": tokens[None]})
                features[i] = results["last_hidden_state"][0, 0]
        found = scored(features, whole, photo, operations / total)
        tell(f"{this.score} {this.after} {found}")
        return found

    figures: dict[str, float] = {"whole_right": right_neighbours(whole, photo)}
    for layer in layers:
        for score, cover in (("norm", CHOSEN.cover), ("uniform", 0)):
            this = DropTokens(after=(layer,), keep=(KEEP,), score=score, cover=cover)
            found = configuration(this)
            figures |= {f"{score}_{layer:02}_{name}": value for name, value in found.items()}
    return figures


def headline(curve: dict[str, float]) -> dict[str, float]:
    """The figures of the configuration that was chosen."""
    (layer,) = CHOSEN.after
    right = curve[f"{CHOSEN.score}_{layer:02}_right"]
    return {
        "dinov2_196_nn_drop": curve["whole_right"] - right,
        "dinov2_196_over_uniform": right - curve[f"uniform_{layer:02}_right"],
        "dinov2_196_cost": curve[f"{CHOSEN.score}_{layer:02}_cost"],
        "dinov2_196_cosine": curve[f"{CHOSEN.score}_{layer:02}_cosine"],
    }


def tell(line: str) -> None:
    """Says on stderr how far it is."""
    sys.stderr.write(f"{line}\n")


def figures() -> dict[str, float]:
    """What the table of all models says of this one."""
    with tempfile.TemporaryDirectory() as folder:
        return headline(measured(Path(folder), CHOSEN.after))


def main() -> int:
    """Measure all layers."""
    with tempfile.TemporaryDirectory() as folder:
        curve = measured(Path(folder), LAYERS)
    return publish(headline(curve) | curve)


if __name__ == "__main__":
    sys.exit(main())
