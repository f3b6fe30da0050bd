"""What `mllmc check accuracy` found, as JSON and as one HTML page."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mllm_compiler.quality.picture import error_picture

if TYPE_CHECKING:
    from mllm_compiler.bundle.typed_json import Json
    from mllm_compiler.quality.bisect import Bisected
    from mllm_compiler.quality.check import Checked
    from mllm_compiler.quality.gates import Gate

TEMPLATES = files("mllm_compiler.cli") / "templates"
WORST = 40
"""How many nodes the page lists."""


def facts_of(checked: Checked, bisected: Bisected | None = None) -> dict[str, Json]:
    """All that is known; a value that is not a finite number is a text."""
    return {
        "bundle": checked.bundle,
        "target": checked.target,
        "fidelity": checked.fidelity,
        "passed": checked.passes,
        "gates": [_gate(gate) for gate in checked.gates],
        "layers": [{k: _plain(v) for k, v in asdict(node).items()} for node in checked.nodes],
        "suspects": list(checked.suspects),
        "kept": None if bisected is None else list(bisected.kept),
    }


def page(checked: Checked) -> str:
    """The facts as a page that needs no other file; names are escaped.

    Raises:
        CompileError: `MLC-X027`, matplotlib is not installed.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = (TEMPLATES / "check.html.jinja").read_text(encoding="utf-8")
    groups = {gate.group: list[dict[str, str]]() for gate in checked.gates}
    for gate in checked.gates:
        name, value, asked, verdict = row_of(gate)
        groups[gate.group].append(
            {"name": name, "value": value, "asked": asked, "verdict": verdict}
        )
    return environment.from_string(template).render(
        bundle=checked.bundle,
        target=checked.target,
        fidelity=checked.fidelity,
        passed=checked.passes,
        groups=groups,
        picture=Markup(error_picture(checked.nodes)) if checked.nodes else "",
        nodes=sorted(checked.nodes, key=lambda node: -node.error)[:WORST],
    )


def row_of(gate: Gate) -> tuple[str, str, str, str]:
    """Name, value, what is asked, and the verdict."""
    asked = ""
    if gate.threshold is not None:
        asked = f"{'>=' if gate.least else '<='} {gate.threshold:g}"
    return gate.name, f"{gate.value:.6g}", asked, gate.verdict


def _gate(gate: Gate) -> dict[str, Json]:
    plain = {k: _plain(v) for k, v in asdict(gate).items()}
    return plain | {"verdict": gate.verdict}


def _plain(value: object) -> Json:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    assert value is None or isinstance(value, bool | int | float | str)
    return value
