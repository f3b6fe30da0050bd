"""Models by way of the command line: compiled, and held to the float model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mllm_compiler.bundle.verify import Policy
from mllm_compiler.quality.check import Asked, check_accuracy


def compiled(model: str, bundle: Path, *options: str) -> Path:
    """The bundle of a model."""
    words = [sys.executable, "-m", "mllm_compiler.cli", "compile", model, "--unsigned"]
    subprocess.run([*words, "-o", str(bundle), *options], check=True, stdout=subprocess.DEVNULL)
    return bundle


def measured(bundle: Path, plain: Path, data: Path) -> dict[str, float]:
    """What `mllmc check accuracy` says of a bundle beside the float model, by name."""
    checked = check_accuracy(bundle, Asked(baseline=plain, data=data), Policy(allow_unsigned=True))
    return {gate.name: gate.value for gate in checked.gates if gate.group == "quality"}
