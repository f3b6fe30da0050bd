"""`mllmc export`: models, levels and dumps; what cannot be written is one located line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from mllm_compiler.cli.main import run
from tests.backends.onnx_export.roundtrip import answers
from tests.cli.recipes import tiny
from tests.importer.onnx_models import write

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    words = ["--dump-dir", str(folder), "--unsigned", "-o", str(folder / "out")]
    assert run(["compile", str(tiny("tiny-llama")), *words]) == 0
    return folder


def dump_after(folder: Path, name: str) -> str:
    return str(min(folder.glob(f"*-{name}.mlir")))


def test_a_dump_gives_the_bytes_that_its_model_gives(dumps: Path, tmp_path: Path) -> None:
    model = str(tiny("tiny-llama"))
    for level in ("import", "fold-constants", "lift-norms", "lift-patch-embed"):
        a, b = (str(tmp_path / f"{level}-{side}.onnx") for side in "ab")
        assert run(["export", model, "--stop-after", level, "-o", a]) == 0
        words = ["--weights", model, "-o", b]
        assert run(["export", dump_after(dumps, level), *words]) == 0
        assert Path(a).read_bytes() == Path(b).read_bytes()
        onnx.checker.check_model(a, full_check=True)


def test_operators_go_back_as_themselves_with_their_graphs(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        """g (bool c, float[n, 4] x) => (float[n, 4] y, float[1, 4] z, string[1] s) {
          [exp] a = Exp(x)
          [if] y = If (c) <
            then_branch = t () => (float[n, 4] u) { v = Neg(a) u = Elu<alpha = 0.5>(v) },
            else_branch = e () => (float[n, 4] w) { w = Identity(a) }
          >
          [max] z = ReduceMax<axes = [0]>(a)
          [text] s = Constant<value_strings = ["grüß"]>()
        }""",
    )
    out = tmp_path / "out.onnx"
    assert run(["export", str(source), "--stop-after", "import", "-o", str(out)]) == 0
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    assert [node.name for node in model.graph.node][:3] == ["exp", "if", "max"]
    for c in (True, False):
        inputs = {"c": np.array(c), "x": np.float32([[1, -2, 3, 0], [4, 5, -6, 7]])}
        got = answers(out, inputs)
        for name, want in answers(source, inputs).items():
            np.testing.assert_array_equal(got[name], want)


def test_graphs_of_a_pipeline_go_into_a_folder(tmp_path: Path, capsys: Captured) -> None:
    model, folder = str(tiny("tiny-vlm")), tmp_path / "new" / "folder"
    assert run(["export", model, "-o", str(folder), "--json"]) == 0
    assert [*json.loads(capsys.readouterr().out)["graphs"]] == ["vision", "projector", "decoder"]
    assert {p.name for p in folder.iterdir()} == {f"{n}.onnx" for n in NAMES}
    assert run(["export", model, "--graph", "vision", "-o", str(tmp_path / "v.onnx")]) == 0
    assert (tmp_path / "v.onnx").read_bytes() == (folder / "vision.onnx").read_bytes()


NAMES = ("vision", "projector", "decoder")


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["tiny-llama", "--opset", "16"], 2, "opset 16 cannot be written [MLC-U001] (from 17 to"),
        (["tiny-llama", "--stop-after", "place"], 2, "no pass 'place' here [MLC-U004]"),
        (["tiny-llama", "--weights", "tiny-llama"], 2, "--weights is for a dump [MLC-U007]"),
        (["tiny-vlm"], 2, "the model has 3 graphs and -o names one file [MLC-U007]"),
        (["tiny-vlm", "--graph", "visoin"], 2, "(graphs: vision, projector, decoder)"),
        (["absent.mlir"], 1, "absent.mlir: error: No such file or directory [MLC-U005]"),
        (["lift-norms"], 1, "the bytes of a weight are not known [MLC-U013] (name the model"),
        (["lower-to-cpu", "--weights", "tiny-llama"], 1, "has no form in ONNX [MLC-U014]"),
    ],
)
def test_what_cannot_be_written_is_one_located_line(
    words: list[str], status: int, text: str, dumps: Path, tmp_path: Path, capsys: Captured
) -> None:
    is_dump = words[0] in ("lift-norms", "lower-to-cpu")
    model = dump_after(dumps, words[0]) if is_dump else words[0]
    extra = ["--graph", "decode"] if words[0] == "lower-to-cpu" else []
    out = tmp_path / "out.onnx"
    if words[0].startswith("tiny-"):
        tiny(words[0])  # The first to ask for a model is told that it is built.
    capsys.readouterr()
    assert run(["export", model, *words[1:], *extra, "-o", str(out)]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line
    assert not out.exists()


def test_an_operator_whose_form_changed_is_not_written_in_another_opset(
    tmp_path: Path, capsys: Captured
) -> None:
    """ReduceMax takes its axes as an attribute until opset 17, and as an input since."""
    source = write(tmp_path, "g (float[4] x) => (float[1] y) { y = ReduceMax<axes = [0]>(x) }")
    words = ["export", str(source), "--stop-after", "import", "-o", str(tmp_path / "out.onnx")]
    assert run([*words, "--opset", "18"]) == 1
    assert "(export with --opset 17)" in capsys.readouterr().err
    assert run(words) == 0


def test_text_that_is_no_ir_is_told_with_its_line(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text('"builtin.module"() ({\n  %0 = mllm.nonsense\n}) : () -> ()\n')
    assert run(["export", str(path), "-o", str(tmp_path / "out.onnx")]) == 1
    assert "bad.mlir:3:1: error: Operation mllm.nonsense is not" in capsys.readouterr().err
