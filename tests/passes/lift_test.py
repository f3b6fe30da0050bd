"""Every lift is proven on the reference: the same inputs before and after, within 1e-5."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.types import dtype_of, tensor_type
from mllm_compiler.dialects.verify import verify
from mllm_compiler.flops import lifted_share
from mllm_compiler.importer.pipeline import import_model
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.reference import run_function
from mllm_compiler.validate import relative_error, seeded_inputs
from mllm_compiler.weights import WeightStore
from models.build import built

FILES = sorted(
    path
    for path in Path(__file__).parent.glob("*.mlir")
    if path.stem.startswith("lift-") or path.stem == "canonical-form"
)


def random_inputs(function: FuncOp) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(function.sym_name.data.encode()))
    inputs: dict[str, np.ndarray] = {}
    for index, argument in enumerate(function.args):
        kind = tensor_type(argument)
        shape, dtype = [d.evaluate({}) for d in dims_of(kind)], dtype_of(kind.element_type)
        real = dtype.kind == "f"
        array = rng.standard_normal(shape) if real else rng.integers(0, 2, shape)
        inputs[f"arg{index}"] = array.astype(dtype)
    return inputs


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_the_lift_of_every_example_computes_the_same(file: Path) -> None:
    module = Parser(make_context(), file.read_text()).parse_module()
    inputs = {g.sym_name.data: random_inputs(g) for g in graphs(module)}
    store = WeightStore()
    store.add(np.zeros(128, np.float32))  # the weight that an example names
    before = {n: run_function(module, n, given, store) for n, given in inputs.items()}
    pass_class(file.stem)().apply(make_context(), module)
    verify(module)
    for name, given in inputs.items():
        for result, value in run_function(module, name, given, store).items():
            assert relative_error(value, before[name][result]) < 1e-5, name


def results(module: ModuleOp, store: WeightStore) -> dict[tuple[str, str], np.ndarray]:
    made: dict[tuple[str, str], np.ndarray] = {}
    for graph in graphs(module):
        name = graph.sym_name.data
        given = seeded_inputs(graph, pipeline_of(module))
        made |= {(name, r): v for r, v in run_function(module, name, given, store).items()}
    return made


EXPECTED = {
    "tiny-llama": {
        "mllm.embedding": 1,
        "mllm.rms_norm": 5,
        "mllm.rope": 4,
        "mllm.kv_append": 4,
        "mllm.attention": 2,
        "mllm.gated_mlp": 2,
        "mllm.linear": 9,
        "mllm.binary": 4,
    },
    "tiny-vit": {
        "mllm.patch_embed": 1,
        "mllm.layer_norm": 5,
        "mllm.attention": 2,
        "mllm.mlp": 2,
        "mllm.linear": 8,
        "mllm.binary": 8,
    },
    "tiny-whisper": {"mllm.attention": 6, "mllm.cross_attn": 4, "mllm.mlp": 6, "mllm.conv": 2},
    "tiny-clip": {"mllm.patch_embed": 1, "mllm.attention": 4, "mllm.linear": 27, "mllm.top_k": 1},
    "tiny-siglip": {"mllm.attention": 4, "mllm.cross_attn": 1, "mllm.mlp": 5, "mllm.softmax": 0},
    "tiny-dinov2": {"mllm.patch_embed": 1, "mllm.attention": 2, "mllm.mlp": 2, "mllm.resize": 1},
    "tiny-convnext": {"mllm.conv": 5, "mllm.layer_norm": 6, "mllm.mlp": 3, "mllm.binary": 6},
    "tiny-svtr": {"mllm.conv": 4, "mllm.attention": 3, "mllm.mlp": 3, "mllm.softmax": 1},
    "tiny-wav2vec2": {"mllm.conv": 5, "mllm.attention": 2, "mllm.mlp": 2, "mllm.layer_norm": 7},
    "tiny-vlm": {"mllm.patch_embed": 1, "mllm.gated_mlp": 2, "mllm.attention": 4, "mllm.mlp": 3},
    "tiny-qwen2": {"mllm.attention": 2, "mllm.gated_mlp": 2, "mllm.linear": 9, "mllm.binary": 4},
    "tiny-gpt2": {"mllm.attention": 2, "mllm.mlp": 2, "mllm.linear": 9, "mllm.layer_norm": 5},
    "tiny-bert": {"mllm.attention": 2, "mllm.mlp": 2, "mllm.linear": 9, "mllm.layer_norm": 5},
    "tiny-layoutlm": {"mllm.attention": 2, "mllm.mlp": 2, "mllm.embedding": 9},
    "tiny-gemma3": {
        "mllm.attention": 3,
        "mllm.gated_mlp": 3,
        "mllm.rms_norm": 19,
        "mllm.rope": 6,
        "mllm.transpose": 0,
        "mllm.binary": 7,
    },
    "tiny-t5": {"mllm.attention": 6, "mllm.cross_attn": 4, "mllm.mlp": 6, "mllm.rms_norm": 19},
    "tiny-bloom": {"mllm.attention": 2, "mllm.mlp": 2, "mllm.cumsum": 1, "mllm.matmul": 0},
    "tiny-mamba": {"mllm.selective_scan": 2, "mllm.conv": 2, "mllm.linear": 13, "mllm.rms_norm": 3},
    "tiny-flamingo": {"mllm.attention": 4, "mllm.cross_attn": 2, "mllm.gated_mlp": 2},
}
"""How many ops of a kind the lifted recipes have."""


@pytest.mark.parametrize("recipe", EXPECTED)
def test_a_recipe_is_lifted_whole_and_computes_the_same(recipe: str) -> None:
    imported = import_model(built(recipe))
    module, store, context = imported.module, imported.store, make_context(imported.store)
    pass_class("infer-shapes")().apply(context, module)
    before = results(module, store)
    assert lifted_share(module) == 0.0
    for name in pass_names("lift")[1:]:
        pass_class(name)().apply(context, module)
        verify(module)
        after = results(module, store)
        assert after.keys() == before.keys()
        for key, value in after.items():
            assert relative_error(value, before[key]) < 1e-5, (name, key)
    counts = Counter(op.name for op in module.walk())
    assert not [name for name in counts if name.startswith("onnx.")]
    assert {k: counts[k] for k in EXPECTED[recipe]} == EXPECTED[recipe]
    assert lifted_share(module) == 1.0


CROSS = "mllm.cross_attn"
CAUSAL, MASKED, BIASED = "causal = true", "key_mask(", "bias("
MASKS = {
    "tiny-llama": [{CAUSAL, MASKED}] * 2,
    "tiny-gpt2": [{CAUSAL, MASKED}] * 2,
    "tiny-bert": [{MASKED}] * 2,
    "tiny-clip": [set(), set(), {CAUSAL, MASKED}, {CAUSAL, MASKED}],
    "tiny-svtr": [{BIASED}, {BIASED}, set()],
    "tiny-gemma3": [*[{CAUSAL, MASKED, "window = 5"}] * 2, {CAUSAL, MASKED}],
    "tiny-bloom": [{CAUSAL, MASKED, BIASED}] * 2,
    "tiny-t5": [*[{MASKED, BIASED}] * 2, *[{CAUSAL, BIASED}, {MASKED}] * 4],
    "tiny-flamingo": [set(), set(), *[set(), {CAUSAL, MASKED}] * 2],
}
"""What stands on the attentions of a recipe, in order."""


@pytest.mark.parametrize("recipe", MASKS)
def test_masks_become_attributes_of_attention(recipe: str) -> None:
    imported = import_model(built(recipe))
    context = make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, imported.module)
    texts = [str(o) for o in imported.module.walk() if o.name in ("mllm.attention", CROSS)]
    words = (CAUSAL, MASKED, BIASED, "window = 5")
    assert [{w for w in words if w in text} for text in texts] == MASKS[recipe]


def test_locations_survive_lifting() -> None:
    imported = import_model(built("tiny-vit"))
    context = make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, imported.module)
    inside = [op for graph in graphs(imported.module) for op in graph.body.block.ops]
    without = {op.name for op in inside if "unknown" in str(op.location)}
    assert without <= {"func.return"}


def test_a_weight_that_lies_the_other_way_is_turned_once_and_shared() -> None:
    store = WeightStore()
    matrix = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    turned = store.add(np.ascontiguousarray(matrix.T))
    text = f"""
    func.func @f(%x: tensor<2x8xf32>) -> (tensor<2x16xf32>, tensor<2x16xf32>) {{
      %w = mllm.weight #mllm.blob<"{turned}", f32, [8, 16]> {{name = "a.weight"}} : tensor<8x16xf32>
      %0 = mllm.matmul %x, %w : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
      %1 = mllm.matmul %x, %w : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
      func.return %0, %1 : tensor<2x16xf32>, tensor<2x16xf32>
    }}
    """
    module = Parser(make_context(), text).parse_module()
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    before = run_function(module, "f", {"arg0": x}, store)
    pass_class("lift-linear")().apply(make_context(store), module)
    after = run_function(module, "f", {"arg0": x}, store)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-6)
    weights = [op for op in module.walk() if op.name == "mllm.weight"]
    straight = store.add(matrix)
    assert {op.value.digest.data for op in weights} == {straight}
    assert {op.weight_name.data for op in weights} == {"a.weight"}
    assert len(list(store.digests())) == 2


def test_a_weight_whose_bytes_are_unknown_stays_as_it_is() -> None:
    text = f"""
    func.func @f(%x: tensor<2x8xf32>) -> tensor<2x16xf32> {{
      %w = mllm.weight #mllm.blob<"sha256:{"0" * 64}", f32, [8, 16]> : tensor<8x16xf32>
      %0 = mllm.matmul %x, %w : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
      func.return %0 : tensor<2x16xf32>
    }}
    """
    module = Parser(make_context(), text).parse_module()
    pass_class("lift-linear")().apply(make_context(), module)
    assert "mllm.matmul" in str(module)


def test_a_weight_has_the_shape_that_it_is_read_in() -> None:
    store = WeightStore()
    matrix = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    blob = f'#mllm.blob<"{store.add(matrix)}", f32, [4, 4]>'
    text = f"""
    func.func @f() -> tensor<2x8xf32> {{
      %w = mllm.weight {blob} {{name = "w"}} : tensor<4x4xf32>
      %0 = mllm.reshape %w : (tensor<4x4xf32>) -> tensor<2x8xf32>
      func.return %0 : tensor<2x8xf32>
    }}
    """
    module = Parser(make_context(), text).parse_module()
    pass_class("canonical-form")().apply(make_context(store), module)
    assert [op.name for op in module.walk()][2:] == ["mllm.weight", "func.return"]
    result = run_function(module, "f", {}, store)["result0"]
    np.testing.assert_array_equal(result, matrix.reshape(2, 8))
