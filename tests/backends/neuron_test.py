"""The target `neuron` without a vendor's library: what is in the bundle, and what is refused.

What LiteRT's plugin for MediaTek says of the file stands in `tests/vendor`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.parser import Parser

from mllm_compiler.backends.neuron.sdk import adapter_folder
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.types import element_of
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import Target, target
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes import host_first
from mllm_compiler.passes.lower_to_neuron import LowerToNeuron
from mllm_compiler.recipes import build_recipe

EXP = """
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = tfl.exp %x : (tensor<2xf32>) -> tensor<2xf32> loc("/Exp")
  func.return %y : tensor<2xf32>
}
"""


@pytest.fixture(autouse=True)
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLLM_NEURON_ADAPTER", raising=False)


def compile(folder: Path, *options: str) -> int:
    model = build_recipe("tiny-vit", lambda line: None)
    words = ["compile", str(model), "--target", "neuron", "--unsigned"]
    return run([*words, "-o", str(folder / "vit.mllm_bundle"), *options])


def test_a_bundle_has_the_file_the_network_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile(tmp_path) == 0
    assert "libneuron_adapter.so is not installed" in capsys.readouterr().err
    bundle = open_bundle(tmp_path / "vit.mllm_bundle", LOOK)
    assert bundle.manifest.compatibility.soc == ("mt6991",)
    assert not bundle.manifest.compatibility.sdk
    assert bytes(bundle.member("targets/neuron/model.tflite"))[4:8] == b"TFL3"
    network = bytes(bundle.member("targets/neuron/network.mlir")).decode()
    module = Parser(make_context(), network).parse_module()
    names = {op.name for op in module.walk()}
    assert {"neuron.fully_connected", "neuron.gelu", "neuron.softmax"} <= names
    assert not any(name.startswith("tfl.") for name in names)
    script = bytes(bundle.member("targets/neuron/compile.sh")).decode()
    assert "--soc_model=mt6991 --mediatek_sdk_version_type=version8" in script


def test_a_chip_that_the_plugin_does_not_know_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile(tmp_path, "--soc", "mt6999") == 3
    assert "--soc: error: the target 'neuron' has no chip 'mt6999' [MLC-R007]" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert not list(tmp_path.iterdir())


def test_a_network_of_codes_has_their_encodings(tmp_path: Path) -> None:
    """All but the result: arguments become codes first."""
    assert compile(tmp_path, "--quant", "w8a8-npu") == 0
    bundle = open_bundle(tmp_path / "vit.mllm_bundle", LOOK)
    network = bytes(bundle.member("targets/neuron/network.mlir")).decode()
    module = Parser(make_context(), network).parse_module()
    ops = [op for op in module.walk() if isinstance(op, NeuronOp) and op.CODE >= 0]
    real = [op.name for op in ops if op.scale is None]
    assert real == ["neuron.dequantize"]
    assert {str(element_of(op.results[0])) for op in ops} == {"i8", "f32"}


def test_a_folder_without_the_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLLM_NEURON_ADAPTER", str(tmp_path))
    assert compile(tmp_path) == 4
    assert "MediaTek's library libneuron_adapter.so is not there [MLC-V001]" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert not list(tmp_path.iterdir())
    with pytest.raises(CompileError):
        adapter_folder()


def test_a_wrong_entry_of_the_table_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """EXP is no operation of Neuron; the probe in tests/vendor would fail for it too."""
    table = target("neuron")
    wrong = replace(table, operators=table.operators | {"EXP"})

    def named(name: str) -> Target:
        return wrong

    monkeypatch.setattr(host_first, "target", named)
    context = make_context()
    with pytest.raises(CompileError) as caught:
        run_passes(Parser(context, EXP).parse_module(), [LowerToNeuron()], context)
    assert (caught.value.code, caught.value.location) == ("MLC-R001", "/Exp")
    assert "no operation of Neuron" in caught.value.message
