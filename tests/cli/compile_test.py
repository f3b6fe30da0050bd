"""`mllmc compile`: deterministic, proven pass by pass, atomic, and exact about what is wrong."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from mllm_compiler.bundle import layout
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.bundle.writer import Content
from mllm_compiler.cli import opt
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Compiled, Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.pipelines import PIPELINES, TARGETS, pass_names
from tests.cli.recipes import EVERY, TINY, tiny
from tests.importer.onnx_models import weighted

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TINY:
        tiny(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    # What Rockchip's toolkit builds has stray bytes: the same model twice is not the same.
    monkeypatch.setenv("MLLM_RKNN", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


def only_line(capsys: Captured) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


BY_ALL = {
    "tiny-clip": "'mllm.reshape' cannot be padded",
    "tiny-dinov2": "'mllm.resize' has no home",
    "tiny-t5": "no kernel for i64",
    "tiny-wav2vec2": "'div' has no i64 kernel",
}
LACKED = {
    "neuron": {
        **BY_ALL,
        "tiny-bert": "'tfl.gather' has no home",
        "tiny-layoutlm": "'tfl.gather' has no home",
        "tiny-mamba": "'softplus' has no f32 kernel",
    },
    "qnn": {
        **BY_ALL,
        "tiny-bloom": "'mllm.cumsum' has no home",
        "tiny-mamba": "'softplus' has no f32 kernel",
        "tiny-siglip": "'l2' has no f32 kernel",
        "tiny-vlm": "no kernel for rank 6",
    },
    "rknn": {
        **BY_ALL,
        "tiny-bloom": "'mllm.cumsum' has no home",
        "tiny-mamba": "'softplus' has no f32 kernel",
        "tiny-siglip": "'l2' has no f32 kernel",
    },
    "tflite": {**BY_ALL, "tiny-mamba": "'mllm.selective_scan' has no home"},
}
"""What the targets of vendors have no operators for yet, by the first line that says so."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", EVERY)
def test_two_compiles_give_the_same_bytes(name: str, target: str, tmp_path: Path) -> None:
    lacked = LACKED.get(target, {})
    if name in lacked:
        with pytest.raises(CompileError, match=lacked[name]):
            compile_model(Request(model=tiny(name), target=target, output=tmp_path / "a"))
        assert not (tmp_path / "a").exists()
        return
    for place in ("a", "b"):
        compile_model(Request(model=tiny(name), target=target, output=tmp_path / place))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert open_bundle(tmp_path / "a", LOOK).verify() >= 3


@pytest.mark.parametrize("name", EVERY)
def test_every_pass_keeps_what_it_promises(name: str, tmp_path: Path) -> None:
    compiled = compile_model(Request(model=tiny(name), validate=True, output=tmp_path / "out"))
    assert list(compiled.proofs) == list(dict.fromkeys(r.name for r in compiled.records))
    assert max(proof.error for proof in compiled.proofs.values()) < 2e-5
    assert compiled.proofs["lift-onnx"].runs >= 3
    assert compiled.lifted_share == 1.0


def test_the_same_model_gives_the_same_dumps_and_each_goes_on(tmp_path: Path) -> None:
    words = ["compile", str(tiny("tiny-llama")), "-o", "out.mllm_bundle", "--dump-dir"]
    assert run([*words, "a"]) == 0
    assert run([*words, "b"]) == 0
    dumps = sorted(path.name for path in (tmp_path / "a").iterdir())
    names = ["import", *pass_names("c")]
    assert dumps == [f"{number:02d}-{name}.mlir" for number, name in enumerate(names)]
    for dump in dumps:
        assert (tmp_path / "a" / dump).read_bytes() == (tmp_path / "b" / dump).read_bytes()
        assert optimised(tmp_path / "a" / dump) != ""
    for before, after in ((1, 4), (len(dumps) - 2, len(dumps) - 1)):
        passes = ",".join(names[before + 1 : after + 1])
        went_on = optimised(tmp_path / "a" / dumps[before], "-p", passes)
        assert went_on == optimised(tmp_path / "a" / dumps[after])


def optimised(path: Path, *options: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert opt.run([str(path), *options]) == 0
    return out.getvalue()


def test_stop_after_writes_no_bundle_and_needs_no_key(tmp_path: Path, capsys: Captured) -> None:
    assert run(["compile", str(tiny("tiny-vit")), "--stop-after", "lift-onnx", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in facts["passes"]][-1] == "lift-onnx"
    assert facts["bundle"] is None
    assert facts["lifted_flops_share"] == 1.0
    assert list(tmp_path.iterdir()) == []


def test_the_ir_after_each_pass_goes_to_stderr(capsys: Captured) -> None:
    words = ["compile", str(tiny("tiny-vit")), "--print-ir-after-all", "--stop-after", "lift-onnx"]
    assert run(words) == 0
    captured = capsys.readouterr()
    assert captured.err.count("// -----// IR Dump After") == 4
    assert "func.func" not in captured.out


def test_reports_are_json_or_a_page(tmp_path: Path) -> None:
    words = ["compile", str(tiny("tiny-vit")), "-o", "out.mllm_bundle", "--report"]
    assert run([*words, "report.json"]) == 0
    assert run([*words, "report.html"]) == 0
    facts = json.loads((tmp_path / "report.json").read_text())
    moved = {p["name"]: p["bytes_read"] + p["bytes_written"] for p in facts["passes"]}
    assert moved["fuse-residual-norm"] < moved["fuse-qkv"] < moved["common-subexpressions"]
    assert facts["plan"]["plan"] >= facts["plan"]["bound"] > 0
    assert facts["members"]["weights/c.bin"] > 0
    assert facts["bundle_bytes"] == (tmp_path / "out.mllm_bundle").stat().st_size
    assert "<td>plan-memory" in (tmp_path / "report.html").read_text()


def test_emit_c_writes_sources_beside_the_bundle(tmp_path: Path) -> None:
    assert run(["compile", str(tiny("tiny-vit")), "-o", "eyes.mllm_bundle", "--emit", "c"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "eyes.c",
        "eyes.h",
        "eyes.mllm_bundle",
    ]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (
            ["tiny-lama"],
            2,
            "tiny-lama: error: no file, directory or recipe of this name [MLC-U003]",
        ),
        (["tiny-llama", "--target", "npu"], 2, "unknown target 'npu' [MLC-U002] (targets: c, neu"),
        (["tiny-llama", "--stop-after", "lift-linaer"], 2, "(did you mean lift-linear?)"),
        (["tiny-llama", "--tarhet", "c"], 2, "(did you mean --target?)"),
        (["tiny-llama", "--emit", "c", "--target", "numpy"], 2, "[MLC-U007]"),
        (["tiny-llama", "--unsigned", "--key", "k"], 2, "[MLC-U007]"),
        (["tiny-llama", "--keep-values", "/fc?"], 2, "has a name like '/fc?' [MLC-U018]"),
        (
            ["tiny-llama", "--data", "."],
            2,
            "--data needs --quant, --prune prune-heads or --validate [MLC-U007]",
        ),
        (["tiny-llama", "--key", "absent.pem"], 1, "absent.pem: error: No such file or directory"),
        (["absent.onnx"], 2, "absent.onnx: error: no such file or directory [MLC-U003]"),
        (["tiny-llama", "-o", "no/such/folder"], 1, "no/such/folder: error: No such file"),
        (["tiny-llama", "-o", "config"], 1, "config: error: Is a directory [MLC-U005]"),
        (
            ["tiny-llama", "--report", "x.txt"],
            2,
            ".htm or .html or .json, not .txt [MLC-U001]",
        ),
        (["tiny-llama", "--report", "no/x.json"], 1, "no/x.json: error: No such file"),
        ([], 2, "[MLC-U001]"),
    ],
)
def test_what_is_wrong_is_one_located_line(
    words: list[str], status: int, text: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "config").mkdir(exist_ok=True)
    before = sorted(tmp_path.rglob("*.mllm_bundle"))
    assert run(["compile", *words]) == status
    assert text in only_line(capsys)
    assert sorted(tmp_path.rglob("*.mllm_bundle")) == before


def test_the_place_of_the_bundle_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"")
    with pytest.raises(CompileError, match="No such file") as caught:
        compile_model(Request(model=tmp_path / "broken.onnx", output=tmp_path / "no" / "bundle"))
    assert caught.value.code == "MLC-U005"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "broken.onnx"]


def test_weights_that_no_bundle_holds_are_refused_before_any_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LIMIT", 100_000)
    request, said = Request(model=tiny("tiny-vit"), output=tmp_path / "bundle"), list[str]()
    with pytest.raises(CompileError) as caught:
        compile_model(request, step=said.append)
    assert (caught.value.code, caught.value.location) == ("MLC-B011", str(tmp_path / "bundle"))
    assert said == ["importing"]
    assert not (tmp_path / "bundle").exists()


def test_a_model_whose_name_is_no_utf8_compiles(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    path.write_bytes(weighted().SerializeToString())
    words = ["compile", path.name, "--report", "r.json", "--dump-dir", "dumps", "--emit", "c"]
    assert run(words) == 0, capsys.readouterr().err
    bundle = open_bundle(path.with_suffix(".mllm_bundle"), LOOK)
    assert bundle.manifest.name == "caf\ufffd"
    assert json.loads((tmp_path / "r.json").read_text())["name"] == "caf\ufffd"


def test_a_full_disk_leaves_the_old_bundle_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def full(content: Content) -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "out.mllm_bundle").write_bytes(b"old")
    monkeypatch.setattr(
        "mllm_compiler.assembly.Content",
        lambda name, size, chunks: Content(name, size, lambda: full(name)),
    )
    assert run(["compile", str(tiny("tiny-vit")), "-o", "out.mllm_bundle"]) == 1
    assert "out.mllm_bundle: error: No space left on device [MLC-U005]" in only_line(capsys)
    assert (tmp_path / "out.mllm_bundle").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.mllm_bundle"]


def test_the_interface_of_the_compiler_is_pinned() -> None:
    assert [field.name for field in fields(Request)] == [
        "model",
        "target",
        "dims",
        "output",
        "key",
        "soc",
        "quant",
        "prune",
        "places",
        "fallback",
        "max_partitions",
        "partition",
        "stop_after",
        "simplify",
        "emit_c",
        "validate",
        "data",
        "keep_values",
    ]
    assert [field.name for field in fields(Compiled)] == [
        "name",
        "target",
        "module",
        "records",
        "lifted_share",
        "proofs",
        "quantisation",
        "manifest",
        "output",
        "sources",
        "seconds",
    ]


def test_every_stage_of_a_pipeline_says_what_holds() -> None:
    for stages in PIPELINES.values():
        assert all(stage.holds and stage.passes for stage in stages)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--fallback", "c"], "there is no device to fall back from [MLC-U007]"),
        (["--target", "rknn", "--fallback", "c"], "'rknn' is no device that 'c' calls [MLC-U002]"),
        (["--place", "eye=c", "--emit", "c"], "--emit c and --place exclude each other [MLC-U007]"),
        (["--target", "numpy", "--place", "vision=tflite"], "calls no other device [MLC-U007]"),
    ],
)
def test_devices_and_options_that_do_not_go_together(
    words: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["compile", str(tiny("tiny-vit")), *words, "-o", str(out), "--unsigned"]) == 2
    assert code in capsys.readouterr().err
    assert not out.exists()
