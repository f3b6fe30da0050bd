"""Compiles a model: from ONNX to a signed bundle, with everything that a user may look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from mllm_compiler.assembly import Outside, assemble
from mllm_compiler.backends.c.emit_c import emit_c
from mllm_compiler.bundle.files import atomic_output, check_output
from mllm_compiler.bundle.manifest import Manifest
from mllm_compiler.bundle.writer import check_size, write_bundle
from mllm_compiler.calibration import Model, write_samples
from mllm_compiler.calibration.padded import write_padded
from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.flops import lifted_share
from mllm_compiler.hal import STATIC, target
from mllm_compiler.importer import DimSpec, Imported, ModelSpec, import_model
from mllm_compiler.pass_run import IMPORT, Observer, PassRecord, observe, run_passes
from mllm_compiler.passes.device_plan import MOST_CALLS
from mllm_compiler.passes.lower_to_rknn import asked_by
from mllm_compiler.passes.place import BY_COST, NONE
from mllm_compiler.passes.placed_graphs import ALL, check_graphs, spelled_out
from mllm_compiler.passes.quantised_caches import quantised_caches
from mllm_compiler.passes.quantised_products import quantised_products
from mllm_compiler.pipelines import (
    CACHE,
    ENCODE,
    ENCODE_TFL,
    LIFT,
    PRUNE,
    QUANTISE,
    TOLERANCES,
    check_device,
    check_pass,
    check_places,
    check_target,
    check_values,
    pass_class,
    pass_names,
    read_passes,
)
from mllm_compiler.quantisation.recipe import Limits, Recipe, read_recipe
from mllm_compiler.quantised_bundle import QuantisationRecord
from mllm_compiler.validate import Case, Proof, Validator
from mllm_compiler.validate.samples import samples_of

Step = Callable[[str], None]
"""Takes the name of what is done next."""


PROVEN_ON = Limits(tokens=128, window=64, files=4)
"""As much of the user's data shows whether a pass is right; each is run before and after it."""

OWN_CODES = frozenset(name for name, stage in ENCODE.items() if not stage.passes)
"""Targets whose vendor gives values codes by itself, from samples in the bundle."""

ENCODING = tuple(name for stage in ENCODE.values() for name in stage.passes)
SAMPLED = ("prune-heads", "smooth-activations", "quantise-linears", *CACHE.passes, *ENCODING)
"""Passes with an option `data`: the samples of each graph, as the module is when they are made."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compile and how far.

    Attributes:
        model: An `.onnx` file, a `model.toml`, or a folder.
        target: The backend.
        dims: Dimensions that go before those of the model, by symbol.
        output: The bundle to write; without one nothing is written.
        key: Signs the bundle; without one it is unsigned.
        soc: The chip, of a target that has some; without one the target's first.
        quant: The recipe that it is quantised by; without one it is not.
        prune: Passes that prune, `drop-tokens{after=2 keep=196}`, separated by commas.
        places: The device that a graph runs on instead, by the graph's name.
        fallback: Where operations may run that the target cannot; `none` refuses them.
        max_partitions: The calls of a device in one run of a graph that there may be.
        partition: Beside a fallback, `cost` gives a device what is cheaper there by the tables,
            `most` all that it runs.
        stop_after: The last pass; no artifact is made then.
        simplify: Whether onnxsim runs first.
        emit_c: Whether the program is also written as readable C, beside the bundle.
        validate: Whether each pass is proven on seeded inputs.
        data: A folder of samples: what the recipe and the pruning of heads are calibrated on, and
            passes are proven on.
        keep_values: A pattern of nodes whose values graphs return too, to be looked at.
    """

    model: Path
    target: str = "c"
    dims: Mapping[str, DimSpec] = field(default_factory=dict[str, DimSpec])
    output: Path | None = None
    key: Ed25519PrivateKey | None = None
    soc: str | None = None
    quant: str | None = None
    prune: str = ""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    fallback: str = "none"
    max_partitions: int = MOST_CALLS
    partition: str = BY_COST
    stop_after: str | None = None
    simplify: bool = False
    emit_c: bool = False
    validate: bool = False
    data: Path | None = None
    keep_values: str | None = None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What came out.

    Attributes:
        name: The model's name.
        target: The backend.
        module: The module as the last pass left it.
        records: A record a pass, the import first.
        lifted_share: The share of floating-point operations that is in the mllm dialect after the
            last lift.
        proofs: How far each pass moved the results, where they were validated.
        quantisation: What a recipe made of its products.
        manifest: The bundle's manifest, where one was written.
        output: The bundle.
        sources: Files of readable C.
        seconds: Wall time of all of it.
    """

    name: str
    target: str
    module: ModuleOp
    records: tuple[PassRecord, ...]
    lifted_share: float
    proofs: dict[str, Proof]
    quantisation: QuantisationRecord
    manifest: Manifest | None
    output: Path | None
    sources: tuple[Path, ...]
    seconds: float


def compile_model(
    request: Request,
    *,
    observers: Sequence[Observer] = (),
    step: Step = lambda text: None,
    warn: Step = lambda text: None,
) -> Compiled:
    """Compiles a model.

    Args:
        request: What to compile and how far.
        observers: See the module after the import and after each pass.
        step: Is told what is done next.
        warn: Is told what makes the result worth less than it looks.

    Raises:
        CompileError: The input, the usage or a placement is at fault.
    """
    start = time.perf_counter()
    check_target(request.target, "--target")
    request = _called_by_host(request)
    devices = check_places(request.places, request.target, "--place")
    _check_soc(request)
    recipe = None if request.quant is None else read_recipe(request.quant)
    if recipe is not None and recipe.values is not None:
        check_values(request.target, recipe.name)
    pruning = _pruning(request)
    names = _names(request, tuple(pruning), devices)
    if request.output is not None and request.stop_after is None:
        check_output(request.output)
    step("importing")
    imported = import_model(request.model, dims=request.dims, simplify=request.simplify)
    check_graphs(imported.module, request.places)
    request = _with_places(request, imported.module, warn)
    if request.output is not None and request.stop_after is None:
        check_size(imported.store.nbytes, request.output)
    validator = Validator(imported.store, TOLERANCES, _samples(request, imported, warn))
    watching = [*observers, *([validator] if request.validate else [])]
    module = imported.module
    seconds = time.perf_counter() - start
    lifted = lifted_share(module)
    records = [observe(0, IMPORT, seconds, module, watching)]
    context = make_context(imported.store)
    record, samples = QuantisationRecord(), None
    with TemporaryDirectory(prefix="mllm-samples-") as folder:
        for name in names:
            if (limits := _calibration(name, recipe, request)) is not None:
                step("calibrating")
                model = Model(module, imported.spec, imported.store)
                samples = Path(folder) / name
                write_samples(model, request.data, samples, limits, warn)
            if name in ENCODING and samples is not None and request.target in ENCODE:
                step("calibrating")
                given, samples = samples, Path(folder) / name
                write_padded(module, given, samples, imported.store)
            step(name)
            options = _options(name, request, imported.spec)
            options |= {"data": str(samples)} if samples and name in SAMPLED else {}
            known = pruning.get(name)
            this = pass_class(name)(**options) if known is None else replace(known, **options)
            records += run_passes(module, [this], context, watching, first=len(records))
            lifted = lifted_share(module) if name in LIFT.passes else lifted
            if name == QUANTISE.passes[-1] and recipe is not None:
                products = tuple(quantised_products(module))
                record = QuantisationRecord(name=recipe.name, recipe=recipe.text, products=products)
            if name in CACHE.passes:
                caches = tuple(quantised_caches(module, imported.store))
                record = replace(record, caches=caches)
        manifest, sources = None, ()
        if request.stop_after is None:
            if samples is not None and request.target in OWN_CODES:
                step("calibrating")
                given, samples = samples, Path(folder) / "padded"
                write_padded(module, given, samples, imported.store)
            step("writing the bundle")
            given = "" if samples is None else str(samples)
            outside = Outside(soc=request.soc, samples=given, warn=warn)
            manifest = _write(request, imported, record, outside)
            sources = _write_c(request, module)
    return Compiled(
        name=imported.spec.name,
        target=request.target,
        module=module,
        records=tuple(records),
        lifted_share=lifted,
        proofs=validator.proofs,
        quantisation=record,
        manifest=manifest,
        sources=sources,
        output=request.output if manifest is not None else None,
        seconds=time.perf_counter() - start,
    )


def _called_by_host(request: Request) -> Request:
    """A target beside a fallback is a device for all graphs; the fallback runs the program."""
    if request.fallback == NONE or request.target == request.fallback:
        return request
    check_device(request.target, request.fallback, "--fallback")
    places = {ALL: request.target, **request.places}
    return replace(request, target=request.fallback, places=places)


def _with_places(request: Request, module: ModuleOp, warn: Step) -> Request:
    """The request with a device for each graph that has one, by its name."""
    places = spelled_out(module, request.places)
    if request.places and not places:
        warn(
            f"all of it runs on '{request.target}': a graph that appends to a KV cache leaves it "
            "where its sizes have buckets, --dim sequence_length=1,32"
        )
    return replace(request, places=places)


def _check_soc(request: Request) -> None:
    """Refuses a chip that the target does not have, or that lacks what the recipe asks for."""
    named = (request.target, *request.places.values())
    chips = target(next((name for name in named if target(name).socs), request.target))
    if request.soc is None and not chips.socs:
        return
    soc = chips.soc(request.soc)
    if request.target == "rknn":
        form, _ = asked_by(request.quant or "")
        soc.check_form(form, f"--soc {soc.name}")


def _pruning(request: Request) -> dict[str, ModulePass]:
    """The passes that prune, by name and in order."""
    known = {name: partial(pass_class, name) for name in PRUNE}
    passes = read_passes(request.prune, known, "--prune").passes
    by_name = {one.name: one for one in passes}
    if len(by_name) < len(passes):
        text, remedy = "a pass is named twice", "give its options once"
        raise CompileError("MLC-U007", text, location="--prune", remedy=remedy)
    if any(getattr(one, "data", "") for one in passes):
        text, remedy = "samples are no option of a pass here", "name their folder with --data"
        raise CompileError("MLC-U007", text, location="--prune", remedy=remedy)
    return by_name


def _calibration(name: str, recipe: Recipe | None, request: Request) -> Limits | None:
    """How many samples are made before a pass; None where those before, or none, will do."""
    if name == "prune-heads":
        return Limits()
    if name != QUANTISE.passes[0] or recipe is None:
        return None
    wanted = recipe.needs_data or request.data is not None or request.target in OWN_CODES
    return recipe.calibration if wanted else None


def _samples(
    request: Request, imported: Imported, warn: Callable[[str], None]
) -> Mapping[str, Sequence[Case]]:
    """What passes are proven on besides seeded inputs."""
    data = request.data
    if data is None or not request.validate:
        return {}
    if any(data.rglob("*.npz")) or not data.is_dir():
        return samples_of(data, imported.module)
    with TemporaryDirectory(prefix="mllm-samples-") as folder:
        model = Model(imported.module, imported.spec, imported.store)
        write_samples(model, data, Path(folder), PROVEN_ON, warn)
        return samples_of(Path(folder), imported.module)


def _names(request: Request, pruning: Sequence[str], devices: Sequence[str]) -> tuple[str, ...]:
    """The passes to run."""
    quantised = request.quant is not None
    kept = request.keep_values is not None
    names = pass_names(
        request.target, pruning=pruning, quantised=quantised, kept=kept, devices=devices
    )
    if request.stop_after is None:
        return names
    if request.stop_after == IMPORT:
        return ()
    check_pass(request.stop_after, (IMPORT, *names), "--stop-after")
    return names[: names.index(request.stop_after) + 1]


def _options(name: str, request: Request, spec: ModelSpec) -> dict[str, Any]:
    """What a pass must be told of the model or the target."""
    own = {"target": request.target} if target(request.target).operators else {}
    if name in (*QUANTISE.passes, *CACHE.passes, *ENCODING) and request.quant is not None:
        return {"recipe": request.quant, **(own if name in ENCODE_TFL.passes else {})}
    if name in ("infer-shapes", "bucket-shapes"):
        return _static(request)
    if name == "place":
        places = tuple(f"{graph}={device}" for graph, device in request.places.items())
        return {
            "target": request.target,
            "fallback": request.fallback,
            "graphs": places,
            "max_partitions": request.max_partitions,
            "partition": request.partition,
        }
    if name == "lower-to-qnn":
        return {"soc": request.soc or ""}
    if name == "lower-to-tfl":
        return own
    if name == "lower-to-rknn":
        return {"soc": target("rknn").soc(request.soc).name, "recipe": request.quant or ""}
    if name == "keep-values" and request.keep_values is not None:
        return {"nodes": request.keep_values}
    if name == "split-language-model" and spec.text is not None and spec.text.embedding:
        return {"embedding": spec.text.embedding}
    return {}


def _static(request: Request) -> dict[str, Any]:
    """Which graphs get static shapes: all on such a target, else those on such a device."""
    if target(request.target).shapes == STATIC:
        return {"static": True}
    placed = (graph for graph, name in request.places.items() if target(name).shapes == STATIC)
    names = tuple(placed)
    return {"static": bool(names), "graphs": names}


def _write_c(request: Request, module: ModuleOp) -> tuple[Path, ...]:
    """Writes `NAME.h` and `NAME.c` beside the bundle that they do the same as."""
    if not request.emit_c or request.output is None:
        return ()
    source = emit_c(module, request.output.stem)
    written: list[Path] = []
    for suffix, text in ((".h", source.header), (".c", source.source)):
        path = request.output.with_name(f"{source.name}{suffix}")
        with atomic_output(path) as out:
            out.write(text.encode())
        written.append(path)
    return tuple(written)


def _write(
    request: Request, imported: Imported, record: QuantisationRecord, outside: Outside
) -> Manifest | None:
    if request.output is None:
        return None
    assembled = assemble(imported.module, request.target, imported.spec, imported.store, outside)
    contents = [*assembled.contents, *([record.member] if record.recipe else [])]
    return write_bundle(request.output, assembled.manifest, contents, key=request.key)
