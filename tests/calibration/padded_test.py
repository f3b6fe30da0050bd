"""Samples of padded graphs: their tokens are the sample's, their past what ONNX Runtime says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from mllm_compiler.calibration.padded import write_padded
from mllm_compiler.dialects import make_context
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.calibration_data import graph_inputs
from mllm_compiler.pipelines import LIFT, SHAPES, pass_class
from tests.cli.recipes import tiny

RNG = np.random.default_rng(7)
PAST = "past_key_values.0.key"


def padded(name: str, dims: dict[str, DimSpec], sample: dict[str, np.ndarray], folder: Path):
    """The samples of each graph that a tiny model's only graph becomes, from one of its own."""
    imported = import_model(tiny(name), dims=dims)
    passes = [pass_class(p)() for p in (*SHAPES.passes, *LIFT.passes)]
    passes.append(pass_class("bucket-shapes")(static=True))
    run_passes(imported.module, passes, make_context(imported.store))
    entry = "decoder" if "past_sequence_length" in dims else "encoder"
    for part in ("given", "made"):
        (folder / part).mkdir()
    (folder / "given" / entry).mkdir()
    np.savez(folder / "given" / entry / "0.npz", allow_pickle=False, **sample)
    write_padded(imported.module, folder / "given", folder / "made", imported.store)
    names = [path.name for path in (folder / "made").iterdir()]
    return {graph: graph_inputs(str(folder / "made"), graph) for graph in names}


def test_a_decoder_reads_each_piece_behind_its_past(tmp_path: Path) -> None:
    dims = {
        "sequence_length": DimSpec(max=8, buckets=(1, 8)),
        "past_sequence_length": DimSpec(max=16),
    }
    session = onnxruntime.InferenceSession(tiny("tiny-llama") / "model.onnx")
    shapes = {i.name: i.shape for i in session.get_inputs()}
    past = {n: s for n, s in shapes.items() if n.startswith("past")}
    empty = {n: np.zeros((1, s[1], 0, s[3]), np.float32) for n, s in past.items()}
    ids = RNG.integers(0, 200, (1, 20))

    def sample(count: int) -> dict[str, np.ndarray]:
        ones, positions = np.ones((1, count), np.int64), np.arange(count)[None]
        named = {"input_ids": ids[:, :count], "attention_mask": ones, "position_ids": positions}
        return {**named, **empty}

    found = padded("tiny-llama", dims, sample(20), tmp_path)
    outputs = [o.name for o in session.get_outputs()]
    for at, (large, small) in enumerate(zip(found["decoder_8"], found["decoder_1"], strict=True)):
        count = min(8, 20 - 8 * at)
        np.testing.assert_array_equal(large["input_ids"][0, :count], ids[0, 8 * at :][:count])
        assert not large["input_ids"][0, count:].any()
        assert large["length.sequence_length"] == [count]
        assert small["input_ids"].tolist() == [[ids[0, 8 * at]]]
        assert small["position_ids"].tolist() == [[8 * at]]
        assert large["length.past_sequence_length"] == small["length.past_sequence_length"]
        assert small["length.past_sequence_length"] == [8 * at]
        np.testing.assert_array_equal(large[PAST], small[PAST])
        if at:
            given = dict(zip(outputs, session.run(None, sample(8 * at)), strict=True))
            want = given["present.0.key"]
            np.testing.assert_allclose(large[PAST][:, :, 16 - 8 * at :], want, atol=1e-5)
        assert not large[PAST][:, :, : 16 - 8 * at].any()
    assert len(found["decoder_8"]) == 3


def test_an_encoder_takes_what_it_has_room_for(tmp_path: Path) -> None:
    ids = RNG.integers(0, 200, (1, 20))
    sample = {"input_ids": ids, "attention_mask": np.ones((1, 20), np.int64)}
    sample["token_type_ids"] = np.zeros((1, 20), np.int64)
    found = padded(
        "tiny-bert", {"sequence_length": DimSpec(max=8, buckets=(8, 32))}, sample, tmp_path
    )
    (small,), (large,) = found["encoder_8"], found["encoder_32"]
    np.testing.assert_array_equal(small["input_ids"], ids[:, :8])
    assert small["length.sequence_length"] == [8]
    np.testing.assert_array_equal(large["input_ids"], np.pad(ids, ((0, 0), (0, 12))))
    assert large["length.sequence_length"] == [20]
