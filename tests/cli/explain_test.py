"""`mllmc explain` and `mllmc doctor`."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mllm_compiler.cli.main import run
from mllm_compiler.pipelines import TARGETS
from tests.cli.recipes import tiny
from tests.importer.onnx_models import save, write

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("target", TARGETS)
def test_every_operation_of_a_model_has_a_home(target: str, capsys: Captured) -> None:
    """Sizes that nobody fixes are those that compiling takes."""
    assert run(["explain", str(tiny("tiny-llama")), "--target", target, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["homeless"] == 0
    assert facts["flops_share"] == 1.0
    assert {row["home"] for row in facts["operations"]} == {target}
    assert all(row["why"] for row in facts["operations"])


def test_an_operation_without_a_home_is_told_with_status_3(
    tmp_path: object, capsys: Captured
) -> None:
    path = f"{tmp_path}/det.onnx"
    square = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    number = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    node = helper.make_node("Det", ["x"], ["y"], name="/head/Det")
    graph = helper.make_graph([node], "g", [square], [number])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert run(["explain", path]) == 3
    told = capsys.readouterr().out
    assert "/head/Det: 'onnx.Det' has no home" in told
    assert "0.00 % of the floating-point operations run on c" in told
    assert run(["explain", path, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["flops_share"] == 0.0
    assert run(["compile", path, "--unsigned", "-o", f"{tmp_path}/out"]) == 3
    line = capsys.readouterr().err
    assert line.startswith("/head/Det: error: 'onnx.Det' has no home on 'c'")
    assert "[MLC-R001]" in line
    assert run(["explain", path, "--fallback", "numpy"]) == 0


def test_an_operator_that_nobody_knows_has_no_home_at_all(tmp_path: Path, capsys: Captured) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    source = write(tmp_path, "g (float[4] x) => (float[4] y) { y = own.thing(x) }", header=header)
    for target in ("c", "numpy"):
        assert run(["explain", str(source), "--target", target, "--json"]) == 3
        (refused,) = json.loads(capsys.readouterr().out)["operations"]
        assert refused["operation"] == "own.thing"
        assert refused["rule"]["rule"] == "operator"


@pytest.mark.parametrize("words", [["--target", "npu"], ["--fallback", "npu"]])
def test_an_unknown_target_is_wrong_usage(words: list[str], capsys: Captured) -> None:
    assert run(["explain", str(tiny("tiny-vit")), *words]) == 2
    assert "unknown target 'npu' [MLC-U002]" in capsys.readouterr().err


def test_the_table_counts_kinds_or_lists_all(capsys: Captured) -> None:
    assert run(["explain", str(tiny("tiny-vit"))]) == 0
    short = capsys.readouterr().out
    assert run(["explain", str(tiny("tiny-vit")), "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(short.splitlines())


def test_a_divided_graph_is_told_in_words_and_numbers_and_on_the_page(
    tmp_path: Path, capsys: Captured
) -> None:
    """Without the device's library: the tables alone say what would run there."""
    model, words = str(tiny("tiny-vit")), ["--target", "tflite", "--fallback", "c"]
    assert run(["explain", model, *words, "--partition", "most", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    (plan,) = facts["plans"]
    assert (plan["device"], plan["host"], len(plan["calls"])) == ("tflite", "c", 1)
    assert plan["device_operations"] == plan["operations"] == len(facts["operations"])
    assert plan["device_flops"] == sum(op["flops"] for op in facts["operations"])
    assert plan["bytes_in"] == plan["calls"][0]["bytes_in"] > 0
    assert facts["flops_share"] == 1
    out = tmp_path / "page.html"
    assert run(["explain", model, *words, "--partition", "most", "--html", str(out)]) == 0
    told = capsys.readouterr().out
    count = plan["operations"]
    assert f"{count} of {count} operations on tflite" in told
    assert f"{plan['host_cost_ns'] / 1e3:.1f} us all on c" in told
    page = Page(out.read_text(encoding="utf-8"))
    row = [plan["graph"], "tflite", "1", str(count)]
    assert row in [cells[:4] for cells in page.rows]


def page_of(words: list[str], folder: Path) -> str:
    out = folder / "page.html"
    run(["explain", *words, "--html", str(out)])
    return out.read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a browser would read of a page: its cells, its scripts, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [v or "" for k, v in attrs if k in ("src", "href", "action", "data")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1] and self.tags[-1] not in ("script", "style"):
            self.rows[-1][-1] += data.strip()


def test_the_page_shows_what_json_says_and_fetches_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    page = Page(page_of([str(tiny("tiny-vit")), "--json"], tmp_path))
    facts = json.loads(capsys.readouterr().out)
    assert page.fetched == []
    assert page.tags.count("script") == 1
    rows = [row for row in page.rows if len(row) == 9][1:]
    assert [row[1] for row in rows] == [op["location"] for op in facts["operations"]]
    assert [row[8] for row in rows] == [f"{op['bytes'] / 1e3:.1f}" for op in facts["operations"]]
    (home,) = facts["homes"].values()
    for name in ("flops", "bytes_read", "bytes_written", "bytes_weights"):
        assert home[name] == sum(op[name] for op in facts["operations"])
    assert home["bytes_weights"] > 100_000


def test_names_cannot_write_into_the_page(tmp_path: Path) -> None:
    source = write(tmp_path, "g (float[4, 4] x) => (float[] y) { y = Det(x) }", name="a<b>.onnx")
    model = onnx.load(source)
    model.graph.node[0].name = "</td><script>alert(1)</script>"
    save(model, tmp_path, "a<b>.onnx")
    text = page_of([str(source)], tmp_path)
    assert Page(text).tags.count("script") == 1
    assert "&lt;script&gt;alert(1)" in text
    assert "<b>" not in text


def test_a_refused_operation_comes_with_its_rule_and_a_rewrite(
    tmp_path: Path, capsys: Captured
) -> None:
    text = "g (float[4, 4] x) => (float[4, 4] y) { a = Exp(x) y = Hardmax(a) }"
    source = write(tmp_path, text)
    assert run(["explain", str(source), "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    _, refused = facts["operations"]
    assert refused["rule"]["rule"] == "lifting"
    assert refused["rule"]["rewrite"] == "compare with ReduceMax, and cast the answer"
    assert refused["remedy"].endswith(refused["rule"]["rewrite"])
    assert facts["rules"]["lifting"]["operations"] == 1
    assert run(["explain", str(source)]) == 3
    told = capsys.readouterr().out
    assert "lifting" in told
    assert "compare with ReduceMax" in told


def test_doctor_finds_what_is_needed(capsys: Captured) -> None:
    assert run(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    parts = {finding["part"]: finding for finding in facts["findings"]}
    assert facts["healthy"]
    assert parts["xdsl"]["found"] == "0.75.0"
    assert parts["C runtime"]["state"] == "ok"
    assert all(f["remedy"] for f in facts["findings"] if f["state"] != "ok")
