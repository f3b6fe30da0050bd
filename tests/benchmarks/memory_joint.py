"""What one plan for a whole pipeline saves beside an arena a session: a part of `memory.py`.

`joint_saving_meeting-vlm` is that of the model's encoder, projector and language model,
`joint_saving_vit-l` that of ViT-L before 32 layers of a language model; `joint_saving` is the
smaller. A session that stands alone has the best plan of its own buffers, and a copy of what is
handed to it; all entries of a language model are one session.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.passes import arena
from mllm_compiler.passes.arena import Interval
from mllm_compiler.passes.graphs import graphs, role_of
from mllm_compiler.passes.plan_memory import Planner
from mllm_compiler.recipes import find_model
from tests.benchmarks.buffers import Pipeline, vision_language

LANGUAGE: Final = "language-model"
ALONE: Final = ("encoder", "projector")
"""Roles of graphs that are a session each; all others serve the language model."""


def figures() -> dict[str, float]:
    """Every figure of this area."""
    model = find_model("meeting-vlm", lambda line: None)
    module = compile_model(Request(model=model)).module
    savings = {"meeting-vlm": saving(sessions(module)), "vit-l": saving(vision_language())}
    named = {f"joint_saving_{name}": share for name, share in savings.items()}
    return {"joint_saving": min(savings.values()), **named}


def saving(pipeline: Pipeline) -> float:
    """The share of the bytes of separate arenas that one arena for all does not need."""
    return 1 - arena.plan(pipeline.buffers).plan / sum(separate(pipeline).values())


def separate(pipeline: Pipeline) -> dict[str, int]:
    """The arena of each session alone."""
    sizes: dict[str, int] = {}
    for session, (first, last) in pipeline.spans.items():
        own = [
            dataclasses.replace(b, first=max(b.first, first), last=min(b.last, last))
            for b, users in zip(pipeline.buffers, pipeline.users, strict=True)
            if session in users
        ]
        sizes[session] = arena.plan(own).plan
    return sizes


def sessions(module: ModuleOp) -> Pipeline:
    """The sessions of a lowered module: one for each role in `ALONE`, one for the rest."""
    planner = Planner(module)
    names = {graph.sym_name.data: role_of(graph) for graph in graphs(module)}
    roles = {name: role if role in ALONE else LANGUAGE for name, role in names.items()}
    spans: dict[str, tuple[int, int]] = {}
    for graph, (first, last) in planner.spans.items():
        known = spans.get(roles[graph], (first, last))
        spans[roles[graph]] = min(known[0], first), max(known[1], last)
    return Pipeline(
        buffers=[Interval(b.name, b.first, b.last, b.size) for b in planner.buffers],
        users=[{roles[graph] for graph in b.graphs} for b in planner.buffers],
        spans=spans,
    )
