"""The picture of a memory plan and what holds its peak: beside counts stage by stage.

And that the IR, the readable C, the manifest and the picture name the same offsets.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from xdsl.ir import Block, Operation

from mllm_compiler.assembly import plan_record
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.bundle.manifest import BufferRecord, PlanRecord, SpanRecord
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.dialects import cpu
from mllm_compiler.memory_map import boxes_of, memory_section, peak_of
from mllm_compiler.passes.arena import PLAIN
from mllm_compiler.passes.graphs import functions
from mllm_compiler.passes.joined import is_placed
from mllm_compiler.passes.plan_memory import SLOT
from tests.cli.recipes import tiny

SVG = re.compile(r"<svg class=.*</svg>", re.DOTALL)


@pytest.fixture(scope="module", params=["tiny-whisper", "tiny-vlm"])
def planned(request: pytest.FixtureRequest) -> tuple[Path, PlanRecord]:
    """A model of several graphs, and its plan."""
    model = tiny(request.param)
    module = compile_model(Request(model=model)).module
    return model, plan_record(emit(module).plan)


def groups(plan: PlanRecord) -> list[ET.Element]:
    """The rectangles of the picture with their texts, as an XML parser reads them."""
    found = SVG.search(memory_section(plan))
    assert found is not None
    return list(ET.fromstring(found[0].replace("&rarr;", "")).iter("g"))


def rectangles(plan: PlanRecord) -> list[tuple[str, int, int, int, int]]:
    """Text, x, y, width and height of what the picture draws."""
    drawn: list[tuple[str, int, int, int, int]] = []
    for group in groups(plan):
        (box,) = group.iter("rect")
        x, y, width, height = (int(box.attrib[key]) for key in ("x", "y", "width", "height"))
        drawn.append((group.findtext("foreignObject/span", ""), x, y, width, height))
    return drawn


def test_the_keyboard_reaches_every_rectangle_and_shows_what_pointing_shows(
    planned: tuple[Path, PlanRecord],
) -> None:
    """By rules for both at once: a text beside each, hidden until its rectangle is reached."""
    _, plan = planned
    drawn = groups(plan)
    assert len(drawn) == len(plan.buffers)
    for group in drawn:
        assert group.attrib["tabindex"] == "0"
        assert group.attrib["aria-label"] == group.findtext("foreignObject/span")
    style = memory_section(plan).split("</style>")[0]
    assert ".memory g foreignObject { display: none; }" in style
    assert ".memory g:is(:hover, :focus) foreignObject { display: block; }" in style


def test_the_picture_has_every_buffer_once(planned: tuple[Path, PlanRecord]) -> None:
    _, plan = planned
    want = [
        (
            f"{b.name}: {b.size:,} bytes at {b.offset:,}, stages {b.first} to {b.last}",
            b.first,
            plan.plan - b.offset - b.size,
            b.last - b.first + 1,
            b.size,
        )
        for b in plan.buffers
    ]
    assert len(want) > 50
    assert rectangles(plan) == want


def test_no_two_rectangles_overlap(planned: tuple[Path, PlanRecord]) -> None:
    _, plan = planned
    drawn = rectangles(plan)
    for i, (title, x, y, width, height) in enumerate(drawn):
        assert 0 <= y <= y + height <= plan.plan, title
        for other, left, top, wide, high in drawn[:i]:
            apart = x >= left + wide or left >= x + width or y >= top + high or top >= y + height
            assert apart, (title, other)


def test_the_holders_of_the_peak_are_what_the_plan_needs(planned: tuple[Path, PlanRecord]) -> None:
    """Beside the bytes at every stage, and the bound of the planner."""
    _, plan = planned
    live = [
        sum(PLAIN.aligned(b.size) for b in plan.buffers if b.first <= time <= b.last)
        for time in range(max(b.last for b in plan.buffers) + 1)
    ]
    peak = peak_of(plan)
    assert peak is not None
    assert peak.size == max(live) == plan.bound == plan.plan
    assert peak.times == (live.index(max(live)),)
    assert sum(PLAIN.aligned(b.size) for b in peak.holders) == plan.plan
    assert all(b.first <= peak.times[0] <= b.last for b in peak.holders)


def test_the_section_names_the_holders_and_needs_no_other_file() -> None:
    plan = PlanRecord(
        bound=192,
        plan=192,
        buffers=(
            BufferRecord(name="a: <x>&", offset=0, size=100, first=0, last=2),
            BufferRecord(name="b: y", offset=128, size=64, first=2, last=3),
            BufferRecord(name="b: z", offset=0, size=64, first=3, last=3),
        ),
        graphs=(SpanRecord(graph="a", first=0, last=2), SpanRecord(graph="b", first=2, last=4)),
    )
    text = memory_section(plan)
    line = "The peak of 192 bytes is held at stage 2 by a: &lt;x&gt;&amp; (100), b: y (64)"
    assert line in text
    assert "<td>b: y<td" in text
    assert "<td>b: z<td" not in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?:|src=|@import|url\(|<script", text)
    assert [box.colour for box in boxes_of(plan)] == [0, 1, 1]


def test_a_line_names_three_holders_and_counts_the_rest() -> None:
    sizes = (64, 128, 640, 256, 320)
    buffers = tuple(
        BufferRecord(name=f"b{i}", offset=sum(sizes[:i]), size=size, first=0, last=0)
        for i, size in enumerate(sizes)
    )
    peak = peak_of(PlanRecord(bound=1408, plan=1408, buffers=buffers))
    assert peak is not None
    assert peak.line.endswith("by b2 (640), b4 (320), b3 (256), 2 more (192)")


def test_a_plan_of_no_buffers_has_no_picture() -> None:
    assert peak_of(PlanRecord()) is None
    assert memory_section(PlanRecord()) == ""


def slot_of(op: Operation | Block) -> tuple[int, int]:
    assert isinstance(op, cpu.CpuOp)
    slot = op.attributes[SLOT]
    assert isinstance(slot, cpu.SlotAttr)
    return slot.offset.data, slot.size.data


def test_ir_header_and_manifest_name_the_same_offsets(tmp_path: Path) -> None:
    output = tmp_path / "eyes.mllm_bundle"
    compiled = compile_model(Request(model=tiny("tiny-vlm"), output=output, emit_c=True))
    assert compiled.manifest is not None
    attributes = [
        found
        for graph in functions(compiled.module)
        for op in graph.walk()
        for found in op.attributes.values()
    ]
    for graph in functions(compiled.module):
        for side in (graph.arg_attrs, graph.res_attrs):
            attributes += [] if side is None else [a for d in side for a in d.data.values()]
    slots = {(a.offset.data, a.size.data) for a in attributes if isinstance(a, cpu.SlotAttr)}
    header = (tmp_path / "eyes.h").read_text(encoding="utf-8")
    defined = re.findall(
        r"^#define EYES_BUFFER_\d+ (\d+)ull /\* (\d+) bytes, stages (\d+) to (\d+): (.*) \*/$",
        header,
        re.MULTILINE,
    )
    plan = compiled.manifest.plan
    joined = [op for graph in functions(compiled.module) for op in graph.walk() if is_placed(op)]
    parts = {slot_of(x.owner) for join in joined for x in join.operands}
    assert len(parts) == 2
    assert {(int(offset), int(size)) for offset, size, *_ in defined} == slots - parts
    assert {(b.offset, b.size) for b in plan.buffers} == slots - parts
    want = sorted((b.offset, b.size, b.first, b.last, b.name) for b in plan.buffers)
    assert sorted((*map(int, numbers), name) for *numbers, name in defined) == want
    assert f"#define EYES_ARENA_BYTES {plan.plan}ull" in header


def test_compile_says_what_holds_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny("tiny-vit"))
    monkeypatch.chdir(tmp_path)
    words = ["compile", model, "-o", "out.mllm_bundle", "--unsigned", "--report", "out.html"]
    assert run(words) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("memory: "))
    told = re.fullmatch(r"memory: bound (\d+), plan (\d+), gap 0.00%; (the peak of .*)", line)
    assert told is not None
    assert f"the peak of {int(told[1]):,} bytes is held at stage " in told[3]
    assert f"<p>T{told[3][1:]}.</p>" in (tmp_path / "out.html").read_text(encoding="utf-8")
