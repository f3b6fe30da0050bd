"""What fusion saves on the real models: ops and bytes of the IR, and kernels of the target c.

python tests/benchmarks/fusion.py --json docs/figures/fusion.json

Ops are those that compute or move something: not weights, constants and reshapes. Bytes are those
that each op reads and writes (`mllm_compiler/hal/cost.py`), at the sizes below. Kernels are stages
of the program of the target c, of all its entries, with the stage FUSE and without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects import CompilerContext, make_context
from mllm_compiler.dialects.mllm import ConstantOp, PipelineOp, ReshapeOp, WeightOp
from mllm_compiler.hal import cost_of
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.plan_memory import stages_of
from mllm_compiler.pipelines import (
    BUCKET,
    FUSE,
    LIFT,
    LOWER,
    PLACE,
    SHAPES,
    SPLIT,
    Stage,
    pass_class,
)
from mllm_compiler.recipes import find_model
from tests.benchmarks.figures import publish

MODELS = ("smollm2-135m", "dinov2-s14", "whisper-base", "meeting-vlm")
CACHED = 255
PHASES = {"prefill": (CACHED + 1, 0), "decode": (1, CACHED)}
"""New and past tokens of a decoder."""

MOVES_NOTHING = (WeightOp, ConstantOp, ReshapeOp, PipelineOp)


def run(module: ModuleOp, context: CompilerContext, stages: Iterable[Stage]) -> None:
    """Runs stages of a pipeline on a module."""
    names = [name for stage in stages for name in stage.passes]
    options = {"place": {"target": "c", "fallback": "none"}}
    run_passes(module, [pass_class(name)(**options.get(name, {})) for name in names], context)


def sizes(graph: FuncOp, new: int, past: int) -> dict[str, int]:
    """The value of each symbol of a graph."""
    text = str(graph.function_type)
    known = {"batch_size": 1, "sequence_length": new, "decoder_sequence_length": new}
    known |= {"past_sequence_length": past, "past_decoder_sequence_length": past}
    return {symbol: size for symbol, size in known.items() if symbol in text}


def measured(module: ModuleOp) -> dict[str, float]:
    """Ops and megabytes of each graph; of a graph that sees past tokens, in both phases."""
    found: dict[str, float] = {}
    for graph in graphs(module):
        ops = [
            op for op in graph.body.block.ops if op.results and not isinstance(op, MOVES_NOTHING)
        ]
        name = graph.sym_name.data
        found[f"{name}_ops"] = len(ops)
        grows = "past_" in str(graph.function_type)
        for phase, (new, past) in PHASES.items() if grows else {"": (4, 0)}.items():
            costs = [cost_of(op, sizes(graph, new, past)) for op in ops]
            label = f"{name}_{phase}" if phase else name
            found[f"{label}_read_mb"] = sum(cost.read for cost in costs) / 1e6
            found[f"{label}_written_mb"] = sum(cost.written for cost in costs) / 1e6
    return found


def kernels(module: ModuleOp, context: CompilerContext) -> int:
    """Stages of the program of the target c; the module is lowered."""
    run(module, context, (BUCKET, PLACE, SPLIT, LOWER))
    return sum(len(stages_of(graph)) for graph in graphs(module))


def main() -> int:
    """Measure every real model."""
    figures: dict[str, float] = {}
    for model in MODELS:
        imported = import_model(find_model(model, lambda line: None))
        module, context = imported.module, make_context(imported.store)
        run(module, context, (SHAPES, LIFT))
        before, plain = measured(module), module.clone()
        run(module, context, (FUSE,))
        for name, after in measured(module).items():
            figures[f"{model}_{name}_before"] = before[name]
            figures[f"{model}_{name}_after"] = after
        figures[f"{model}_kernels_before"] = kernels(plain, context)
        figures[f"{model}_kernels_after"] = kernels(module, context)
    return publish(figures)


if __name__ == "__main__":
    sys.exit(main())
