"""The devices of the C runtime that a bundle calls, each over its vendor's library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mllm_compiler.backends.qnn.device import QnnDevice
from mllm_compiler.backends.qnn.graph import Soc
from mllm_compiler.backends.qnn.sdk import CONTEXT, VERSION, check_present, context_in
from mllm_compiler.backends.tflite import device as tflite
from mllm_compiler.backends.tflite.sdk import check_installed
from mllm_compiler.bundle.verify import Bundle
from mllm_compiler.hal import target
from runtime_stub import Device


def devices_of(bundle: Bundle, threads: int) -> dict[str, Device]:
    """What runs the functions of a bundle's other targets; `c` runs its own.

    Args:
        bundle: The open bundle.
        threads: Of a device that computes on the CPU; 0: one a core.

    Raises:
        CompileError: `MLC-V001`, a vendor's library is not installed.
    """
    most = threads or os.cpu_count() or 1
    others = [name for name in bundle.manifest.targets if name in DEVICES]
    return {name: DEVICES[name](bundle, most) for name in others}


def _tflite(bundle: Bundle, threads: int) -> Device:
    version = check_installed()
    made = tflite.TfliteDevice(bundle.member(tflite.MEMBER), threads)
    return Device(prepare=made.prepare, sdk_version=version)


def _qnn(bundle: Bundle, threads: int) -> Device:
    check_present()
    name = context_in(bundle.manifest.members)
    chip = target("qnn").soc(Path(name).name.removesuffix(CONTEXT))
    soc = Soc(name=chip.name, model=chip.model, arch=chip.arch)
    made = QnnDevice(bytes(bundle.member(name)), soc)
    return Device(prepare=made.prepare, sdk_version=VERSION, soc=chip.name)


DEVICES: dict[str, Callable[[Bundle, int], Device]] = {"qnn": _qnn, "tflite": _tflite}
"""The plug-in of each target."""
