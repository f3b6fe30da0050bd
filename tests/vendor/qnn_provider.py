"""Runs an ONNX model in ONNX Runtime, all of it by one provider: Qualcomm's, or the CPU.

    python -m tests.vendor.qnn_provider MODEL.onnx INPUTS.npz OUTPUTS.npz [SOC_MODEL ARCH]

A process of its own, as the provider crashes in some graphs. With a chip it is Qualcomm's provider,
which must take every node; without one the model runs as it is written, no nodes joined.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from mllm_compiler.backends.qnn.graph import Soc

NAME = "QNNExecutionProvider"


class RefusedError(Exception):
    """The provider does not take a model; its words."""


def run(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], folder: Path, soc: Soc | None = None
) -> dict[str, np.ndarray]:
    """The results of a model by name.

    Raises:
        RefusedError: The provider does not take all of it, or the process ends.
    """
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **inputs)
    chip = [] if soc is None else [str(soc.model), str(soc.arch)]
    files = [str(folder / name) for name in ("model.onnx", "inputs.npz", "outputs.npz")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.vendor.qnn_provider", *files, *chip],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    if done.returncode:
        raise RefusedError(f"status {done.returncode}: {done.stderr[-2000:]}")
    with np.load(folder / "outputs.npz") as made:
        return dict(made)


def main(model: str, inputs: str, outputs: str, *chip: str) -> None:
    """Runs the model of a file."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    if chip:
        import onnxruntime_qnn

        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        ort.register_execution_provider_library(NAME, onnxruntime_qnn.get_library_path())
        devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME][:1]
        named = dict(zip(("soc_model", "htp_arch"), chip, strict=True))
        options.add_provider_for_devices(devices, {"backend_type": "htp", **named})
    else:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options)
    names = [port.name for port in session.get_outputs()]
    with np.load(inputs) as given:
        made = session.run(names, {port.name: given[port.name] for port in session.get_inputs()})
    np.savez(outputs, **dict(zip(names, made, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
