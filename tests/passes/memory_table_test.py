"""`[memory]` of a model.toml: what it makes of the plan of a whole model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mllm_compiler.assembly import plan_record
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.bundle.manifest import PlanRecord
from mllm_compiler.bundle.typed_json import decode, encode
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.memory_map import memory_section, peak_of
from mllm_compiler.passes.arena import PLAIN
from mllm_compiler.passes.graphs import graphs, origin_of
from tests.cli.recipes import tiny

OVERLAP = '[memory]\noverlap = [["vision", "decoder"]]\n'
LANGUAGE = ("decoder", "prefill", "decode", "embed")
BANKS = """
[[memory.banks]]
name = "fast"
bytes = 100000
[[memory.banks]]
name = "wide"
alignment = 262144
large = 100000
"""


def folder_of(tmp_path: Path, table: str) -> Path:
    """tiny-vlm with a table more in its model.toml."""
    made = tmp_path / "model"
    shutil.copytree(tiny("tiny-vlm"), made)
    file = made / "model.toml"
    file.write_text(file.read_text("utf-8") + table, "utf-8")
    return made


def plan_of(tmp_path: Path, table: str = "") -> PlanRecord:
    return plan_record(emit(compile_model(Request(model=folder_of(tmp_path, table))).module).plan)


def live(plan: PlanRecord, *ticks: int) -> int:
    """The bytes that are in use at some stages."""
    used = [b for b in plan.buffers if any(b.first <= tick <= b.last for tick in ticks)]
    return sum(PLAIN.aligned(b.size) for b in used)


def test_graphs_that_overlap_need_the_peaks_of_both(tmp_path: Path) -> None:
    """Beside every pair of a stage of the encoder and a stage of the language model."""
    plain = plan_of(tmp_path / "plain")
    plan = plan_of(tmp_path / "overlap", OVERLAP)
    spans = {span.graph: range(span.first, span.last) for span in plan.graphs}
    language = [tick for name in LANGUAGE for tick in spans[name]]
    most = max(live(plan, eye, tick) for eye in spans["vision"] for tick in language)
    assert plan.bound == most > plain.bound
    assert plan.plan == plan.bound
    peak = peak_of(plan)
    assert peak is not None
    assert len(peak.times) == 2
    assert peak.size == live(plan, *peak.times) == most
    assert "at the same time: vision; " in memory_section(plan)
    for eye in plan.buffers:
        for other in plan.buffers:
            seen = eye.first <= spans["vision"][-1] and eye.last >= spans["vision"][0]
            said = any(other.first <= tick <= other.last for tick in language)
            if not (seen and said) or eye is other:
                continue
            low, high = sorted((eye, other), key=lambda b: b.offset)
            assert low.offset + low.size <= high.offset, (eye.name, other.name)


def test_an_overlap_names_all_that_a_graph_becomes(tmp_path: Path) -> None:
    module = compile_model(Request(model=folder_of(tmp_path, OVERLAP))).module
    origins = {graph.sym_name.data: origin_of(graph) for graph in graphs(module)}
    assert [origins[name] for name in ("prefill", "decode")] == ["decoder", "decoder"]
    ((eyes, language),) = plan_record(emit(module).plan).overlaps
    assert eyes == ("vision",)
    assert sorted(language) == sorted(LANGUAGE)


def test_each_bank_has_its_part_of_the_arena(tmp_path: Path) -> None:
    for name, table in (("banks", BANKS), ("both", OVERLAP + BANKS)):
        plan = plan_of(tmp_path / name, table)
        fast, wide = plan.banks
        assert (fast.name, wide.name, fast.offset) == ("fast", "wide", 0)
        assert 0 < fast.size <= 100000 < wide.size
        assert wide.offset % 262144 == 0
        assert wide.offset + wide.size == plan.plan
        for b in plan.buffers:
            inside = [k for k in plan.banks if k.offset <= b.offset < k.offset + k.size]
            assert [b.offset + b.size <= k.offset + k.size for k in inside] == [True]
            assert (b.offset - wide.offset) % 262144 == 0 or inside == [fast] or b.size < 100000
        assert decode(PlanRecord, encode(plan)) == plan
        assert "fast: " in memory_section(plan)


def test_the_header_says_where_the_banks_lie(tmp_path: Path) -> None:
    output = tmp_path / "eyes.mllm_bundle"
    request = Request(model=folder_of(tmp_path, BANKS), output=output, emit_c=True)
    manifest = compile_model(request).manifest
    assert manifest is not None
    header = (tmp_path / "eyes.h").read_text(encoding="utf-8")
    for bank in manifest.plan.banks:
        name = f"#define EYES_BANK_{bank.name.upper()}"
        assert f"{name}_START {bank.offset}ull\n{name}_BYTES {bank.size}ull\n" in header


def test_what_no_bank_has_room_for_is_refused_with_the_holders(tmp_path: Path) -> None:
    small = '[[memory.banks]]\nname = "small"\nbytes = 300000\n'
    with pytest.raises(CompileError) as caught:
        plan_of(tmp_path, small)
    needed = plan_of(tmp_path / "again").plan
    text = str(caught.value)
    assert caught.value.code == "MLC-R009"
    assert f"takes {needed} bytes of 'small', {needed - 300000} more than there are" in text
    assert "; the peak is held by this with " in text
    assert "\n" not in text


def test_a_tensor_that_no_bank_takes_is_named(tmp_path: Path) -> None:
    large = '[[memory.banks]]\nname = "large"\nleast = 1000000\n'
    with pytest.raises(CompileError, match=r"no bank takes this tensor of \d+ bytes") as caught:
        plan_of(tmp_path, large)
    assert caught.value.code == "MLC-R009"
