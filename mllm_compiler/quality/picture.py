"""The picture of error by layer (matplotlib), as SVG that stands in a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from mllm_compiler.quality.layers import NodeError
from mllm_compiler.quality.libraries import library

INK = "#123456"
"""Stands for the colour of text until the page gives its own."""


def error_picture(nodes: Sequence[NodeError]) -> str:
    """An `<svg>`: nodes from left to right, the relative error upwards, an entry a line.

    It has no colour of its own but the lines', so that it is read on a light and a dark page, and
    the same nodes give the same bytes.

    Raises:
        CompileError: `MLC-X027`, matplotlib is not installed.
    """
    figure = library("matplotlib.figure").Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.add_subplot()
    entries = dict.fromkeys(node.name.partition("/")[0] for node in nodes)
    for entry in entries:
        errors = [n.error for n in nodes if n.name.partition("/")[0] == entry]
        axes.plot(range(len(errors)), errors, linewidth=1, label=entry)
    axes.set_xlabel("node", color=INK)
    axes.set_ylabel("relative error", color=INK)
    axes.set_ylim(bottom=0)
    axes.tick_params(colors=INK)
    axes.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    for spine in axes.spines.values():
        spine.set_color(INK)
    if len(entries) > 1:
        axes.legend(labelcolor=INK, framealpha=0)
    text = io.StringIO()
    with library("matplotlib").rc_context({"svg.hashsalt": "mllmc", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return re.sub(INK, "CanvasText", svg[svg.index("<svg") :])
