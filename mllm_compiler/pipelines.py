"""The pipelines: which passes run, in which order, and what holds after each stage."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from mllm_compiler.errors import CompileError

ROUNDING = 2e-5
"""The relative error that an exact rewrite of fp32 arithmetic may show: sums in another order."""

TOLERANCES: dict[str, float] = {
    "infer-shapes": 0.0,
    "fold-constants": ROUNDING,
    "canonical-form": ROUNDING,
    "lift-onnx": ROUNDING,
    "lift-tables": 0.0,
    "lift-linear": ROUNDING,
    "lift-packed": ROUNDING,
    "lift-quantized-linear": ROUNDING,
    "lift-norms": ROUNDING,
    "lift-activations": ROUNDING,
    "lift-rope": ROUNDING,
    "lift-selective-scan": ROUNDING,
    "lift-kv-append": 0.0,
    "lift-attention": ROUNDING,
    "lift-masks": ROUNDING,
    "lift-cross-attention": 0.0,
    "lift-gated-mlp": 0.0,
    "lift-mlp": 0.0,
    "lift-patch-embed": ROUNDING,
    "drop-tokens": math.inf,
    "prune-heads": math.inf,
    "rotate-weights": 1e-4,
    "smooth-activations": 1e-4,
    "quantise-linears": math.inf,
    "quantise-embeddings": math.inf,
    "common-subexpressions": 0.0,
    "cancel-transposes": 0.0,
    "fold-batch-norm": ROUNDING,
    "fuse-qkv": ROUNDING,
    "fuse-quantized-linear": 0.0,
    "fuse-rope": 0.0,
    "fuse-cached-attention": 0.0,
    "fuse-norm-gated-mlp": 0.0,
    "fuse-residual-norm": 0.0,
    "fuse-bias-activation": 0.0,
    "approximate-gelu": 1e-2,
    "quantise-cache": math.inf,
    "bucket-shapes": ROUNDING,
    "place": 0.0,
    "outline-devices": 0.0,
    "split-language-model": ROUNDING,
    "share-cross-kv": 0.0,
    "keep-values": 0.0,
    "lower-to-cpu": ROUNDING,
    "dynamic-rows": math.inf,
    "lower-to-tfl": ROUNDING,
    "lower-to-rknn": ROUNDING,
    "encode-tfl": math.inf,
    "host-first": 0.0,
    "lower-to-neuron": ROUNDING,
    "lower-to-qnn": 1e-3,
    "encode-qnn": math.inf,
    "plan-memory": 0.0,
}
"""The largest relative error that each pass promises; `--validate` holds it to that."""

PASSES = tuple(TOLERANCES)
"""Every pass of `mllm_compiler/passes/`, by its command-line name."""


Between = Callable[[ModulePass | None, ModuleOp, ModulePass | None], None]
"""Is told the pass before, the module, and the pass that follows."""


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline.

    Attributes:
        passes: The passes, in order.
        holds: What is true of the module afterwards.
    """

    passes: tuple[str, ...]
    holds: str


SHAPES = Stage(
    ("infer-shapes", "fold-constants"),
    "every value has a type with symbolic dims; what depends on weights alone is a weight",
)
LIFT = Stage(
    (
        "lift-onnx",
        "lift-tables",
        "lift-linear",
        "lift-packed",
        "lift-quantized-linear",
        "lift-norms",
        "lift-activations",
        "lift-rope",
        "lift-selective-scan",
        "lift-kv-append",
        "lift-attention",
        "lift-masks",
        "lift-cross-attention",
        "lift-gated-mlp",
        "lift-mlp",
        "lift-patch-embed",
    ),
    "what has an exact form is in the mllm dialect, each structure as one op",
)
PRUNE = ("drop-tokens", "prune-heads")
"""Passes behind the lift that change what a model computes, where they are asked for."""

QUANTISE = Stage(
    ("rotate-weights", "smooth-activations", "quantise-linears", "quantise-embeddings"),
    "products and look-ups have the formats of a recipe",
)
"""Behind the lift, where a recipe is given."""

FUSE = Stage(
    (
        "fold-constants",
        "fold-batch-norm",
        "cancel-transposes",
        "common-subexpressions",
        "fuse-qkv",
        "fuse-quantized-linear",
        "fuse-rope",
        "fuse-cached-attention",
        "fuse-norm-gated-mlp",
        "fuse-residual-norm",
        "fuse-bias-activation",
    ),
    "what one kernel can do at once is one op",
)
CACHE = Stage(("quantise-cache",), "attention reads a cache of codes where a recipe says so")
"""Behind fusion, where a recipe is given."""

TANH_GELU = Stage(("approximate-gelu",), "the only GELU is the one by a hyperbolic tangent")
BUCKET = Stage(
    ("bucket-shapes",),
    "a graph whose symbols have buckets is a graph of static shapes for each of them",
)
PLACE = Stage(("place",), "every op has a home on the target")
OUTLINE = Stage(("outline-devices",), "what another device runs is a function that graphs call")
"""Behind `place`, where graphs are placed on devices."""

SPLIT = Stage(
    ("split-language-model", "share-cross-kv"),
    "a language model has the entries prefill and decode, which read what is made once",
)
KEEP = Stage(("keep-values",), "what nodes of the model give is a result")
"""Behind the split, where values are asked for."""

LOWER = Stage(("lower-to-cpu",), "every op is a kernel of the C runtime; weights are packed")
LOWER_TFL = Stage(("dynamic-rows", "lower-to-tfl"), "every op is an operator of TFLite")
HOST_FIRST = Stage(("host-first",), "MediaTek's plugin has one network, all of it behind the CPU")
LOWER_QNN = Stage(("lower-to-qnn",), "every op is an operator of QNN")
LOWER_RKNN = Stage(("lower-to-rknn",), "every op is an operator of Rockchip's toolkit")
ENCODE_TFL = Stage(("encode-tfl",), "values between ops have codes where a recipe says so")
ENCODE: dict[str, Stage] = {
    "neuron": ENCODE_TFL,
    "qnn": Stage(("encode-qnn",), "values are halves, or codes that a recipe asks for"),
    "rknn": Stage((), "values are real: the toolkit gives them codes, from samples"),
    "tflite": ENCODE_TFL,
}
"""By target: behind lowering, values between ops have codes where a recipe has `[values]`."""

HOST = "c"
"""The target that calls devices."""

DEVICES: dict[str, Stage] = {
    "qnn": Stage((*LOWER_QNN.passes, *ENCODE["qnn"].passes), "every op is one that HTP computes"),
    "tflite": LOWER_TFL,
}
"""By device: how functions that it runs for the target `c` are lowered, before graphs are."""

PLAN = Stage(("plan-memory",), "every tensor that is not a weight has its place in the arena")

PIPELINES: dict[str, tuple[Stage, ...]] = {
    "lift": (SHAPES, LIFT),
    "fuse": (SHAPES, LIFT, FUSE),
    "numpy": (SHAPES, LIFT, FUSE, BUCKET, PLACE),
    "c": (SHAPES, LIFT, FUSE, BUCKET, PLACE, SPLIT, LOWER, PLAN),
    "tflite": (SHAPES, LIFT, FUSE, BUCKET, PLACE, LOWER_TFL),
    "neuron": (SHAPES, LIFT, FUSE, TANH_GELU, BUCKET, PLACE, LOWER_TFL, HOST_FIRST),
    "qnn": (SHAPES, LIFT, FUSE, BUCKET, PLACE, LOWER_QNN, ENCODE["qnn"]),
    "rknn": (SHAPES, LIFT, FUSE, BUCKET, PLACE, LOWER_RKNN),
}
"""Pipelines by name; those of targets have the target's name."""

TARGETS = ("c", "neuron", "numpy", "qnn", "rknn", "tflite")
"""The backends that `--target` names."""


def pass_class(name: str) -> type[ModulePass]:
    """The class of a pass: `FuseGeglu` of `passes/fuse_geglu.py` for `fuse-geglu`."""
    module = import_module(f"mllm_compiler.passes.{name.replace('-', '_')}")
    return cast("type[ModulePass]", getattr(module, class_name(name)))


def class_name(name: str) -> str:
    """The name of a pass's class."""
    return "".join(word.capitalize() for word in name.split("-"))


def pass_names(
    pipeline: str,
    *,
    pruning: Sequence[str] = (),
    quantised: bool = False,
    kept: bool = False,
    devices: Sequence[str] = (),
) -> tuple[str, ...]:
    """The passes of a pipeline in order, with those that prune, of a recipe, and of devices.

    Where values are kept, they are so before the module is lowered.
    """
    names = list[str]()
    for stage in PIPELINES[pipeline]:
        if stage is LOWER:
            names += [name for device in devices for name in DEVICES[device].passes]
        names += stage.passes
        if stage is PLACE and devices:
            names += OUTLINE.passes
        if stage is LIFT:
            names += [*pruning, *(QUANTISE.passes if quantised else ())]
        if stage is FUSE and quantised:
            names += CACHE.passes
        if stage is LOWER_TFL and quantised:
            names += ENCODE_TFL.passes
    if not kept:
        return tuple(names)
    lowers = [name for device in devices for name in DEVICES[device].passes] + [*LOWER.passes]
    at = min((names.index(name) for name in lowers if name in names), default=len(names))
    return (*names[:at], *KEEP.passes, *names[at:])


def read_passes(
    spec: str,
    available: Mapping[str, Callable[[], type[ModulePass]]],
    where: str,
    callback: Between | None = None,
) -> PassPipeline:
    """The passes that `name{option=value},name` asks for.

    Raises:
        CompileError: `MLC-U004`, one is unknown, or an option is.
    """
    try:
        for wanted in parse_pipeline(spec):
            check_pass(wanted.name, available, where)
        return PassPipeline.parse_spec(dict(available), spec, callback)
    except ArgSpecParseError as fault:
        message = str(fault).strip().splitlines()[-1]
    except ValueError as fault:
        message = str(fault)
    remedy = "write passes as name{option=value},name"
    raise CompileError("MLC-U004", message, location=where, remedy=remedy)


def check_target(target: str, where: str) -> None:
    """Refuses a target that does not exist.

    Raises:
        CompileError: `MLC-U002`.
    """
    if target not in TARGETS:
        raise CompileError(
            "MLC-U002",
            f"unknown target '{target}'",
            location=where,
            remedy=f"targets: {', '.join(TARGETS)}",
        )


def check_device(target: str, host: str, where: str) -> None:
    """Refuses a target that no other one calls.

    Raises:
        CompileError: `MLC-U002`.
    """
    if target not in DEVICES:
        raise CompileError(
            "MLC-U002",
            f"the target '{target}' is no device that '{host}' calls",
            location=where,
            remedy=f"leave {where} out, or take one of these targets: {', '.join(DEVICES)}",
        )


def check_places(places: Mapping[str, str], target: str, where: str) -> tuple[str, ...]:
    """The devices that graphs are placed on; refuses what is none.

    Raises:
        CompileError: `MLC-U002`, with the nearest one; `MLC-U007`, the target calls no devices.
    """
    for name in places.values():
        if name in (*DEVICES, target):
            continue
        near = difflib.get_close_matches(name, DEVICES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"devices: {', '.join(DEVICES)}"
        raise CompileError("MLC-U002", f"no device '{name}'", location=where, remedy=hint)
    devices = tuple(name for name in DEVICES if name in places.values() and name != target)
    if devices and target != HOST:
        text, remedy = f"the target '{target}' calls no other device", f"give --target {HOST}"
        raise CompileError("MLC-U007", text, location=where, remedy=remedy)
    return devices


def check_values(target: str, recipe: str) -> None:
    """Refuses codes for values on a target whose ops compute on reals.

    Raises:
        CompileError: `MLC-Q006`.
    """
    if target not in ENCODE:
        raise CompileError(
            "MLC-Q006",
            f"the target '{target}' has no values of codes, which [values] asks for",
            location=recipe,
            remedy="take a recipe without [values], or a target whose ops compute on codes",
        )


def check_pass(name: str, known: Iterable[str], where: str) -> None:
    """Refuses a pass that a pipeline does not have.

    Raises:
        CompileError: `MLC-U004`, with the nearest one.
    """
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"passes: {', '.join(names)}"
    raise CompileError("MLC-U004", f"no pass '{name}' here", location=where, remedy=hint)
