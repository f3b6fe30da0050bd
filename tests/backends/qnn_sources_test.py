"""What Qualcomm's SDK makes a model library from: it compiles, and holds what the graphs hold.

`model.cpp` is compiled against declarations of our own (`qnn_api/`), which name what the public
interface names; the SDK's wrapper itself is not at hand.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.qnn import sdk
from mllm_compiler.backends.qnn.graph import Encoding, Graph, Node, Tensor
from mllm_compiler.backends.qnn.sources import sources
from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.model import open_model
from mllm_compiler.importer import DimSpec
from mllm_compiler.recipes import build_recipe

API = Path(__file__).parent / "qnn_api"
W = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
ENCODINGS = {
    "tensor": Encoding(scales=(0.5,), zero_point=3),
    "rows": Encoding(scales=(0.5, 0.25), axis=0),
    "narrow": Encoding(scales=(0.5,), bits=4),
    "narrow-rows": Encoding(scales=(0.5, 0.25), axis=0, bits=4),
    "blocks": Encoding(scales=(0.5, 0.25), axis=0, bits=4, blocks=np.array([[1, 15], [7, 15]])),
}


def graph(encoding: Encoding) -> Graph:
    tensors = [
        Tensor(name="x", element="f16", dims=(3, 4), role="input"),
        Tensor(name="w", element="i8", dims=(2, 4), role="static", encoding=encoding, data=W),
        Tensor(name="y", element="f16", dims=(3, 2)),
        Tensor(name='odd "name"', element="f16", dims=(2, 3), role="output"),
    ]
    perm = np.array([1, 0], np.uint32)
    turn = Tensor(name="perm", element="ui32", dims=(2,), role="static", data=perm)
    nodes = [
        Node(name="a", operator="FullyConnected", inputs=("x", "w"), outputs=("y",), parameters={}),
        Node(
            name="b",
            operator="Transpose",
            inputs=("y",),
            outputs=('odd "name"',),
            parameters={"perm": turn, "beta": ("f32", 1.5), "keep": ("i1", True)},
            location="/model/turn",
        ),
    ]
    return Graph(name="f", tensors={t.name: t for t in tensors}, nodes=nodes)


@pytest.mark.parametrize("kind", ENCODINGS)
def test_the_code_compiles_whatever_codes_mean(kind: str, tmp_path: Path) -> None:
    compiles(sources([graph(ENCODINGS[kind])]), tmp_path)


def test_without_the_library_a_bundle_has_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None)
    bundle = tmp_path / "words.mllm_bundle"
    dims = {
        "sequence_length": DimSpec(max=4, buckets=(1, 4)),
        "past_sequence_length": DimSpec(max=8),
    }
    model = build_recipe("tiny-llama", lambda line: None)
    compile_model(Request(model=model, target="qnn", dims=dims, output=bundle))
    opened = open_bundle(bundle, Policy(allow_unsigned=True))
    made = {
        name: bytes(opened.member(f"targets/qnn/{name}"))
        for name in ("model.cpp", "model.bin", "net.json")
    }
    compiles(made, tmp_path)
    nets = json.loads(made["net.json"])["graphs"]
    assert list(nets) == ["decoder_1", "decoder_4"]
    kinds = {node["type"] for node in nets["decoder_4"]["nodes"].values()}
    assert {"RmsNorm", "FullyConnected", "RotaryEmbedding", "MatMul", "Softmax"} <= kinds
    with tarfile.open(fileobj=BytesIO(made["model.bin"])) as archive:
        sizes = {m.name.removesuffix(".raw"): m.size for m in archive.getmembers()}
    assert 274 * 32 * 2 in sizes.values(), "the table of tokens, once, in halves"
    assert set(re.findall(r"BINVARSTART\((\w+)\)", made["model.cpp"].decode())) == set(sizes)
    with pytest.raises(CompileError) as caught:
        open_model(opened)
    assert caught.value.code == "MLC-B010"
    assert "only sources" in caught.value.message


def compiles(made: Mapping[str, bytes], folder: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    code = made["model.cpp"].decode()
    names = set(re.findall(r"BINVARSTART\((\w+)\)", code))
    symbols = "".join(
        f"extern char _binary_obj_binary_{n}_raw_start, _binary_obj_binary_{n}_raw_end;\n"
        for n in names
    )
    (folder / "model.cpp").write_text(symbols + code)
    options = ["-std=c++11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [compiler, *options, f"-I{API}", str(folder / "model.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]
