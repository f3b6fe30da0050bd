"""Builds the `.rknn` files of this folder with Rockchip's toolkit, as build.json says.

    python build.py                    GRAPH.rknn of every graph
    python build.py GRAPH GRAPH        of some
    python build.py GRAPH --simulate   one graph in the toolkit's simulator, which runs only what it
                                       has built itself: each line of the input is IN.npz, a tab and
                                       OUT.npz, and is answered by `done`

It needs rknn-toolkit2 2.5.0, and nothing of the compiler that wrote it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

FLOAT = "f16"

Plan = dict[str, Any]


def built(plan: Plan, graph: str) -> Any:
    """The toolkit with a graph built in it."""
    print(f"building {graph}", flush=True)
    about, quantised = plan["graphs"][graph], plan["form"] != FLOAT
    toolkit = import_module("rknn.api").RKNN(verbose=True)
    config = {"target_platform": plan["soc"]}
    if quantised:
        config.update(quantized_dtype=plan["form"], quantized_method=plan["method"])
    toolkit.config(**config)
    checked(toolkit.load_onnx(model=about["onnx"]), "load_onnx")
    dataset = about["dataset"] if quantised else None
    checked(toolkit.build(do_quantization=quantised, dataset=dataset), "build")
    return toolkit


def export(plan: Plan, graph: str) -> None:
    """Writes the file of a graph."""
    toolkit = built(plan, graph)
    checked(toolkit.export_rknn(f"{graph}.rknn"), "export_rknn")
    toolkit.release()


def simulate(plan: Plan, graph: str, answers: TextIO) -> None:
    """Runs a graph for each line of the standard input."""
    toolkit, about = built(plan, graph), plan["graphs"][graph]
    checked(toolkit.init_runtime(), "init_runtime")
    for line in sys.stdin:
        source, target = line.rstrip("\n").split("\t")
        with np.load(source) as arrays:
            inputs = [arrays[name] for name in about["inputs"]]
        outputs = toolkit.inference(inputs=inputs, data_format=["nchw"] * len(inputs))
        named: Plan = dict(zip(about["outputs"], outputs))  # noqa: B905
        np.savez(target, **named)
        print("done", file=answers, flush=True)


def checked(status: int, call: str) -> None:
    """Ends the program where a call of the toolkit failed."""
    if status != 0:
        sys.exit(f"{call} answers {status}")


def main() -> None:
    """Does what the arguments ask for."""
    folder = Path(__file__).resolve().parent
    os.chdir(folder)
    plan: Plan = json.loads((folder / "build.json").read_text("utf-8"))
    graphs = [word for word in sys.argv[1:] if word != "--simulate"]
    if "--simulate" in sys.argv:
        # What the toolkit prints goes with its errors; the answers have the output to themselves.
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        simulate(plan, graphs[0], answers)
        return
    for graph in graphs or plan["graphs"]:
        export(plan, graph)


if __name__ == "__main__":
    main()
