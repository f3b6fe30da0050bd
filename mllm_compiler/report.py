"""`--report FILE`: what the compiler did, as JSON or a page, as the name's suffix says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment
from markupsafe import Markup
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.bundle.files import atomic_output, check_output
from mllm_compiler.bundle.manifest import PlanRecord
from mllm_compiler.bundle.typed_json import Json, decode, encode
from mllm_compiler.compiler import Compiled
from mllm_compiler.errors import CompileError
from mllm_compiler.flops import sizes_of
from mllm_compiler.hal import cost_of
from mllm_compiler.memory_map import memory_section
from mllm_compiler.pass_run import PassRecord
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.validate import Proof

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ name }}, compiled for {{ target }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; \
background: Canvas; color: CanvasText; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .2em .8em; border-bottom: 1px solid #8888; overflow-wrap: normal; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } th { text-align: left; }
</style>
<h1>{{ name }}, compiled for {{ target }}</h1>
<table>
{% for key, value in facts.items() %}<tr><th>{{ key }}<td>{{ value }}
{% endfor %}</table>
{{ memory }}
<h2>Passes</h2>
<div class="wide"><table>
<tr><th>pass<th>seconds<th>operations<th>MB read<th>MB written<th>most frequent
{% for pass in passes %}<tr><td>{{ pass.name }}<td class="n">{{ "%.2f" | format(pass.seconds) }}
<td class="n">{{ pass.operations }}<td class="n">{{ pass.read }}<td class="n">{{ pass.written }}\
<td>{{ pass.kinds }}
{% endfor %}</table></div>
{% if proofs %}<h2>Proof</h2>
<div class="wide"><table><tr>{% for title in titles %}<th>{{ title }}{% endfor %}
{% for row in proofs %}<tr>{% for cell in row %}<td>{{ cell }}{% endfor %}
{% endfor %}</table></div>
{% endif %}"""


@dataclass
class Traffic:
    """An observer that counts the bytes which operations read and write, weights included.

    Attributes:
        counted: Bytes read and written after each pass, by its number. A symbol counts with its
            bound, but at most with `flops.LENGTH`.
    """

    counted: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """Counts them."""
        bounds = pipeline_of(module).bound_of
        ops = [op for graph in graphs(module) for op in graph.body.block.ops if op.operands]
        costs = [cost_of(op, sizes_of(op, bounds)) for op in ops if op.results]
        self.counted[record.number] = (sum(c.read for c in costs), sum(c.written for c in costs))


def report(compiled: Compiled, traffic: Traffic | None = None) -> dict[str, Json]:
    """What there is to say of a compilation."""
    counted = {} if traffic is None else traffic.counted
    manifest = compiled.manifest
    return {
        "name": compiled.name,
        "target": compiled.target,
        "seconds": round(compiled.seconds, 3),
        "lifted_flops_share": compiled.lifted_share,
        "passes": [
            {
                "number": record.number,
                "name": record.name,
                "seconds": round(record.seconds, 4),
                "operations": dict(record.ops),
                "bytes_read": counted.get(record.number, (None, None))[0],
                "bytes_written": counted.get(record.number, (None, None))[1],
                "proof": _proof(compiled.proofs.get(record.name)),
            }
            for record in compiled.records
        ],
        "quantisation": {
            "recipe": compiled.quantisation.name,
            "products": len(compiled.quantisation.products),
            "bits_per_weight": compiled.quantisation.bits_per_weight,
        }
        if compiled.quantisation.recipe
        else None,
        "plan": None if manifest is None else encode(manifest.plan),
        "entries": [] if manifest is None else sorted(manifest.entries),
        "members": {}
        if manifest is None
        else {name: record.size for name, record in manifest.members.items()},
        "bundle": None if compiled.output is None else str(compiled.output),
        "sources": [str(path) for path in compiled.sources],
        "bundle_bytes": None if compiled.output is None else compiled.output.stat().st_size,
    }


def check_report(path: Path, where: str) -> None:
    """Whether a report can be written there; asked before the compilation.

    Raises:
        CompileError: `MLC-U001`, the name says no form; `MLC-U005`, the place cannot be written.
    """
    if path.suffix not in FORMS:
        known, told = " or ".join(sorted(FORMS)), path.suffix or "no suffix"
        message = f"a report's name ends in {known}, not {told}"
        remedy = "name it FILE.json or FILE.html"
        raise CompileError("MLC-U001", message, location=f"{where} --report", remedy=remedy)
    check_output(path)


def write_report(path: Path, facts: Mapping[str, Json]) -> None:
    """Writes the report; the name says in which form."""
    text = FORMS[path.suffix](facts)
    with atomic_output(path) as out:
        out.write(text.encode(errors="backslashreplace"))


def _json(facts: Mapping[str, Json]) -> str:
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"


def page(facts: Mapping[str, Json]) -> str:
    """The report as one HTML page."""
    passes = [_row(entry) for entry in _list(facts["passes"])]
    shown = {
        "time": f"{facts['seconds']} s",
        "floating-point operations lifted": percent(facts["lifted_flops_share"]),
        "memory plan": _plan(facts["plan"]),
        "bundle": facts["bundle"] or "none",
        "size": facts["bundle_bytes"] or "",
    }
    template = Environment(autoescape=True).from_string(PAGE)
    found = {str(e["name"]): e["proof"] for e in _list(facts["passes"]) if e["proof"] is not None}
    proofs = [
        proof_row(name, Proof(**cast("dict[str, Any]", proof))) for name, proof in found.items()
    ]
    return template.render(
        name=facts["name"],
        target=facts["target"],
        facts=shown,
        passes=passes,
        memory=_memory(facts["plan"]),
        titles=PROOF,
        proofs=proofs,
    )


PROOF = ("pass", "runs", "promised", "relative error", "graph", "result", "input", "first node")
"""The columns of the table of proofs."""


def proof_row(name: str, proof: Proof) -> tuple[str, ...]:
    """What was found of a pass, as text; the rest is said of the result that moved most."""
    noise = f", roundings {proof.noise:.0e}" if proof.noise else ""
    numbers = (str(proof.runs), f"{proof.promised:.0e}{noise}", f"{proof.error:.1e}")
    return (name, *numbers, proof.graph, proof.result, proof.case, proof.node)


def _proof(proof: Proof | None) -> Json:
    """A proof as JSON, which has no infinity."""
    if proof is None:
        return None
    return {k: v if v != float("inf") else str(v) for k, v in asdict(proof).items()}


def percent(value: Json) -> str:
    """A share as text; less than all of it never reads as 100 %."""
    share = float(cast(float, value))
    return "100 %" if share == 1.0 else f"{min(99.99, 100 * share):.2f} %"


FORMS = {".json": _json, ".html": page, ".htm": page}
"""How a report is written, by the suffix of its name."""


def _row(entry: Mapping[str, Json]) -> dict[str, Json]:
    ops = cast("Mapping[str, int]", entry["operations"])
    kinds = ", ".join(f"{count} {name}" for name, count in list(ops.items())[:4])
    return {
        "name": entry["name"],
        "seconds": entry["seconds"],
        "operations": sum(ops.values()),
        "read": _megabytes(entry["bytes_read"]),
        "written": _megabytes(entry["bytes_written"]),
        "kinds": kinds,
    }


def _megabytes(count: Json) -> str:
    return "" if count is None else f"{cast(int, count) / 1e6:.1f}"


def _memory(plan: Json) -> Markup:
    return Markup() if plan is None else memory_section(decode(PlanRecord, plan))


def _plan(plan: Json) -> str:
    if plan is None:
        return "none"
    facts = cast("Mapping[str, float]", plan)
    return f"{facts['plan']} bytes, lower bound {facts['bound']}, gap {facts['gap']:.2%}"


def _list(value: Json) -> list[Mapping[str, Json]]:
    return list(cast("Sequence[Mapping[str, Json]]", value))
