"""A model of 2 GiB is compiled with less than 1 GiB of anonymous memory, on every target.

The operating system holds the compiler to that (RLIMIT_DATA), and what it really held is sampled
from `/proc` and printed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.slow

GIB = 1 << 30
VOCAB, HIDDEN, INNER, LAYERS = 131072, 1024, 16384, 8


def weights() -> dict[str, tuple[int, int]]:
    """An embedding and a head of 512 MiB each, and 16 matrices of 64 MiB."""
    made = {"embedding": (VOCAB, HIDDEN), "head": (HIDDEN, VOCAB)}
    for layer in range(LAYERS):
        made |= {f"up.{layer}": (HIDDEN, INNER), f"down.{layer}": (INNER, HIDDEN)}
    return made


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """The model, with weights that are holes of a sparse file but for their first bytes."""
    data, tensors = tmp_path / "large.data", list[onnx.TensorProto]()
    with data.open("wb") as file:
        at = 0
        for number, (name, shape) in enumerate(weights().items()):
            size = shape[0] * shape[1] * 4
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", at), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            file.seek(at)
            file.write(bytes([number + 1] * 3 + [0x3F]))
            at += size
        file.truncate(at)
    assert at == 2 * GIB
    onnx.save(model(tensors), tmp_path / "large.onnx")
    yield tmp_path / "large.onnx"
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def model(tensors: Sequence[onnx.TensorProto]) -> onnx.ModelProto:
    nodes = [helper.make_node("Gather", ["embedding", "ids"], ["h"])]
    value = "h"
    for layer in range(LAYERS):
        nodes += [
            helper.make_node("MatMul", [value, f"up.{layer}"], [f"u{layer}"]),
            helper.make_node("Relu", [f"u{layer}"], [f"r{layer}"]),
            helper.make_node("MatMul", [f"r{layer}", f"down.{layer}"], [f"d{layer}"]),
            helper.make_node("Add", [value, f"d{layer}"], [f"s{layer}"]),
        ]
        value = f"s{layer}"
    nodes.append(helper.make_node("MatMul", [value, "head"], ["logits"]))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 4])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 4, VOCAB])
    graph = helper.make_graph(nodes, "large", [ids], [logits], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("target", ["numpy", "c"])
def test_weights_are_streamed(target: str, large: Path) -> None:
    bundle, start = large.with_name("large.mllm_bundle"), time.monotonic()
    command = [sys.executable, "-m", "mllm_compiler.cli", "compile", large, "--unsigned"]
    process = subprocess.Popen(
        [*command, "--target", target, "-o", bundle],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(large.parent)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (GIB, GIB)),
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous(process.pid))
        time.sleep(0.02)
    seconds = time.monotonic() - start
    print(f"{target}: peak of RssAnon {peak / 1e6:.0f} MB, {seconds:.0f} s")
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read().decode()
    assert 0 < peak < GIB // 4
    assert bundle.stat().st_size > 2 * GIB
    left = {path.name for path in large.parent.iterdir()}
    assert left == {"large.onnx", "large.data", bundle.name}


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory that a process holds now."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon")), 0)
