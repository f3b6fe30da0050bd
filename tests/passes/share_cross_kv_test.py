"""Cross-attention's keys and values are made once: the tokens are those of ONNX Runtime.

The model is `tiny-flamingo`, whose decoder takes all features of the image in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import onnxruntime
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.backends.runner import Session
from mllm_compiler.dialects import cpu, make_context
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.hal import cost_of
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import observe, run_passes
from mllm_compiler.passes.graphs import argument_names, block_of, graphs, pipeline_of, result_names
from mllm_compiler.passes.plan_memory import IO_SLOT
from mllm_compiler.pipelines import CACHE, QUANTISE, pass_class, pass_names
from mllm_compiler.reference import find_function
from mllm_compiler.validate import Validator
from mllm_compiler.weights import WeightStore
from models.build import built

Tensors = Mapping[str, np.ndarray]
Step = Callable[[str, Tensors], Tensors]
SHARED = [f"last_hidden_state.{n}" for n in range(4)]
"""Keys and values of two layers."""

ROWS, SIZE = 17, 32
"""The features of an image."""


@cache
def split(recipe: str = "") -> tuple[ModuleOp, WeightStore]:
    """The model as the pass finds it."""
    imported = import_model(built("tiny-flamingo"))
    names = pass_names("c", quantised=bool(recipe))
    told = (*QUANTISE.passes, *CACHE.passes)
    for name in names[: names.index("share-cross-kv")]:
        this = pass_class(name)(**{"recipe": recipe} if name in told else {})
        run_passes(imported.module, [this], make_context(imported.store))
    return imported.module, imported.store


def shared(recipe: str = "") -> tuple[ModuleOp, WeightStore]:
    """The model as the pass leaves it."""
    module, store = split(recipe)
    module = module.clone()
    run_passes(module, [pass_class("share-cross-kv")()], make_context(store))
    return module, store


def projections(graph: FuncOp) -> int:
    """The products that make keys and values of the image."""
    ops = [op for op in block_of(graph).ops if "to_kv" in location_name(op)]
    return sum(op.name in ("mllm.linear", "mllm.quantized_linear") for op in ops)


def test_no_entry_makes_keys_and_values_of_the_image() -> None:
    module, _ = shared()
    found = {g.sym_name.data: projections(g) for g in graphs(module)}
    assert found == {"vision": 4, "decoder": 4, "prefill": 0, "decode": 0}
    assert result_names(find_function(module, "vision")) == ["last_hidden_state", *SHARED]
    for entry in ("prefill", "decode"):
        names = argument_names(find_function(module, entry))
        assert names[-4:] == SHARED
        assert "image_features" not in names
    edges = {(e.consumer.data, e.input.data, e.output.data) for e in pipeline_of(module).edges}
    carried = {(entry, name, name) for entry in ("prefill", "decode") for name in SHARED}
    assert edges == {("decoder", "image_features", "last_hidden_state")} | carried


def cost(module: ModuleOp, entry: str) -> tuple[int, int]:
    """Operations and bytes of a step."""
    sizes = {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 255}
    ops = [op for op in block_of(find_function(module, entry)).ops if op.operands and op.results]
    costs = [cost_of(op, sizes) for op in ops]
    return sum(c.flops for c in costs), sum(c.bytes for c in costs)


def test_a_step_does_without_the_projections() -> None:
    """Each of four read the features and a matrix, and wrote as many rows as it read."""
    (before, bytes_before), (after, bytes_after) = (
        cost(module, "decode") for module, _ in (split(), shared())
    )
    print(f"a step: {before} -> {after} operations, {bytes_before} -> {bytes_after} bytes")
    assert before - after == 4 * 2 * ROWS * SIZE * SIZE
    assert bytes_before - bytes_after == 4 * 4 * (2 * ROWS * SIZE + SIZE * SIZE)


@pytest.mark.parametrize("recipe", ["", "w8a8", "w4a8"])
def test_the_pipeline_gives_every_bit_that_it_gave(recipe: str) -> None:
    module, store = split(recipe)
    module = module.clone()
    validator = Validator(store, {"share-cross-kv": 0.0})
    observe(0, "import", 0.0, module, [validator])
    run_passes(module, [pass_class("share-cross-kv")()], make_context(store), [validator])
    proof = validator.proofs["share-cross-kv"]
    assert (proof.error, proof.runs) == (0.0, 15)
    assert not any(projections(find_function(module, e)) for e in ("prefill", "decode"))


def lowered() -> tuple[ModuleOp, WeightStore]:
    """The model as the target c has it."""
    module, store = shared()
    names = pass_names("c")
    lower = [pass_class(n)() for n in names[names.index("lower-to-cpu") :]]
    run_passes(module, lower, make_context(store))
    return module, store


@pytest.fixture
def steps() -> Iterator[Sequence[Step]]:
    """Both targets; each keeps what entries give one another."""
    module, store = lowered()
    with CRunner(emit(module), store) as runner:

        def on_c(entry: str, inputs: Tensors) -> Tensors:
            return runner.run(entry, inputs, only=[] if entry == "vision" else ["logits"])

        yield Session(NumpyRunner(*shared())).run, on_c


def test_the_answer_is_that_of_onnx_runtime(steps: Sequence[Step]) -> None:
    """Entries get tokens alone: what the image gives lies where `vision` left it."""
    pixels = np.random.default_rng(0).standard_normal((1, 3, 56, 56)).astype(np.float32)
    expected = logits_of_onnx_runtime(pixels)
    for step in steps:
        step("vision", {"pixel_values": pixels})
        for number, (tokens, logits) in enumerate(expected):
            got = step("decode" if number else "prefill", {"input_ids": tokens})["logits"]
            scale = np.abs(logits).max()
            assert np.abs(got[:, -1] - logits[:, -1]).max() <= 1e-5 * scale


def logits_of_onnx_runtime(pixels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The tokens of each step, a prompt and the likeliest ones, and the logits after it."""
    folder = built("tiny-flamingo")
    vision, decoder = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx")
        for name in ("vision_encoder", "decoder")
    )
    (features,) = vision.run(None, {"pixel_values": pixels})
    outputs = [output.name for output in decoder.get_outputs()]
    tokens, steps = np.array([[7, 3, 150, 9]]), list[tuple[np.ndarray, np.ndarray]]()
    past = {
        n.replace("present", "past_key_values"): np.zeros((1, 2, 0, 8), np.float32)
        for n in outputs[1:]
    }
    length = 0
    for _ in range(6):
        places = np.arange(length, length + tokens.shape[1])[None]
        length += tokens.shape[1]
        given = {"input_ids": tokens, "position_ids": places, "image_features": features}
        mask = {"attention_mask": np.ones((1, length), np.int64)}
        made = dict(zip(outputs, decoder.run(None, {**given, **mask, **past}), strict=True))
        steps.append((tokens, made["logits"]))
        past = {n.replace("present", "past_key_values"): made[n] for n in outputs[1:]}
        tokens = made["logits"][:, -1:].argmax(-1)
    return steps


def test_both_entries_read_one_tensor_and_nothing_is_copied() -> None:
    module, _ = lowered()
    vision = find_function(module, "vision")
    assert vision.res_attrs is not None
    places = [port.data[IO_SLOT] for port in vision.res_attrs.data[1:]]
    assert len(set(places)) == 4
    for entry in ("prefill", "decode"):
        graph = find_function(module, entry)
        assert graph.arg_attrs is not None
        assert [port.data.get(IO_SLOT) for port in graph.arg_attrs.data[-4:]] == places
        assert not [op for op in block_of(graph).ops if isinstance(op, cpu.CopyOp)]
