"""From what a target made to the manifest and members of a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.artifact import CArtifact, Entry, Port
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
from mllm_compiler.passes.graphs import graphs, pipeline_of, role_of
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class Assembled:
    """What goes into a bundle."""

    manifest: Manifest
    contents: Sequence[Content]


def assemble_c(
    artifact: CArtifact, module: ModuleOp, spec: ModelSpec, store: WeightStore
) -> Assembled:
    """The bundle of the target `c`; weights are streamed from the store when it is written."""
    member = "weights/c.bin"
    weights = Content(member, artifact.weight_bytes, lambda: artifact.stream(store))
    contents = [
        *shared_contents(module, spec),
        content_of_bytes("targets/c/program.bin", artifact.program),
        weights,
    ]
    plan = artifact.plan
    manifest = Manifest(
        name=spec.name,
        targets=("c",),
        entries={entry.name: _entry(entry) for entry in artifact.entries},
        topology={e.name: Topology(sha256=e.topology, ops=e.stages) for e in artifact.entries},
        weights=tuple(weight_record(weight, member) for weight in artifact.weights),
        plan=PlanRecord(bound=plan.bound, plan=plan.plan, gap=round(plan.gap, 6)),
    )
    return Assembled(manifest, contents)


def shared_contents(module: ModuleOp, spec: ModelSpec) -> list[Content]:
    """The members that every target has: settings and text."""
    edges = [
        [part.data for part in (e.consumer, e.input, e.producer, e.output)]
        for e in pipeline_of(module).edges
    ]
    roles = {graph.sym_name.data: role_of(graph) for graph in graphs(module)}
    config = config_of(spec, edges, roles)
    return [content_of_bytes("config.json", canonical(config)), *text_contents(spec)]


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
