"""`mllmc quantize`: a bundle that says what it holds; drift is seen and refreshed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.cli.main import run
from mllm_compiler.quantisation.drift import Drift, drifts
from mllm_compiler.quantised_bundle import read_record
from tests.cli.recipes import tiny

Captured = pytest.CaptureFixture[str]
RNG = np.random.default_rng(2)
OUT = "out.mllm_bundle"


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def pixels(folder: str, factor: float) -> str:
    Path(folder).mkdir()
    array = (RNG.standard_normal((1, 3, 56, 56)) * factor).astype(np.float32)
    np.savez(Path(folder) / "a.npz", pixel_values=array)
    return folder


def quantize(*words: str) -> int:
    return run(["quantize", str(tiny("tiny-vit")), "--target", "numpy", "-o", OUT, *words])


def test_a_bundle_says_what_became_of_each_product(capsys: Captured) -> None:
    assert quantize("--recipe", "w8a8-static", "--data", pixels("old", 1), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    record = read_record(Path(OUT))
    assert record.name == "w8a8-static"
    assert "activations" in record.recipe
    # Two layers of attention (4) and a feed-forward block (2).
    assert len(record.products) == facts["products"] == 12
    assert {(p.bits, p.activations) for p in record.products} == {(8, "static")}
    assert all(extent > 0 for extent in record.extents.values())
    inner = next(p for p in record.products if p.weights == 32 * 64)
    rows = inner.stored_bits - 8 * inner.weights
    assert rows in (16 * 32, 16 * 64)  # an f16 scale for each output channel
    assert facts["bits_per_weight"] == record.bits_per_weight
    assert 8 < record.bits_per_weight < 8.6


def test_new_samples_refresh_the_scales_and_show_what_drifted(capsys: Captured) -> None:
    assert quantize("--recipe", "w8a8-static", "--data", pixels("old", 1)) == 0
    old = read_record(Path(OUT))
    assert quantize("--refresh", "--data", "old", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["drifted"] == []
    assert quantize("--refresh", "--data", pixels("new", 30)) == 0
    shown = capsys.readouterr().out
    new = read_record(Path(OUT))
    assert new.recipe == old.recipe
    moved = {n for n, s in new.extents.items() if not 0.8 < s / old.extents[n] < 1.25}
    assert moved
    assert f"drifted: {len(moved)} of {len(new.extents)} activations" in shown


def test_new_samples_refresh_the_scales_of_a_cache(capsys: Captured) -> None:
    """Two layers with two heads of keys, 7 products each, and the head."""
    for folder, text in (("old", "The meeting starts at nine. "), ("new", "Und 7 + 5 = 12 ? ")):
        Path(folder).mkdir()
        (Path(folder) / "a.txt").write_text(text * 50)
    words = ["quantize", str(tiny("tiny-llama")), "-o", OUT]
    assert run([*words, "--recipe", "w8a8+kv8", "--data", "old"]) == 0
    assert "2 caches of 8 bits" in capsys.readouterr().out
    old = read_record(Path(OUT))
    assert run([*words, "--refresh", "--data", "new"]) == 0
    shown = capsys.readouterr().out
    new = read_record(Path(OUT))
    assert (new.name, new.recipe) == ("w8a8+kv8", old.recipe)
    assert sum(" keys " in name for name in new.extents) == 4
    assert new.extents.keys() == old.extents.keys()
    assert new.extents != old.extents
    assert "of 19 activations" in shown


def test_activations_with_scales_of_the_moment_drift_too(capsys: Captured) -> None:
    words = ("--recipe", "w8a8", "--data")
    assert quantize(*words, pixels("old", 1)) == 0
    old = read_record(Path(OUT))
    assert all(p.activations == "dynamic" and p.scale is None for p in old.products)
    assert all(p.reach[0] >= p.reach[1] > 0 for p in old.products)
    assert quantize("--refresh", "--data", pixels("new", 30)) == 0
    shown = capsys.readouterr().out
    new = read_record(Path(OUT))
    moved = {n for n, s in new.extents.items() if not 0.8 < s / old.extents[n] < 1.25}
    assert moved
    assert f"drifted: {len(moved)} of 12 activations" in shown


def test_without_data_nothing_is_known_of_activations(capsys: Captured) -> None:
    assert quantize("--recipe", "w8a8") == 0
    record = read_record(Path(OUT))
    assert {p.reach for p in record.products} == {()}
    assert record.extents == {}


def test_drift_is_a_scale_that_is_off_by_more_than_the_limit() -> None:
    before = {"same": 1.0, "near": 1.0, "grown": 1.0, "shrunk": 1.0, "gone": 1.0}
    now = {"same": 1.0, "near": 1.24, "grown": 3.0, "shrunk": 0.5, "new": 9.0}
    assert drifts(before, now) == [Drift("grown", 1.0, 3.0), Drift("shrunk", 1.0, 0.5)]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ([], 2, "give either --recipe or --refresh"),
        (["--recipe", "w8a8", "--refresh"], 2, "give either --recipe or --refresh"),
        (["--refresh"], 2, "--refresh takes new scales from --data [MLC-U007]"),
        (["--refresh", "--data", "x"], 1, "out.mllm_bundle: error: No such file"),
        (["--recipe", "w8"], 2, "w8: error: no recipe of this name [MLC-Q001]"),
    ],
)
def test_a_fault_is_one_line(words: list[str], status: int, line: str, capsys: Captured) -> None:
    assert quantize(*words) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert line in lines[0]


def test_a_bundle_that_was_not_quantised_has_no_scales(capsys: Captured) -> None:
    assert run(["compile", str(tiny("tiny-vit")), "--target", "numpy", "-o", OUT]) == 0
    capsys.readouterr()
    assert quantize("--refresh", "--data", "x") == 1
    assert "was not quantised by a recipe [MLC-Q004]" in capsys.readouterr().err
