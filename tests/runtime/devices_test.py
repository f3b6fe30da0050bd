"""Devices in a bundle: the C runtime calls them, checks what they are, and tells their faults.

The program is written from the format's description; what it must give is computed by NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.manifest import Manifest
from mllm_compiler.bundle.signature import public_bytes
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from runtime_stub import Counters, Device, Model, RuntimeFailure
from runtime_stub.tensors import Array
from tests.bundle.small_bundle import KEY
from tests.runtime.cases import normal
from tests.runtime.library import Model as Program
from tests.runtime.library import RunError
from tests.runtime.program_writer import ProgramWriter

BLOCK: Mapping[str, object] = {
    "abi": 1,
    "min_runtime": "0.1",
    "sdk": {"name": "libnpu", "version": "2.3"},
    "soc": ["npu7", "npu8"],
}
X = normal(2, 3)


def calling(name: str = "exp", *, device: str = "npu") -> ProgramWriter:
    """main: y = exp(x) + x; the second stage is one that the device refuses."""
    writer = ProgramWriter()
    x, y = writer.io("x", "f32", [2, 3]), writer.io("y", "f32", [2, 3])
    made = writer.arena_tensor("e", "f32", [2, 3])
    writer.stage("device_call", [x], [made], [device, name], "/exp")
    writer.stage("f32_elementwise", [made, x], [y], [[0, 1 << 0, 96 << 32]], "/add", flags=1)
    writer.entry("main", inputs=[x], outputs=[y])
    return writer


def bundled(
    folder: Path, block: Mapping[str, object] | bytes | None = BLOCK, name: str = "exp"
) -> Path:
    members = {"config.json": b"{}", "targets/c/program.bin": calling(name).finish()[0]}
    if block is not None:
        raw = block if isinstance(block, bytes) else json.dumps(block).encode()
        members["targets/npu/device.json"] = raw
    contents = [content_of_bytes(member, raw) for member, raw in members.items()]
    manifest = Manifest(name="small", targets=("c", "npu"), entries={})
    write_bundle(folder / "small", manifest, contents, key=KEY)
    (folder / "trust").write_text(f"{public_bytes(KEY).hex()}\n")
    return folder / "small"


class Npu:
    """A device whose functions are NumPy's."""

    def __init__(self, answers: Sequence[Array] | Exception | None = None) -> None:
        self.prepared: list[str] = []
        self.answers = answers

    def prepare(self, name: str) -> object:
        self.prepared.append(name)
        if name != "exp":
            raise KeyError(f"no function {name}\nin the file")
        return self.run

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        if isinstance(self.answers, Exception):
            raise self.answers
        return [np.exp(arrays[0])] if self.answers is None else self.answers

    def device(self, version: str = "2.3.1", soc: str = "npu8") -> Device:
        return Device(prepare=self.prepare, sdk_version=version, soc=soc)  # type: ignore[arg-type]


def opened(path: Path, **devices: Device) -> Model:
    return Model.open(path, trust=path.parent / "trust", threads=1, devices=devices)


def refused(path: Path, **devices: Device) -> RuntimeFailure:
    with pytest.raises(RuntimeFailure) as caught, opened(path, **devices):
        pass
    return caught.value


def test_a_stage_calls_the_device_and_is_counted(tmp_path: Path) -> None:
    npu = Npu()
    with opened(bundled(tmp_path), npu=npu.device(), other=Npu().device()) as model:
        assert npu.prepared == ["exp"]
        assert model.counters == Counters(device_calls=0, fallback_stages=0)
        for _ in range(2):
            (y,) = model.run("main", {"x": X}).values()
            np.testing.assert_allclose(y, np.exp(X) + X, rtol=1e-6)
        assert model.counters == Counters(device_calls=2, fallback_stages=2)


def test_a_device_that_is_not_registered_is_named(tmp_path: Path) -> None:
    fault = refused(bundled(tmp_path), gpu=Npu().device())
    assert fault.code == "MLC-X028"
    assert "'exp' runs on the device 'npu', which is not registered" in fault.message
    assert "register the device" in fault.remedy


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            RuntimeError("the chip\nis asleep"),
            "the device 'npu' failed: the chip is asleep",
        ),
        (ValueError(), "the device 'npu' failed: ValueError"),
        ([np.zeros((2, 3))], "it gave float64[2, 3] in the place of float32[2, 3]"),
        ([np.zeros((3, 2), np.float32)], "it gave float32[3, 2] in the place of float32[2, 3]"),
        ([], "the device 'npu' failed: "),
    ],
)
def test_a_failure_is_told_at_its_stage(
    answers: Sequence[Array] | Exception, words: str, tmp_path: Path
) -> None:
    npu = Npu(answers)
    with opened(bundled(tmp_path), npu=npu.device()) as model:
        with pytest.raises(RuntimeFailure) as caught:
            model.run("main", {"x": X})
        assert (caught.value.code, caught.value.location) == ("MLC-X029", "main: /exp")
        assert words in caught.value.message
        npu.answers = None
        (y,) = model.run("main", {"x": X}).values()
        np.testing.assert_allclose(y, np.exp(X) + X, rtol=1e-6)
        assert model.counters == Counters(device_calls=1, fallback_stages=1)


def test_a_function_that_the_device_lacks_is_told_when_the_model_opens(tmp_path: Path) -> None:
    fault = refused(bundled(tmp_path, name="log"), npu=Npu().device())
    assert fault.code == "MLC-X029"
    assert "no function log" in fault.message


@pytest.mark.parametrize(
    ("block", "code", "words"),
    [
        (
            {"sdk": {"name": "libnpu", "version": "2.10"}},
            "MLC-B009",
            "needs libnpu 2.10 or newer, the device 'npu' has 2.3.1",
        ),
        ({"soc": ["npu9"]}, "MLC-B009", "is for the chip npu9, the device 'npu' is npu8"),
        ({"abi": 2}, "MLC-B009", "needs runtime interface 2, this runtime has 1"),
        ({"min_runtime": "0.2"}, "MLC-B009", "needs runtime 0.2 or newer, this is 0.1.0"),
        ({"abi": "1"}, "MLC-B013", "compatibility"),
        ({"min_runtime": "soon"}, "MLC-B013", "min_runtime"),
        (b"{", "MLC-B013", "not JSON"),
        (None, "MLC-B013", "lacks it"),
    ],
)
def test_another_device_than_the_bundle_was_made_for_is_refused_before_it_is_opened(
    block: Mapping[str, object] | bytes | None, code: str, words: str, tmp_path: Path
) -> None:
    given = {**BLOCK, **block} if isinstance(block, Mapping) else block
    npu = Npu()
    fault = refused(bundled(tmp_path, given), npu=npu.device())
    assert (fault.code, fault.location) == (code, "targets/npu/device.json")
    assert words in fault.message
    assert npu.prepared == []


def test_any_chip_will_do_where_none_is_named(tmp_path: Path) -> None:
    with opened(bundled(tmp_path, {**BLOCK, "soc": []}), npu=Npu().device(soc="")) as model:
        assert model.counters.device_calls == 0


def test_the_runtimes_own_device_is_not_registered(tmp_path: Path) -> None:
    assert refused(bundled(tmp_path), cpu=Npu().device()).code == "MLC-X001"


def malformed() -> Sequence[ProgramWriter]:
    """Calls with other parameters than two names, or without an operand."""
    made: list[ProgramWriter] = []
    for params in ((), ("npu",), ("npu", 1), (1, "exp"), ("npu", "exp", "x"), (0, 0)):
        writer = ProgramWriter()
        x, y = writer.io("x", "f32", [2, 3]), writer.io("y", "f32", [2, 3])
        writer.stage("device_call", [x], [y], params)
        made.append(writer)
    made.append(calling())
    made[-1].args[0] = 0xFFFFFFFF
    for offset in (-1, len(calling().strings) + 99, 1 << 40):
        made.append(calling())
        made[-1].params[1] = offset
    return made


@pytest.mark.parametrize("writer", malformed())
def test_a_malformed_call_is_refused_when_the_program_is_read(writer: ProgramWriter) -> None:
    with pytest.raises(RunError, match=r"malformed program: (stage|param)"):
        Program(*writer.finish())
