"""The memory plan over time as a picture, and who holds the peak: a section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mllm_compiler.bundle.manifest import BufferRecord, PlanRecord
from mllm_compiler.passes.arena import peak as first_peak
from mllm_compiler.passes.intervals import Interval, Overlap, touches

COLOURS: Final = 6
"""Graphs in the order in which they run have them in turn."""

NAMED: Final = 3
"""Holders of the peak that a line names."""

SECTION: Final = """\
<style>
.memory { --c0: #0072b2; --c1: #d55e00; --c2: #009e73;
--c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; }
@media (prefers-color-scheme: dark) {
.memory { --c0: #4fa3e0; --c1: #f08a4b; --c2: #3cc79b;
--c3: #e3a6c8; --c4: #f2c14e; --c5: #8fd0f5; }
}
.memory .map { display: block; width: 100%; height: 25em; }
.memory .frame { fill: none; stroke: currentColor; }
.memory line { stroke: currentColor; stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
.memory g:nth-of-type(even) rect { fill-opacity: .65; }
.memory g:is(:hover, :focus) rect { stroke: currentColor; vector-effect: non-scaling-stroke; }
.memory g:focus rect { stroke-width: 3; }
.memory g { outline: none; }
.memory g foreignObject { display: none; }
.memory g:is(:hover, :focus) foreignObject { display: block; }
.memory .map:has(g:focus) g:hover:not(:focus) foreignObject { display: none; }
{% for i in range(colours) %}
.memory .c{{ i }} { fill: var(--c{{ i }}); background: var(--c{{ i }}); }
{% endfor %}
.memory text { fill: currentColor; }
.memory ul { display: flex; flex-wrap: wrap; gap: .2em 1.2em; padding: 0; list-style: none; }
.memory i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
</style>
<section class="memory">
<h2>Memory</h2>
<p>{{ peak.line[0] | upper }}{{ peak.line[1:] }}.</p>
<p>&uarr; {{ size }} bytes; point at a rectangle, or reach it with the tab key, to see \
what it is.</p>
{% set view = 'viewBox="0 0 %d %d" preserveAspectRatio="none" height="20em"' | safe \
| format(end, plan.plan) %}
<svg class="map" role="group" \
aria-label="The arena: stages from left to right, addresses upwards, a rectangle a buffer">
<rect class="frame" width="100%" height="20em"/>
{% for box in boxes %}
<g tabindex="0" role="img" aria-label="{{ box.title }}"><svg {{ view }}>
<rect class="c{{ box.colour }}" x="{{ box.x }}" y="{{ box.y }}" width="{{ box.width }}" \
height="{{ box.height }}"/></svg>
<foreignObject y="21.7em" width="100%" height="3em"><span>{{ box.title }}</span>\
</foreignObject></g>
{% endfor %}
<svg {{ view }}>
{% for time in peak.times %}
<line x1="{{ time + 0.5 }}" x2="{{ time + 0.5 }}" y1="0" y2="{{ plan.plan }}"/>
{% endfor %}
</svg>
<text y="21.3em">stage 0</text>
<text x="100%" y="21.3em" text-anchor="end">stage {{ end - 1 }} &rarr;</text>
</svg>
<ul>
{% for span in plan.graphs %}
<li><i class="c{{ loop.index0 % colours }}"></i>{{ span.graph }}: from stage {{ span.first }}
{% endfor %}
<li>dashed: the peak
{% for sides in plan.overlaps %}
<li>at the same time: {{ sides | map("join", ", ") | join("; ") }}
{% endfor %}
{% for bank in plan.banks %}
<li>{{ bank.name }}: {{ "{:,}".format(bank.size) }} bytes from {{ "{:,}".format(bank.offset) }}
{% endfor %}
</ul>
<div class="wide"><table>
<tr><th>holds the peak<th class="n">bytes<th class="n">of it<th class="n">from stage<th class="n">to
{% for holder in peak.holders %}
<tr><td>{{ holder.name }}<td class="n">{{ "{:,}".format(holder.size) }}\
<td class="n">{{ "%.1f %%" | format(100 * holder.size / peak.size) }}\
<td class="n">{{ holder.first }}<td class="n">{{ holder.last }}
{% endfor %}
</table></div>
</section>
"""


@dataclass(frozen=True)
class Peak:
    """When most bytes are in use, and what they are, the largest first.

    That is at one stage, or at one of each of the graphs that may run at the same time.
    """

    times: tuple[int, ...]
    size: int
    holders: tuple[BufferRecord, ...]

    @property
    def line(self) -> str:
        """The largest holders in a line."""
        shown = [f"{b.name} ({b.size:,})" for b in self.holders[:NAMED]]
        rest = self.holders[NAMED:]
        shown += [f"{len(rest)} more ({sum(b.size for b in rest):,})"] if rest else []
        stages = " and ".join(map(str, self.times))
        return f"the peak of {self.size:,} bytes is held at stage {stages} by {', '.join(shown)}"


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture; stages from the left, bytes from the top."""

    colour: int
    x: int
    y: int
    width: int
    height: int
    title: str


def peak_of(plan: PlanRecord) -> Peak | None:
    """The peak of a plan; none where it has no buffers. Sizes count as they are aligned."""
    lives = {b: Interval(b.name, b.first, b.last, b.size) for b in plan.buffers}
    times, size = first_peak([*lives.values()], overlaps=overlaps_of(plan))
    spans = [(time, time) for time in times]
    holders = [b for b, life in lives.items() if b.size and touches(life, spans)]
    holders.sort(key=lambda b: (-b.size, b.offset))
    return Peak(times, size, tuple(holders)) if holders else None


def overlaps_of(plan: PlanRecord) -> list[Overlap]:
    """The graphs that may run at the same time, by the stages of each."""
    spans = {span.graph: (span.first, max(span.first, span.last - 1)) for span in plan.graphs}
    return [tuple(tuple(spans[g] for g in side) for side in sides) for sides in plan.overlaps]


def boxes_of(plan: PlanRecord) -> list[Box]:
    """A rectangle for each buffer, in the colour of the graph that writes it."""
    starts = [span.first for span in plan.graphs]
    return [
        Box(
            colour=max(0, sum(start <= b.first for start in starts) - 1) % COLOURS,
            x=b.first,
            y=plan.plan - b.offset - b.size,
            width=b.last - b.first + 1,
            height=b.size,
            title=f"{b.name}: {b.size:,} bytes at {b.offset:,}, stages {b.first} to {b.last}",
        )
        for b in plan.buffers
    ]


def memory_section(plan: PlanRecord) -> Markup:
    """The part of a page; empty where the plan has no buffers. It needs no other file."""
    peak = peak_of(plan)
    if peak is None:
        return Markup()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return Markup(
        environment.from_string(SECTION).render(
            plan=plan,
            size=f"{plan.plan:,}",
            end=max(b.last for b in plan.buffers) + 1,
            peak=peak,
            boxes=boxes_of(plan),
            colours=COLOURS,
        )
    )
