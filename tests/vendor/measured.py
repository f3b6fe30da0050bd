"""Measures a model on a target: whole and block by block, and what of it the accelerator runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import cost_of
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.pipelines import CACHE, QUANTISE, pass_class, pass_names
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore
from tests.vendor.arithmetic import flops
from tests.vendor.blocks import Inputs, block_name, cut
from tests.vendor.neuron_vendor import NeuronVendor
from tests.vendor.qnn_vendor import QnnVendor
from tests.vendor.rknn_vendor import RknnVendor
from tests.vendor.rows import Row
from tests.vendor.tflite_vendor import TfliteVendor
from tests.vendor.vendors import Array, Vendor

VENDORS: dict[str, type[Vendor]] = {
    "neuron": NeuronVendor,
    "qnn": QnnVendor,
    "rknn": RknnVendor,
    "tflite": TfliteVendor,
}
Pair = tuple[Array, Array]
"""What the vendor gives, and what the reference does."""


@dataclass(frozen=True)
class Case:
    """A model on a target.

    Attributes:
        target: The target.
        model: The model, and what the table calls it.
        path: Where it lies.
        form: What the table calls its form.
        recipe: The recipe of the form; empty without one.
        soc: The chip; empty where the target has none.
        dims: The sizes of its dimensions.
    """

    target: str
    model: str
    path: Path
    form: str
    recipe: str
    soc: str
    dims: Mapping[str, DimSpec]


@dataclass(frozen=True)
class Measured:
    """What was found of a model.

    Attributes:
        row: Its row.
        pieces: The results of the pieces, by name.
        whole: Those of the whole model.
        reals: The results of the pieces in mllm, before they were lowered: values have no codes.
        model: Those of the whole model beside mllm's.
    """

    row: Row
    pieces: Mapping[str, Pair]
    whole: Mapping[str, Pair]
    reals: Mapping[str, Array]
    model: Mapping[str, Pair]

    def excess(self) -> float:
        """How many times further from the reals a result of a piece is than our reference's."""
        return max(
            (1 - cosine(got, self.reals[key])) / (1 - cosine(want, self.reals[key]))
            for key, (got, want) in self.pieces.items()
        )


def measure(case: Case, folder: Path, keep: Callable[[Row], None]) -> Measured:
    """Compiles and runs a model, whole and in pieces; a row is kept also where it is refused.

    Raises:
        CompileError: The vendor refuses it.
    """
    try:
        made = _measured(case, folder)
    except CompileError as fault:
        keep(Row(**_named(case), accepted=f"no: {fault.message}"))
        raise
    keep(made.row)
    return made


def _measured(case: Case, folder: Path) -> Measured:
    module, store = placed(case)
    given = {
        g.sym_name.data: behind_cache(seeded_inputs(g, pipeline_of(module))) for g in graphs(module)
    }
    meant = results_of(module, store, given)
    parts, read = cut(module, store, given)
    reals = results_of(parts, store, read)
    counted = sum(cost_of(op, {}).flops for graph in graphs(module) for op in graph.walk())
    whole = lowered(case, module, store, given, folder / "whole")
    pieces = answers(lowered(case, parts, store, read, folder / "pieces"))
    results = answers(whole)
    left, ops = whole.left(), [op for g in graphs(module) for op in whole.operators(g)]
    # What is counted of the vendor's operators is held to what is counted of mllm's.
    assert 0.9 < sum(map(flops, ops)) / counted < 1.2
    row = Row(
        **_named(case),
        accepted="yes",
        operators=whole.share(),
        block_flops=share([op for op in ops if block_name(op)], left),
        flops=share(ops, left),
        worst_block=least_cosine(pieces),
        whole=least_cosine(results),
        size=whole.size,
        seconds=whole.seconds,
    )
    model = {key: (got, meant[key]) for key, (got, _) in results.items()}
    return Measured(row, pieces, results, reals, model)


def behind_cache(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of a decoder whose new tokens stand behind those of the cache."""
    given = dict(inputs)
    if {"position_ids", "length.past_sequence_length"} <= given.keys():
        given["position_ids"] = given["position_ids"] + given["length.past_sequence_length"]
    return given


def results_of(module: ModuleOp, store: WeightStore, given: Inputs) -> dict[str, Array]:
    """The results of all graphs in the reference."""
    return {
        f"{graph}/{key}": array
        for graph, inputs in given.items()
        for key, array in run_function(module, graph, inputs, store).items()
    }


def _named(case: Case) -> dict[str, str]:
    form = f"{case.form} {case.soc}".strip()
    return {"target": case.target, "model": case.model, "form": form}


def placed(case: Case) -> tuple[ModuleOp, WeightStore]:
    """The model in mllm, quantised and with static shapes, before it is lowered."""
    imported = import_model(case.path, dims=case.dims)
    names, at = _passes(case)
    _run(case, imported.module, imported.store, names[:at])
    return imported.module, imported.store


def lowered(
    case: Case, module: ModuleOp, store: WeightStore, given: Inputs, folder: Path
) -> Vendor:
    """A module in the vendor's hands, calibrated on the very inputs that it will be run on."""
    vendor, samples = VENDORS[case.target], folder / "samples"
    taken = {graph: vendor.taken(arrays) for graph, arrays in given.items()}
    for graph, arrays in taken.items():
        (samples / graph).mkdir(parents=True)
        np.savez(samples / graph / "0000.npz", allow_pickle=False, **arrays)
    names, at = _passes(case)
    _run(case, module, store, names[at:], str(samples))
    module.verify()
    return vendor(module, store, taken, folder)


def _passes(case: Case) -> tuple[tuple[str, ...], int]:
    """The passes of the target, and the place of the first that lowers."""
    names = pass_names(case.target, quantised=bool(case.recipe))
    lowers = (at for at, name in enumerate(names) if name.startswith("lower-to-"))
    return names, next(lowers, len(names))


def _run(
    case: Case, module: ModuleOp, store: WeightStore, names: Iterable[str], samples: str = ""
) -> None:
    recipe, soc = {"recipe": case.recipe}, {"soc": case.soc}
    options: dict[str, dict[str, object]] = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": case.target},
        "lower-to-tfl": {"target": case.target},
        "lower-to-qnn": {**soc},
        "lower-to-rknn": {**recipe, **soc},
        "encode-tfl": {**recipe, "data": samples, "target": case.target},
        "encode-qnn": {**recipe, "data": samples},
        **{name: {**recipe} for name in (*QUANTISE.passes, *CACHE.passes)},
    }
    made = [pass_class(name)(**options.get(name, {})) for name in names]
    run_passes(module, made, make_context(store))


def answers(vendor: Vendor) -> dict[str, Pair]:
    """Every result of every graph."""
    found: dict[str, Pair] = {}
    for graph in graphs(vendor.module):
        name = graph.sym_name.data
        got, want = vendor.got(graph), vendor.want(graph)
        found |= {f"{name}/{key}": (array, want[key]) for key, array in got.items()}
    return found


def share(ops: Iterable[Operation], left: Collection[Operation]) -> float | None:
    """The share of floating-point operations that is not left to the host; None of no ops."""
    work = {op: flops(op) for op in ops}
    return None if not work else 1 - sum(work[op] for op in left if op in work) / sum(work.values())


def least_cosine(pairs: Mapping[str, Pair]) -> float:
    return min(cosine(got, want) for got, want in pairs.values())


def largest_distance(pairs: Mapping[str, Pair]) -> float:
    """The largest difference of a result, as a part of its largest magnitude."""
    return max(float(np.abs(g - w).max() / np.abs(w).max()) for g, w in pairs.values())


def cosine(a: Array, b: Array) -> float:
    assert a.shape == b.shape
    x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))
