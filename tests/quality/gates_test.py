"""Gates: which side of a threshold passes, what is not a number never does, JUnit, the TOML."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.quality.gates import Gate, cosine_gates, quality_gates
from mllm_compiler.quality.junit import junit
from mllm_compiler.quality.thresholds import Thresholds, read_thresholds

NAN = float("nan")


def thresholds(folder: Path, text: str) -> Thresholds:
    (folder / "gates.toml").write_text(text)
    return read_thresholds(folder / "gates.toml")


@pytest.mark.parametrize(
    ("metric", "value", "verdict"),
    [
        ("top1_drop", 0.3, "passed"),
        ("top1_drop", 0.31, "failed"),
        ("top1_drop", NAN, "failed"),
        ("feature_cosine", 0.999, "passed"),
        ("feature_cosine", 0.9989, "failed"),
        ("kl", 7.0, "reported"),
        ("kl", NAN, "failed"),
        ("kl", float("inf"), "failed"),
    ],
)
def test_a_gate_passes_on_the_right_side(metric: str, value: float, verdict: str) -> None:
    (gate,) = quality_gates({metric: value}, Thresholds())
    assert gate.verdict == verdict
    assert gate.passes is (verdict != "failed")


def test_the_worst_cosine_comes_first_and_nan_is_the_worst() -> None:
    pairs = [("a", 0.9999), ("b", NAN), ("c", 0.5)]
    gates = cosine_gates("fidelity", pairs, Thresholds())
    assert [gate.name for gate in gates] == ["b", "c", "a"]
    assert [gate.verdict for gate in gates] == ["failed", "failed", "passed"]


def test_a_file_asks_for_what_it_names(tmp_path: Path) -> None:
    read = thresholds(tmp_path, "[quality]\nperplexity = 17.85\n[layers]\ncosine = 0.9\n")
    assert read.of("quality", "perplexity") == 17.85
    assert read.of("quality", "top1_drop") is None
    assert read.of("layers", "cosine") == 0.9
    assert read.of("fidelity", "cosine") == 0.999
    assert read.of("quality", "perplexity_float") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[quality]\nperplexty = 1\n", "did you mean 'perplexity'?"),
        ("[qualty]\n", "did you mean 'quality'?"),
        ("[quality]\nkl = 'small'\n", "a number is expected"),
        ("[quality\n", "not TOML"),
    ],
)
def test_a_wrong_file_is_a_located_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        thresholds(tmp_path, text)
    assert told in f"{caught.value.message} {caught.value.remedy}"
    assert "gates.toml" in str(caught.value.location)


def test_junit_names_each_failure() -> None:
    gates = [
        Gate(group="fidelity", name="a<b", value=0.5, threshold=0.999, least=True),
        Gate(group="quality", name="kl", value=NAN, threshold=None, least=False),
        Gate(group="quality", name="wer", value=0, threshold=0, least=False),
    ]
    root = ElementTree.fromstring(junit("x.mllm_bundle", gates))
    assert root.attrib == {
        "name": "x.mllm_bundle",
        "tests": "3",
        "failures": "2",
        "errors": "0",
    }
    suites = root.findall("testsuite")
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [
        ("fidelity", "1", "1"),
        ("quality", "2", "1"),
    ]
    messages = [failure.get("message") for failure in root.iter("failure")]
    assert messages == ["a<b is 0.5, at least 0.999 is allowed", "kl is nan"]
