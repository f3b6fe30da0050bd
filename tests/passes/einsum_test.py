"""`Einsum` becomes products, sums and transposes; NumPy's einsum says what each equation means."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mllm_compiler.errors import CompileError
from mllm_compiler.importer import import_model
from mllm_compiler.passes.equations import read_equation
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from tests.passes.exports_test import lifted

SIZES = {letter: 2 + at % 4 for at, letter in enumerate("abcdefghijklmnopqrstuvwxyzAB")}
EQUATIONS = [
    "ij,jk->ik",
    "bij,bjk->bik",
    "bthd,bshd->bhts",
    "bhts,bshd->bthd",
    "btd,dhk->bthk",
    "btd,hkd->bthk",
    "bthk,hkd->btd",
    "hd,btd->bth",
    "ij->ji",
    "ij->i",
    "ij->",
    "i,i->",
    "i,j->ij",
    "ij,ij->ij",
    "ij,kj",
    "ba",
    "cb,ba",
    "b...i,b...j->b...ij",
    "...ij,jk->...ik",
    "...ii->...i",
    "ii->",
    "iij->j",
    "ab,bc,cd->ad",
    "ab,bc,ac->",
    "bAd,dB->bAB",
]
EXTRA = (3, 2)
"""The extents of an ellipsis."""


def shapes(equation: str) -> list[list[int]]:
    terms = equation.partition("->")[0].split(",")
    return [
        [
            *_sizes(t.partition("...")[0]),
            *(EXTRA if "..." in t else ()),
            *_sizes(t.partition("...")[2]),
        ]
        for t in terms
    ]


def _sizes(letters: str) -> list[int]:
    return [SIZES[letter] for letter in letters]


def einsum(equation: str, dims: list[list[int | str]], folder: Path) -> Path:
    names = [f"x{i}" for i in range(len(dims))]
    given = zip(names, dims, strict=True)
    graph = helper.make_graph(
        [helper.make_node("Einsum", names, ["y"], name="/einsum", equation=equation)],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in given],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx"
    )
    return folder / "m.onnx"


def arrays(all_dims: list[list[int]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {f"x{i}": rng.standard_normal(d).astype(np.float32) for i, d in enumerate(all_dims)}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_equation_means_what_numpy_says(equation: str, tmp_path: Path) -> None:
    given = arrays(shapes(equation))
    module, store = lifted(einsum(equation, list(shapes(equation)), tmp_path))
    got = run_function(module, graphs(module)[0].sym_name.data, given, store)["y"]
    want = np.einsum(equation, *given.values())
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->iz", "ij,jk->iik", "ij->ij,k", "ijk,jk->i"])
def test_what_does_not_fit_is_no_equation(equation: str) -> None:
    assert read_equation(equation, [2, 2]) is None


@pytest.mark.parametrize(
    ("equation", "dims"),
    [("ij,jk->ik", [[2, 3], [4, 5]]), ("ij,ij->", [[2, 3], [2, 4]]), ("ii->i", [[2, 3]])],
)
def test_extents_that_differ_are_a_located_line(
    equation: str, dims: list[list[int | str]], tmp_path: Path
) -> None:
    """NumPy's einsum refuses them too."""
    with pytest.raises(ValueError, match=r"dimension|broadcast"):
        np.einsum(equation, *[np.ones(d) for d in dims])
    with pytest.raises(CompileError) as caught:
        lifted(einsum(equation, dims, tmp_path))
    assert caught.value.location == "/einsum"


def test_sizes_may_be_symbols(tmp_path: Path) -> None:
    file = einsum("bthd,bshd->bhts", [["b", "t", 2, 4], ["b", "s", 2, 4]], tmp_path)
    given = arrays([[3, 5, 2, 4], [3, 7, 2, 4]])
    module, store = lifted(file)
    assert '"b", "2", "t", "s"' in str(graphs(module)[0].function_type.outputs.data[0])
    got = run_function(module, graphs(module)[0].sym_name.data, given, store)["y"]
    np.testing.assert_allclose(
        got, np.einsum("bthd,bshd->bhts", *given.values()), rtol=1e-5, atol=1e-5
    )


ATTENTION = """
g (float[b, t, 16] x) => (float[b, t, 16] y) {
  q = Einsum <equation = "btd,dhk->bthk"> (x, wq)
  k = Einsum <equation = "btd,dhk->bthk"> (x, wk)
  v = Einsum <equation = "btd,hkd->bthk"> (x, wv)
  s = Einsum <equation = "bthk,bshk->bhts"> (q, k)
  half = Constant <value_float = 0.5> ()
  scaled = Mul (s, half)
  p = Softmax <axis = -1> (scaled)
  o = Einsum <equation = "bhts,bshk->bthk"> (p, v)
  y = Einsum <equation = "bthk,hkd->btd"> (o, wo)
}
"""


def test_attention_by_equations_is_attention(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + ATTENTION)
    rng, shape = np.random.default_rng(1), {"wv": (4, 4, 16), "wo": (4, 4, 16)}
    weights = {
        n: rng.standard_normal(shape.get(n, (16, 4, 4))).astype(np.float32)
        for n in ("wq", "wk", "wv", "wo")
    }
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    onnx.save(model, tmp_path / "m.onnx")
    x = {"x": rng.standard_normal((2, 3, 16)).astype(np.float32)}
    before = import_model(tmp_path / "m.onnx")
    name = graphs(before.module)[0].sym_name.data
    want = run_function(before.module, name, x, before.store)["y"]
    module, store = lifted(tmp_path / "m.onnx")
    counts = Counter(op.name for op in module.walk())
    assert (counts["mllm.attention"], counts["mllm.linear"]) == (1, 4)
    assert not counts["mllm.matmul"] + counts["mllm.transpose"] + counts["mllm.reshape"]
    np.testing.assert_allclose(
        run_function(module, name, x, store)["y"], want, rtol=1e-5, atol=1e-5
    )
