"""Bundles of the target `rknn`, where Rockchip's toolkit is: what is in them, and `mllmc run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mllm_compiler.backends.rknn.read import read_rknn
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.recipes import build_recipe
from tests.vendor.rknn_toolkit import NEEDS_TOOLKIT

pytestmark = NEEDS_TOOLKIT


def test_a_bundle_has_what_the_toolkit_built_and_runs_in_its_simulator(tmp_path: Path) -> None:
    """Its results are those of the same model on the target `numpy`, to f16."""
    model, pixels = build_recipe("tiny-vit", lambda line: None), tmp_path / "in.npz"
    random = np.random.default_rng(0).standard_normal((1, 3, 56, 56))
    np.savez(pixels, allow_pickle=False, pixel_values=random.astype(np.float32))
    found: dict[str, np.ndarray] = {}
    for target in ("rknn", "numpy"):
        bundle, out = tmp_path / f"{target}.mllm_bundle", tmp_path / f"{target}.npz"
        assert (
            run(["compile", str(model), "--target", target, "-o", str(bundle), "--unsigned"]) == 0
        )
        words = ["--inputs", str(pixels), "--outputs", str(out), "--allow-unsigned"]
        assert run(["run", str(bundle), *words]) == 0
        found[target] = np.load(out)["last_hidden_state"]
    np.testing.assert_allclose(found["rknn"], found["numpy"], atol=0.01)
    opened = open_bundle(tmp_path / "rknn.mllm_bundle", LOOK)
    assert dict(opened.manifest.compatibility.sdk) == {"rknn-toolkit2": "2.5.0"}
    file = read_rknn(bytes(opened.member("targets/rknn/vision.rknn")), "vision")
    assert file.soc == "rk3588"
