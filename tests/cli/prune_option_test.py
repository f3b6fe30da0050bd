"""`mllmc compile --prune`: passes that change what a model computes, where they are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.cli.main import run
from models.build import built

DROP = "drop-tokens{after=1 keep=4 cover=2 prefix=5}"


def compile_tiny(prune: str, *more: str) -> int:
    return run(["compile", str(built("tiny-dinov2")), "--prune", prune, *more])


def test_a_pruned_bundle_runs_on_both_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).standard_normal((1, 3, 56, 56)).astype(np.float32)
    np.savez("in.npz", pixel_values=pixels)
    results: list[np.ndarray] = []
    for target in ("c", "numpy"):
        assert compile_tiny(DROP, "--unsigned", "--target", target, "-o", f"{target}.out") == 0
        words = ["run", f"{target}.out", "--allow-unsigned", "--inputs", "in.npz"]
        assert run([*words, "--outputs", "out.npz"]) == 0
        results.append(np.load("out.npz")["last_hidden_state"])
    assert results[0].shape == (1, 9, 32)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_a_budget_of_each_run_is_an_input_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).standard_normal((1, 3, 56, 56)).astype(np.float32)
    drop = "drop-tokens{after=2 keep=9 cover=2 prefix=5 budget=kept}"
    results: dict[tuple[str, int], np.ndarray] = {}
    for target in ("c", "numpy"):
        assert compile_tiny(drop, "--unsigned", "--target", target, "-o", f"{target}.out") == 0
        for budget in (4, 7):
            np.savez("in.npz", pixel_values=pixels, kept=np.zeros(budget, np.int64))
            words = ["run", f"{target}.out", "--allow-unsigned", "--inputs", "in.npz"]
            assert run([*words, "--outputs", "out.npz"]) == 0
            results[target, budget] = np.load("out.npz")["last_hidden_state"]
    for budget in (4, 7):
        assert results["c", budget].shape == (1, 5 + budget, 32)
        np.testing.assert_allclose(results["c", budget], results["numpy", budget], rtol=1e-4)


def test_pruning_stands_behind_the_lift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data" / "vision"
    data.mkdir(parents=True)
    np.savez(data / "0.npz", pixel_values=np.ones((1, 3, 56, 56), np.float32))
    both, words = f"prune-heads{{heads=1}},{DROP}", ["--stop-after", "drop-tokens", "--json"]
    assert compile_tiny(both, *words, "--data", "data") == 0
    names = [record["name"] for record in json.loads(capsys.readouterr().out)["passes"]]
    assert names[-3:] == ["lift-patch-embed", "prune-heads", "drop-tokens"]


@pytest.mark.parametrize(
    ("prune", "code", "said"),
    [
        ("drop-token{after=1}", 2, "MLC-U004"),
        ("drop-tokens{after=1 keep=4 colour=2}", 2, "MLC-U004"),
        (f"{DROP},{DROP}", 2, "MLC-U007"),
        ("drop-tokens{after=1 keep=4 cover=3}", 2, "MLC-P020"),
        ("drop-tokens{after=1 keep=4 cover=2}", 1, "MLC-P021"),
        ("prune-heads{heads=2}", 1, "MLC-P021"),
        ("prune-heads{heads=1 data=nowhere}", 2, "MLC-U007"),
    ],
)
def test_what_cannot_be_pruned_is_a_line(
    prune: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compile_tiny(prune, "-o", "out.mllm_bundle") == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
