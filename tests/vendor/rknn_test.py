"""Models in Rockchip's toolkit: the NPU has all that computes, and the simulator agrees.

Numbers are relative to the reference of the rknn dialect, in single precision on the same inputs;
those of 8 bits to the toolkit's own f16 graph, since it calibrates by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.backends.rknn.compile import write_files
from mllm_compiler.backends.rknn.emit import emit
from mllm_compiler.backends.rknn.placement import PORTS, check_placement, on_cpu
from mllm_compiler.backends.rknn.read import NPU, RknnFile, read_rknn
from mllm_compiler.backends.rknn.sdk import need_toolkit
from mllm_compiler.hal import target
from mllm_compiler.importer import DimSpec
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from tests.passes.lower_to_rknn_test import lowered, lowered_model
from tests.vendor.rknn_toolkit import NEEDS_TOOLKIT

pytestmark = NEEDS_TOOLKIT
Array = np.ndarray
Record = Callable[[str, object], None]

MOVES = {"Cast", "Gather", "Less", "Equal", "Not", "Reshape", "Transpose"}
"""Operators without arithmetic on reals, which the CPU may run: look-ups, masks, layouts."""

ATTENDING = {"tiny-llama": 2, "tiny-vit": 2}
"""Blocks of a model: each is one operator of attention on the NPU."""


LAYERS = """
name = "layers"

[graphs.decoder]
file = "model.onnx"
role = "language-model"

[graphs.decoder.cache]
key = "past_key_values.{layer}.key"
value = "past_key_values.{layer}.value"
out = "present.{layer}.{kind}"

[dims]
batch_size = { max = 1 }
"""


@dataclass(frozen=True)
class Ran:
    """What the toolkit made of a graph: its file, its results, and the reference's."""

    file: RknnFile
    size: int
    got: Mapping[str, Array]
    want: Mapping[str, Array]


def ran(runner: NumpyRunner, folder: Path) -> tuple[dict[str, Ran], float]:
    """Every graph of a module, built and simulated on one sample; and the seconds of building."""
    samples = folder / "given"
    module, pipeline = runner.module, pipeline_of(runner.module)
    inputs = {g.sym_name.data: seeded_inputs(g, pipeline) for g in graphs(module)}
    for name, arrays in inputs.items():
        (samples / name).mkdir(parents=True)
        np.savez(samples / name / "0000.npz", allow_pickle=False, **arrays)
    artifact = emit(module, runner.store, str(samples))
    write_files(artifact, runner.store, folder)
    toolkit, start = need_toolkit(), time.perf_counter()
    toolkit.build(folder, artifact.graphs)
    seconds, found = time.perf_counter() - start, dict[str, Ran]()
    for name, arrays in inputs.items():
        raw = (folder / f"{name}.rknn").read_bytes()
        file = read_rknn(raw, name)
        check_placement(file, target("rknn").soc(artifact.plan.soc), name)
        simulator = toolkit.simulator(folder, name)
        try:
            got = simulator.run(arrays)
        finally:
            simulator.close()
        found[name] = Ran(file, len(raw), got, run_function(module, name, arrays, runner.store))
    return found, seconds


def row(record: Record, model: str, form: str, made: tuple[dict[str, Ran], float]) -> float:
    """The least cosine of a model's results, which the table gets a row of."""
    found, seconds = made
    nodes = [n for r in found.values() for n in r.file.nodes if n.type not in PORTS]
    share = sum(node.unit == NPU for node in nodes) / len(nodes)
    least = min(cosine(r.got[k], r.want[k]) for r in found.values() for k in r.want)
    size = sum(r.size for r in found.values())
    cells = (f"{share:.1%} of operators", f"{least:.6f}", f"{size / 1e6:.2f}", f"{seconds:.1f}")
    record("vendor", ("rknn", model, form, *cells))
    return least


def computes_on_the_npu(file: RknnFile) -> bool:
    return {n.type for n in on_cpu(file) if not n.counts} <= MOVES


@pytest.mark.parametrize("soc", ["rk3588", pytest.param("rk3576", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-vit", "tiny-whisper", "tiny-convnext"])
def test_f16_is_the_reference(name: str, soc: str, tmp_path: Path, record_property: Record) -> None:
    _, runner = lowered(name, "", soc)
    made = ran(runner, tmp_path)
    assert row(record_property, name, f"f16 {soc}", made) > 0.9999
    for graph in made[0].values():
        assert graph.file.soc == soc
        assert computes_on_the_npu(graph.file)
        attending = [n for n in graph.file.nodes if n.type == "exSDPAttention" and n.unit == NPU]
        assert len(attending) == ATTENDING.get(name, len(attending))


@pytest.mark.parametrize("name", ["tiny-llama", pytest.param("tiny-vit", marks=pytest.mark.slow)])
def test_8_bits_are_the_toolkits_own_float_graph(
    name: str, tmp_path: Path, record_property: Record
) -> None:
    coded = ran(lowered(name, "w8a8-npu")[1], tmp_path / "coded")
    real = ran(lowered(name)[1], tmp_path / "real")
    beside = {g: replace(r, want=real[0][g].got) for g, r in coded[0].items()}
    assert row(record_property, name, "w8a8 rk3588", (beside, coded[1])) > 0.995
    assert all(computes_on_the_npu(r.file) for r in coded[0].values())


@pytest.mark.slow
def test_4_bits_of_groups_are_near_what_the_recipe_chose(
    tmp_path: Path, record_property: Record
) -> None:
    """The toolkit chooses 4-bit codes once more, for the head too: 0.99 is its rounding's cost."""
    _, runner = lowered("tiny-llama", "w4a16-g32", "rk3576")
    made = ran(runner, tmp_path)
    assert row(record_property, "tiny-llama", "w4a16 group32 rk3576", made) > 0.98
    assert all(computes_on_the_npu(r.file) for r in made[0].values())


@pytest.mark.slow
def test_a_real_encoder_is_the_reference(tmp_path: Path, record_property: Record) -> None:
    path = build_recipe("dinov2-s14", lambda line: None)
    made = ran(lowered_model(path, {}, "", "rk3588")[1], tmp_path)
    assert row(record_property, "dinov2-s14", "f16 rk3588", made) > 0.999
    assert all(computes_on_the_npu(r.file) for r in made[0].values())


@pytest.mark.slow
def test_two_layers_of_a_real_decoder_are_the_reference(
    tmp_path: Path, record_property: Record
) -> None:
    from models.recipe.gguf_weights import smollm2
    from models.recipe.llama import decoder

    language = smollm2()
    config = replace(language.config, layers=2)
    decoder(config, language.weights).save(tmp_path / "model.onnx", external=True)
    (tmp_path / "model.toml").write_text(LAYERS)
    sizes = {
        "sequence_length": DimSpec(max=32, buckets=(1, 32)),
        "past_sequence_length": DimSpec(max=64),
    }
    _, runner = lowered_model(tmp_path, sizes, "", "rk3588")
    made = ran(runner, tmp_path / "built")
    assert row(record_property, "SmolLM2, 2 layers", "f16 rk3588", made) > 0.9999
    assert all(computes_on_the_npu(r.file) for r in made[0].values())


def cosine(a: Array, b: Array) -> float:
    x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))
