"""From what a target made to the manifest and members of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.artifact import Entry, Port
from mllm_compiler.backends.buckets import served_entry
from mllm_compiler.backends.c.artifact import CArtifact
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.numpy.compile import NumpyArtifact
from mllm_compiler.backends.numpy.compile import compile_module as numpy_artifact
from mllm_compiler.bundle.config import config_of, text_contents
from mllm_compiler.bundle.manifest import (
    EntryRecord,
    Manifest,
    PlanRecord,
    TensorRecord,
    Topology,
    WeightRecord,
    canonical,
)
from mllm_compiler.bundle.writer import Content, content_of_bytes
from mllm_compiler.importer import ModelSpec
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class Assembled:
    """What goes into a bundle."""

    manifest: Manifest
    contents: Sequence[Content]


def assemble(module: ModuleOp, target: str, spec: ModelSpec, store: WeightStore) -> Assembled:
    """The bundle of a module that went through a target's pipeline.

    Weights are streamed from the store when the bundle is written.
    """
    program, artifact, plan = PROGRAMS[target](module)
    member = f"weights/{target}.bin"
    weights = Content(member, artifact.weight_bytes, lambda: artifact.stream(store))
    served = {g.sym_name.data: g for g in graphs(module)}
    entries = [served_entry(entry, served[entry.name]) for entry in artifact.entries]
    pipeline = {"edges": edges_of(module), "caches": caches_of(module)}
    config = config_of(spec, pipeline)
    contents = [
        content_of_bytes("config.json", canonical(config)),
        *text_contents(spec),
        program,
        weights,
    ]
    manifest = Manifest(
        name=spec.name,
        targets=(target,),
        entries={entry.name: _entry(entry) for entry in entries},
        topology={e.name: Topology(sha256=e.topology, ops=e.stages) for e in artifact.entries},
        weights=tuple(weight_record(weight, member) for weight in artifact.weights),
        plan=plan,
    )
    return Assembled(manifest, contents)


def _c(module: ModuleOp) -> tuple[Content, CArtifact, PlanRecord]:
    artifact = emit(module)
    plan = artifact.plan
    record = PlanRecord(bound=plan.bound, plan=plan.plan, gap=round(plan.gap, 6))
    return content_of_bytes("targets/c/program.bin", artifact.program), artifact, record


def _numpy(module: ModuleOp) -> tuple[Content, NumpyArtifact, PlanRecord]:
    artifact = numpy_artifact(module)
    return content_of_bytes("targets/numpy/module.mlir", artifact.module), artifact, PlanRecord()


PROGRAMS: dict[str, Callable[[ModuleOp], tuple[Content, CArtifact | NumpyArtifact, PlanRecord]]] = {
    "c": _c,
    "numpy": _numpy,
}
"""What each target makes: the member that holds its program, the artifact, the memory plan."""


def edges_of(module: ModuleOp) -> list[list[str]]:
    """Consumer, its input, producer, its output."""
    return [
        [part.data for part in (e.consumer, e.input, e.producer, e.output)]
        for e in pipeline_of(module).edges
    ]


def caches_of(module: ModuleOp) -> dict[str, dict[str, str]]:
    """What each entry with a cache calls its past and present tensors."""
    return {
        c.graph.data: {"key": c.key.data, "value": c.value.data, "out": c.out.data}
        for c in pipeline_of(module).caches
    }


def weight_record(weight: PackedWeight, member: str) -> WeightRecord:
    """What the manifest says of a weight."""
    return WeightRecord(
        name=weight.name,
        digest=weight.digest,
        member=member,
        offset=weight.offset,
        size=weight.nbytes,
        dtype=weight.dtype,
        shape=weight.shape,
        layout=weight.layout,
    )


def _entry(entry: Entry) -> EntryRecord:
    return EntryRecord(
        role=entry.role, inputs=_tensors(entry.inputs), outputs=_tensors(entry.outputs)
    )


def _tensors(ports: Iterable[Port]) -> tuple[TensorRecord, ...]:
    return tuple(
        TensorRecord(name=port.name, dtype=port.dtype, shape=tuple(map(_dim, port.shape)))
        for port in ports
    )


def _dim(text: str) -> int | str:
    return int(text) if text.isdigit() else text
