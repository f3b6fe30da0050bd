"""Quantised products compute what plain NumPy, and ONNX Runtime on the exported ONNX, compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Operation

from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import make_context, mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import Activation, array_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.quantise_linears import QuantiseLinears
from mllm_compiler.passes.quantised_products import quantised_products
from mllm_compiler.quantisation.gptq import gptq
from mllm_compiler.quantisation.grid import Grid
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.backends.onnx_export.roundtrip import answers
from tests.backends.small_models import Array, Graph, llama, llama_inputs, module_of

RNG = np.random.default_rng(3)
WIDTH, INNER = 24, 40
ROWS = tensor_of(f32, (1, Dim.symbol("tokens"), WIDTH))


def chain(*, role: str = "graph", bias: bool = True) -> tuple[ModuleOp, WeightStore]:
    """Two products, one after the other."""
    store = WeightStore()
    g = Graph("f", role, store, {"x": ROWS})
    first = g.linear(g["x"], "first", INNER, bias=bias)
    return module_of(g.finish({"y": g.linear(first, "second", WIDTH)})), store


def quantised(module: ModuleOp, store: WeightStore, recipe: Path | str, data: str = "") -> None:
    QuantiseLinears(recipe=str(recipe), data=data).apply(make_context(store), module)
    module.verify()


def recipe_of(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def found(module: ModuleOp, kind: type[Operation]) -> list[Operation]:
    return [op for op in module.walk() if isinstance(op, kind)]


def weight_of(module: ModuleOp, store: WeightStore, name: str) -> Array:
    named = [op for op in module.walk() if isinstance(op, mllm.WeightOp) and op.weight_name]
    blob = next(op.value for op in named if op.weight_name and op.weight_name.data == name)
    return store.array(blob.digest.data, str(blob.element), blob.dims)


def fake(weight: Array, bits: int, block: int | None, *, symmetric: bool) -> Array:
    """A weight to the nearest code and back, block by block, written plainly."""
    made = np.zeros(weight.shape)
    size = block or weight.shape[1]
    for n, row in enumerate(weight):
        for start in range(0, len(row), size):
            part = row[start : start + size].astype(np.float64)
            low, high = min(part.min(), 0), max(part.max(), 0)
            if symmetric:
                top = 2 ** (bits - 1) - 1
                scale = np.float64(np.float16(max(-low, high) / top))
                made[n, start : start + size] = (part / scale).round().clip(-top - 1, top) * scale
            else:
                top = 2**bits - 1
                scale = np.float64(np.float16((high - low) / top))
                zero = np.round(-low / scale).clip(0, top)
                codes = ((part / scale).round() + zero).clip(0, top)
                made[n, start : start + size] = (codes - zero) * scale
    return made


def rounded_rows(x: Array, block: int | None) -> Array:
    """Activations to the nearest of 255 codes and back, token by token, block by block."""
    made, size = np.zeros(x.shape), block or x.shape[-1]
    for at in np.ndindex(x.shape[:-1]):
        for start in range(0, x.shape[-1], size):
            part = x[at][start : start + size].astype(np.float64)
            scale = np.abs(part).max() / 127
            made[at][start : start + size] = (part / scale).round() * scale
    return made


FORMATS = [
    ("bits = 8\nactivations = 'dynamic'", 8, None, True, True),
    ("bits = 4\nblock_size = 8\nsymmetric = false\nactivations = 'dynamic'", 4, 8, False, True),
    ("bits = 4\nblock_size = 16\nactivations = 'dynamic'", 4, 16, True, True),
    ("bits = 4\nblock_size = 8", 4, 8, True, False),
    ("bits = 4\nblock_size = 8\nsymmetric = false", 4, 8, False, False),
    ("bits = 4", 4, None, True, False),
    ("bits = 2\nsymmetric = false\nblock_size = 4", 2, 4, False, False),
]


@pytest.mark.parametrize(("text", "bits", "block", "symmetric", "codes"), FORMATS)
def test_a_product_is_that_of_the_nearest_codes(
    text: str, bits: int, block: int | None, symmetric: bool, codes: bool, tmp_path: Path
) -> None:
    module, store = chain()
    x = RNG.standard_normal((1, 3, WIDTH)).astype(np.float32)
    expected = x.astype(np.float64)
    for name in ("first", "second"):
        matrix = fake(weight_of(module, store, f"{name}.weight"), bits, block, symmetric=symmetric)
        rows = rounded_rows(expected, block) if codes else expected
        expected = rows @ matrix.T
        expected += weight_of(module, store, "first.bias") if name == "first" else 0
    quantised(module, store, recipe_of(tmp_path, f"[linears]\n{text}\n"))
    kind = mllm.QuantizedLinearOp if codes else mllm.DequantizeOp
    assert len(found(module, kind)) == 2
    got = run_function(module, "f", {"x": x}, store)["y"]
    # An activation at the middle between two codes may go either way in the second product.
    np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02 if codes else 1e-5)


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8", "w4a16", "w4a16-asymmetric"])
def test_onnx_runtime_computes_the_same_on_the_exported_model(recipe: str, tmp_path: Path) -> None:
    module, store = llama(width=256, heads=4, kv_heads=2, hidden=256)
    quantised(module, store, recipe)
    inputs = llama_inputs(module, past=2, tokens=3)
    path = tmp_path / "decoder.onnx"
    path.write_bytes(serialised(export_graph(graphs(module)[0], store, 21)))
    wanted = run_function(module, "decoder", inputs, store)
    for name, theirs in answers(path, inputs, optimised=False).items():
        allowed = 1e-5 if "a16" in recipe else 5e-3  # a sum in another order may tip an activation
        scale = np.abs(wanted[name]).max()
        assert np.abs(theirs - wanted[name]).max() <= allowed * scale, name


def test_activations_that_several_products_read_are_quantised_once() -> None:
    module, store = llama()
    quantised(module, store, "w8a8")
    products = found(module, mllm.QuantizedLinearOp)
    makers = found(module, mllm.DynamicQuantizeOp)
    # A layer reads norm (q, k, v), attention, norm (gate, up) and the gated product; then the head.
    assert (len(products), len(makers)) == (2 * 7 + 1, 2 * 4 + 1)
    assert not found(module, mllm.GatedMlpOp)


def test_a_feed_forward_block_of_real_activations_stays_one_op() -> None:
    module, store = llama()
    quantised(module, store, "w4a16")
    blocks = found(module, mllm.GatedMlpOp)
    assert len(blocks) == 2
    assert all(isinstance(v.owner, mllm.DequantizeOp) for b in blocks for v in b.operands[1:])
    assert len(found(module, mllm.LinearOp)) == 2 * 4 + 1


def test_a_plain_block_with_biases_is_taken_apart() -> None:
    store = WeightStore()
    g = Graph("f", "graph", store, {"x": ROWS})
    w1, w2 = g.weight("w1", INNER, WIDTH), g.weight("w2", WIDTH, INNER)
    b1, b2 = g.weight("b1", INNER), g.weight("b2", WIDTH)
    made = mllm.MlpOp(Activation.GELU, g["x"], w1, w2, b1=b1, b2=b2)
    module = module_of(g.finish({"y": g.add(made)}))
    x = RNG.standard_normal((1, 3, WIDTH)).astype(np.float32)
    real = run_function(module, "f", {"x": x}, store)["y"]
    quantised(module, store, "w8a8")
    assert [op.bias is not None for op in found(module, mllm.QuantizedLinearOp)] == [True, True]  # type: ignore[attr-defined]
    got = run_function(module, "f", {"x": x}, store)["y"]
    assert np.abs(got - real).max() < 0.02 * np.abs(real).max()


def test_a_rule_keeps_what_it_names(tmp_path: Path) -> None:
    module, store = chain()
    text = "[linears]\nbits = 8\n[[rules]]\nnames = ['f:first*']\nbits = 32\n"
    first = weight_of(module, store, "first.weight")
    quantised(module, store, recipe_of(tmp_path, text))
    np.testing.assert_array_equal(weight_of(module, store, "first.weight"), first)
    assert weight_of(module, store, "second.weight").dtype == np.int8


def test_a_projector_is_kept_in_half_precision() -> None:
    module, store = chain(role="projector")
    x = RNG.standard_normal((1, 3, WIDTH)).astype(np.float32)
    expected = x
    for name in ("first", "second"):
        half = weight_of(module, store, f"{name}.weight").astype(np.float16)
        expected = expected @ half.astype(np.float32).T
        expected = expected + (weight_of(module, store, "first.bias") if name == "first" else 0)
    quantised(module, store, "w8a8")
    assert not found(module, mllm.QuantizedLinearOp)
    got = run_function(module, "f", {"x": x}, store)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_the_head_has_a_format_of_its_own(tmp_path: Path) -> None:
    module, store = llama()
    quantised(module, store, recipe_of(tmp_path, "[linears]\nbits = 32\n[head]\nbits = 8\n"))
    linears = found(module, mllm.LinearOp)
    kinds = [isinstance(op.operands[1].owner, mllm.DequantizeOp) for op in linears]
    assert kinds == [False] * (len(kinds) - 1) + [True]


def test_graphs_that_share_a_weight_share_its_codes() -> None:
    store = WeightStore()
    made = []
    for name in ("a", "b"):
        g = Graph(name, "graph", store, {"x": ROWS})
        made.append(g.finish({"y": g.linear(g["x"], "w", INNER)}))
    module = module_of(*made)
    quantised(module, store, "w4a8")
    weights = [op for op in found(module, mllm.WeightOp) if isinstance(op, mllm.WeightOp)]
    assert len({op.value for op in weights}) * 2 == len(weights)


def samples(folder: Path, *arrays: Array) -> str:
    (folder / "f").mkdir()
    for at, array in enumerate(arrays):
        np.savez(folder / "f" / f"{at}.npz", x=array)
    return str(folder)


def test_a_static_scale_reaches_over_what_the_quantised_products_before_give(
    tmp_path: Path,
) -> None:
    module, store = chain(bias=False)
    inputs = [RNG.standard_normal((1, n, WIDTH)).astype(np.float32) for n in (2, 5)]
    matrix = fake(weight_of(module, store, "first.weight"), 8, None, symmetric=True)
    top = max(np.abs(x).max() for x in inputs) / 127
    given = [((x / top).round() * top) @ matrix.T for x in inputs]
    quantised(module, store, "w8a8-static", samples(tmp_path, *inputs))
    makers = [op for op in found(module, mllm.QuantizeOp) if isinstance(op, mllm.QuantizeOp)]
    constants = [op.scale.owner for op in makers]
    scales = [float(array_of(op.value)) for op in constants if isinstance(op, mllm.ConstantOp)]
    expected = [top, max(np.abs(y).max() for y in given) / 127]
    np.testing.assert_allclose(scales, expected, rtol=1e-6)
    assert not found(module, mllm.DynamicQuantizeOp)


@pytest.mark.parametrize("activations", ["float", "dynamic", "static"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_corrected_bias_takes_back_the_mean_error_of_a_product(
    activations: str, bias: bool, tmp_path: Path
) -> None:
    """The mean of what both products give is that of the float weights on the same rows."""
    module, store = chain(bias=bias)
    inputs = [RNG.standard_normal((1, n, WIDTH)).astype(np.float32) + 1 for n in (30, 50)]
    real = [run_function(module, "f", {"x": x}, store)["y"][0] for x in inputs]
    text = f"[linears]\nbits = 4\nactivations = '{activations}'\n"
    plain, plain_store = chain(bias=bias)
    quantised(plain, plain_store, recipe_of(tmp_path, text), samples(tmp_path, *inputs))
    quantised(module, store, recipe_of(tmp_path, f"{text}correct_bias = true\n"), str(tmp_path))
    off = [
        np.abs(np.concatenate(rows).mean(0) - np.concatenate(real).mean(0)).max()
        for rows in (
            [run_function(m, "f", {"x": x}, s)["y"][0] for x in inputs]
            for m, s in ((plain, plain_store), (module, store))
        )
    ]
    assert off[1] < 1e-5 < 1e-2 < off[0]


def test_what_samples_reach_is_kept_beside_their_codes(tmp_path: Path) -> None:
    module, store = chain()
    inputs = [RNG.standard_normal((1, n, WIDTH)).astype(np.float32) for n in (20, 50)]
    quantised(module, store, "w8a8", samples(tmp_path, *inputs))
    first = quantised_products(module)[0]
    usual = np.mean([np.quantile(np.abs(x), 0.999) for x in inputs])
    np.testing.assert_allclose(first.reach, [max(np.abs(x).max() for x in inputs), usual])
    assert first.extent == first.reach[1]


def test_gptq_is_given_the_moments_of_what_the_quantised_products_before_give(
    tmp_path: Path,
) -> None:
    """The second product's codes are those of the method on moments that plain NumPy sums up."""
    module, store = chain(bias=False)
    inputs = [RNG.standard_normal((1, n, WIDTH)).astype(np.float32) for n in (30, 50)]
    first, second = (weight_of(module, store, f"{n}.weight") for n in ("first", "second"))
    rows = np.concatenate([x[0].astype(np.float64) for x in inputs])
    grid = Grid(bits=4, block_size=8, symmetric=False)
    matrix = gptq(first, rows.T @ rows, grid, damping=0.3).dequantised().astype(np.float64)
    seen = rounded_rows(rows, 8) @ matrix.T
    expected = gptq(second, seen.T @ seen, grid, damping=0.3)
    text = (
        "[linears]\nbits = 4\nblock_size = 8\nsymmetric = false\nmethod = 'gptq'\ndamping = 0.3\n"
    )
    recipe = recipe_of(tmp_path, f"{text}activations = 'dynamic'\n")
    quantised(module, store, recipe, samples(tmp_path, *inputs))
    codes = weight_of(module, store, "second.weight").astype(np.uint8)
    # Sums in another order may tip a code.
    assert (codes != expected.codes).mean() < 0.01


def test_gptq_harms_the_results_on_the_data_less_than_the_nearest_codes(tmp_path: Path) -> None:
    mixed = RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    inputs = [(RNG.standard_normal((1, 60, WIDTH)) @ mixed).astype(np.float32) for _ in range(3)]
    data = samples(tmp_path, *inputs)
    errors: dict[str, float] = {}
    for method in ("nearest", "gptq"):
        module, store = chain()
        real = run_function(module, "f", {"x": inputs[0]}, store)["y"]
        recipe = recipe_of(tmp_path, f"[linears]\nbits = 4\nmethod = '{method}'\n")
        quantised(module, store, recipe, data)
        got = run_function(module, "f", {"x": inputs[0]}, store)["y"]
        errors[method] = float(((got - real) ** 2).sum())
    assert errors["gptq"] < 0.7 * errors["nearest"]


@pytest.mark.parametrize(
    ("prepare", "line"),
    [
        (lambda folder: "", "f: error: the recipe needs calibration data"),
        (lambda folder: samples(folder), "f: error: the recipe needs calibration data"),
        (
            lambda folder: (samples(folder), (folder / "f" / "a.npz").write_bytes(b"x"))[0],
            "a.npz: error: not an .npz file of plain arrays [MLC-Q003]",
        ),
        (
            lambda folder: (samples(folder), np.savez(folder / "f" / "a.npz", z=np.ones(3)))[0],
            "f: error: a sample lacks the input 'x' [MLC-Q003] (it has: z)",
        ),
    ],
    ids=["none", "empty", "no npz", "no input"],
)
def test_data_that_cannot_be_used_is_told(prepare, line: str, tmp_path: Path) -> None:
    module, store = chain()
    with pytest.raises(CompileError) as fault:
        quantised(module, store, "w8a8-static", prepare(tmp_path))
    assert line in str(fault.value)


def test_no_op_is_left_without_a_user() -> None:
    module, store = llama()
    quantised(module, store, "w4a8")
    for graph in graphs(module):
        assert all(any(r.first_use for r in op.results) for op in block_of(graph).ops if op.results)
