"""From what a target made to the manifest and members of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.artifact import Entry, Port
from mllm_compiler.backends.buckets import served_entry
from mllm_compiler.backends.c.artifact import CArtifact, MemoryPlan
from mllm_compiler.backends.c.emit import emit as emit_program
from mllm_compiler.backends.neuron.compile import compile_module as compile_neuron
from mllm_compiler.backends.numpy.compile import NumpyArtifact
from mllm_compiler.backends.numpy.compile import compile_module as numpy_artifact
from mllm_compiler.backends.qnn.emit import QnnArtifact
from mllm_compiler.backends.qnn.emit import emit as emit_qnn
from mllm_compiler.backends.qnn.sdk import BUILD, CONTEXT, HOW, VERSION, Library, libraries
from mllm_compiler.backends.qnn.sources import sources
from mllm_compiler.backends.rknn.compile import compile_module as compile_rknn
from mllm_compiler.backends.rknn.emit import WEIGHTS as RKNN_WEIGHTS
from mllm_compiler.backends.tflite import device as tflite
from mllm_compiler.backends.tflite.emit import TfliteArtifact
from mllm_compiler.backends.tflite.emit import emit as emit_tflite
from mllm_compiler.bundle.config import config_of, text_contents
from mllm_compiler.bundle.device_block import DeviceBlock, GraphPlan, Sdk
from mllm_compiler.bundle.manifest import (
    BankRecord,
    BufferRecord,
    Compatibility,
    EntryRecord,
    Manifest,
    PlanRecord,
    SpanRecord,
    TensorRecord,
    Topology,
    WeightRecord,
    canonical,
)
from mllm_compiler.bundle.writer import Content, content_of_bytes
from mllm_compiler.dialects.printing import text_of
from mllm_compiler.importer import ModelSpec
from mllm_compiler.passes.graphs import (
    callees,
    device_functions,
    devices_in,
    fallback_of,
    graphs,
    pipeline_of,
    plan_of,
)
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class Assembled:
    """What goes into a bundle."""

    manifest: Manifest
    contents: Sequence[Content]


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What a target may use that is not in the module.

    Attributes:
        soc: The chip that was named.
        samples: A folder of `GRAPH/NNNN.npz`, inputs of each graph; empty without a recipe.
        warn: Is told of what a bundle lacks.
    """

    soc: str | None = None
    samples: str = ""
    warn: Callable[[str], None] = lambda text: None


def assemble(
    module: ModuleOp,
    target: str,
    spec: ModelSpec,
    store: WeightStore,
    outside: Outside = Outside(),
) -> Assembled:
    """The bundle of a module that went through a target's pipeline.

    Weights are streamed from the store when the bundle is written.
    """
    made = PROGRAMS[target](module, store, outside)
    artifact = made.artifact
    called = devices_in(module)
    devices = {name: PROGRAMS_OF_DEVICES[name](module, store, outside) for name in called}
    sides = [made, *devices.values()]
    served = {g.sym_name.data: g for g in graphs(module)}
    entries = [served_entry(entry, served[entry.name]) for entry in artifact.entries]
    pipeline = {"edges": edges_of(module), "caches": caches_of(module)}
    config = config_of(spec, pipeline)
    contents = [
        content_of_bytes("config.json", canonical(config)),
        *text_contents(spec),
        *(content for side in sides for content in side.contents),
        *(_block(name, side, module).content(name) for name, side in devices.items()),
    ]
    manifest = Manifest(
        name=spec.name,
        targets=tuple(sorted((target, *devices))),
        entries={entry.name: _entry(entry) for entry in entries},
        topology={
            e.name: Topology(sha256=e.topology, ops=e.stages)
            for side in sides
            for e in side.artifact.entries
        },
        weights=tuple(weight_record(w, s.member) for s in sides for w in s.artifact.weights),
        plan=made.plan,
        compatibility=made.compatibility,
    )
    return Assembled(manifest, contents)


@dataclass(frozen=True)
class Made:
    """What a target made.

    Attributes:
        artifact: Its entries and weights.
        member: The member that the weights lie in.
        contents: The members of its own.
        plan: The memory plan.
        compatibility: What a reader must have.
    """

    artifact: CArtifact | NumpyArtifact | QnnArtifact | TfliteArtifact
    member: str
    contents: Sequence[Content]
    plan: PlanRecord = field(default_factory=PlanRecord)
    compatibility: Compatibility = field(default_factory=Compatibility)


def _c(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    artifact = emit_program(module)
    program = content_of_bytes("targets/c/program.bin", artifact.program)
    return _with_weights("c", artifact, program, store, plan_record(artifact.plan))


def plan_record(plan: MemoryPlan) -> PlanRecord:
    """The memory plan as the manifest has it."""
    placed = zip(plan.buffers, plan.offsets, strict=True)
    return PlanRecord(
        bound=plan.bound,
        plan=plan.plan,
        gap=round(plan.gap, 6),
        buffers=tuple(
            BufferRecord(name=b.name, offset=offset, size=b.size, first=b.first, last=b.last)
            for b, offset in placed
        ),
        graphs=tuple(
            SpanRecord(graph=graph, first=first, last=last)
            for graph, (first, last) in plan.spans.items()
        ),
        banks=tuple(
            BankRecord(name=name, offset=offset, size=size)
            for name, (offset, size) in sorted(plan.banks.items(), key=lambda at: at[1])
        ),
        overlaps=tuple(tuple(tuple(side) for side in sides) for sides in plan.sides),
    )


def _numpy(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    artifact = numpy_artifact(module)
    program = content_of_bytes("targets/numpy/module.mlir", artifact.module)
    return _with_weights("numpy", artifact, program, store, PlanRecord())


def _with_weights(
    target: str,
    artifact: CArtifact | NumpyArtifact,
    program: Content,
    store: WeightStore,
    plan: PlanRecord,
) -> Made:
    """A program, and its weights in a member of their own."""
    member = f"weights/{target}.bin"
    weights = Content(member, artifact.weight_bytes, lambda: artifact.stream(store))
    return Made(artifact, member, (program, weights), plan)


def _tflite(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    return _with_file("tflite", emit_tflite(module, store), module, store)


def _neuron(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    built = compile_neuron(module, store, outside.soc, outside.warn)
    made = _with_file("neuron", built.artifact, module, store)
    others = [content_of_bytes(f"targets/neuron/{n}", raw) for n, raw in built.files.items()]
    return replace(
        made,
        contents=(*made.contents, *others),
        compatibility=Compatibility(soc=(built.soc,), sdk=built.sdk),
    )


def _with_file(target: str, artifact: TfliteArtifact, module: ModuleOp, store: WeightStore) -> Made:
    """A `.tflite`, which has its weights, and the module that says what it takes and gives."""
    member = f"targets/{target}/model.tflite"
    file = Content(member, artifact.size, lambda: artifact.stream(store))
    text = content_of_bytes(f"targets/{target}/module.mlir", f"{text_of(module)}\n".encode())
    return Made(artifact, member, (text, file))


def _qnn(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    """The file of all graphs, and the module that says what they take and give."""
    made = _qnn_functions(module, store, outside)
    text = content_of_bytes("targets/qnn/module.mlir", f"{text_of(module)}\n".encode())
    return replace(made, contents=(text, *made.contents))


def _qnn_functions(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    """A context binary; without the library, the sources that Qualcomm's SDK makes one from."""
    artifact = emit_qnn(module, store)
    name, made = artifact.soc.name, dict[str, bytes]()
    if libraries() is None:
        outside.warn(f"QNN is not installed, the bundle has sources for its SDK: {HOW}")
        made = sources(artifact.graphs)
    else:
        with Library(artifact.soc) as library:
            made[f"{name}{CONTEXT}"] = library.prepare(artifact.graphs)
    members = [content_of_bytes(f"targets/qnn/{file}", raw) for file, raw in made.items()]
    made_for = Compatibility(soc=(name,), sdk={"qairt": BUILD})
    return Made(artifact, "", members, compatibility=made_for)


def _rknn(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    built = compile_rknn(module, store, outside.samples, outside.warn)
    artifact, folder = built.artifact, "targets/rknn"
    program = artifact.program
    raw = {"module.mlir": program.module, **artifact.files}
    raw |= {f"{graph}.rknn": file for graph, file in built.files.items()}
    member = f"{folder}/{RKNN_WEIGHTS}"
    weights = Content(member, program.weight_bytes, lambda: program.stream(store))
    contents = [content_of_bytes(f"{folder}/{name}", file) for name, file in raw.items()]
    return Made(
        program,
        member,
        (*contents, weights),
        compatibility=Compatibility(soc=(artifact.plan.soc,), sdk=built.sdk),
    )


PROGRAMS: dict[str, Callable[[ModuleOp, WeightStore, Outside], Made]] = {
    "c": _c,
    "neuron": _neuron,
    "numpy": _numpy,
    "qnn": _qnn,
    "rknn": _rknn,
    "tflite": _tflite,
}
"""What each target makes of a module."""


def _tflite_functions(module: ModuleOp, store: WeightStore, outside: Outside) -> Made:
    artifact = emit_tflite(module, store)
    file = Content(tflite.MEMBER, artifact.size, lambda: artifact.stream(store))
    return Made(artifact, tflite.MEMBER, (file,))


PROGRAMS_OF_DEVICES: dict[str, Callable[[ModuleOp, WeightStore, Outside], Made]] = {
    "qnn": _qnn_functions,
    "tflite": _tflite_functions,
}
"""What each device makes of the functions that it runs for the target `c`."""

SDKS: dict[str, Sdk] = {
    "qnn": Sdk(name="qairt", version=VERSION),
    "tflite": Sdk(name=tflite.SDK[0], version=tflite.SDK[1]),
}
"""The library that runs them."""


def _block(device: str, made: Made, module: ModuleOp) -> DeviceBlock:
    """What a device must be, and what was placed on it."""
    own = {function.sym_name.data for function in device_functions(module, device)}
    plans = {
        graph.sym_name.data: GraphPlan(
            calls=tuple(calls), fallback=fallback_of(graph), plan=plan_of(graph)
        )
        for graph in graphs(module)
        if (calls := [name for name in callees(graph) if name in own])
    }
    members = tuple(content.name for content in made.contents)
    return DeviceBlock(sdk=SDKS[device], members=members, graphs=plans, soc=made.compatibility.soc)


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
