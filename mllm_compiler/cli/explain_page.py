"""What `mllmc explain` found, as JSON and as one HTML page."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from mllm_compiler.hal import target
from mllm_compiler.report import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mllm_compiler.bundle.typed_json import Json
    from mllm_compiler.passes.device_plan import DevicePlan
    from mllm_compiler.passes.place import Placement, Row, Total

TEMPLATES = files("mllm_compiler.cli") / "templates"


def facts_of(placement: Placement, model: str) -> dict[str, Json]:
    """All that is known: totals by home and by rule, and a record for each operation."""
    homes = placement.totals(lambda row: row.home or "none")
    rules = placement.totals(lambda row: None if row.refusal is None else row.refusal.rule)
    return {
        "model": model,
        "target": placement.target,
        "title": target(placement.target).title,
        "source": target(placement.target).source,
        "flops_share": placement.share(placement.target),
        "homeless": len(placement.homeless),
        "homes": {name: _total(total) for name, total in homes.items()},
        "rules": {name: _total(total) for name, total in rules.items()},
        "plans": [_plan(plan) for plan in placement.plans.values()],
        "operations": [_operation(row) for row in placement.rows],
    }


def page(facts: Mapping[str, Json]) -> str:
    """The facts as a page that needs no other file; names are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"percent": percent, "mega": _mega, "kilo": _kilo}
    template = (TEMPLATES / "explain.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(**facts)


def _mega(number: int) -> str:
    return f"{number / 1e6:.3f}"


def _kilo(number: int) -> str:
    return f"{number / 1e3:.1f}"


def _total(total: Total) -> dict[str, Json]:
    return {
        "operations": total.operations,
        "flops": total.flops,
        "bytes_read": total.read,
        "bytes_written": total.written,
        "bytes_weights": total.weights,
    }


def _plan(plan: DevicePlan) -> dict[str, Json]:
    calls: list[Json] = [asdict(call) for call in plan.calls]
    names = {"graph": plan.graph, "device": plan.device, "host": plan.host}
    return {**names, "calls": calls, **plan.facts}


def _operation(row: Row) -> dict[str, Json]:
    refusal = row.refusal
    return {
        "graph": row.graph,
        "location": row.location,
        "operation": row.operation,
        "type": row.type,
        "home": row.home,
        "why": row.why,
        "rule": None if refusal is None else {**asdict(refusal), "rule": str(refusal.rule)},
        "remedy": row.remedy,
        "flops": row.cost.flops,
        "bytes": row.cost.bytes,
        "bytes_read": row.cost.read,
        "bytes_written": row.cost.written,
        "bytes_weights": row.cost.weights,
    }
