"""Recipes: the built-in ones are read, a rule wins, and what is wrong is one located line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.quantisation.grid import Grid
from mllm_compiler.quantisation.recipe import Cache, Format, read_recipe, recipe_names

RULES = """
[linears]
bits = 4
block_size = 32
symmetric = false

[head]
bits = 8

[[rules]]
names = ["decoder:*.layers.0.*", "*:/model/last/*"]
bits = 8
activations = "dynamic"

[[rules]]
roles = ["projector"]
bits = 16
"""


NPU = {"w8a8-npu": (8, 8), "w8a16-npu": (8, 16), "w4a16-npu": (4, 16)}


@pytest.mark.parametrize("name", NPU)
def test_recipes_for_npus_give_codes_to_all(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.values is not None
    assert (recipe.linears.bits, recipe.values.bits) == NPU[name]
    assert recipe.linears.block_size is None
    assert recipe.needs_data
    assert {f.activations for f in recipe.formats()} == {"float"}


@pytest.mark.parametrize(
    "name", [n for n in recipe_names() if not n.startswith("kv") and n not in NPU]
)
def test_a_built_in_recipe_is_read(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    assert recipe.description
    assert recipe.embeddings is not None
    assert recipe.embeddings.bits == 8
    assert recipe.format_of(["projector:w"], "projector").bits == 16
    assert recipe.needs_data == name.endswith(("static", "gptq", "mixed", "smooth", "awq"))


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_a_cache_stands_alone_or_is_added(bits: int, tmp_path: Path) -> None:
    alone, plain = read_recipe(f"kv{bits}"), read_recipe("w4a8")
    assert (alone.cache, alone.linears, alone.needs_data) == (Cache(bits=bits), Format(), bits < 16)
    both = read_recipe(f"w4a8+kv{bits}")
    assert both == replace(plain, cache=Cache(bits=bits))
    assert both.name == f"w4a8+kv{bits}"
    again = tmp_path / f"{both.name}.toml"
    again.write_text(both.text)
    assert read_recipe(str(again)) == both
    assert read_recipe(str(again)).name == both.name


def test_the_formats_that_are_built_in() -> None:
    """Weights' bits, block, symmetry and activations, as the names promise them."""
    found = {name: read_recipe(name).linears for name in recipe_names()}
    shown = {n: (f.bits, f.block_size, f.symmetric, f.activations) for n, f in found.items()}
    expected = {
        "w8a8": (8, None, True, "dynamic"),
        "w8a8-g64": (8, 64, True, "dynamic"),
        "w8a8-static": (8, None, True, "static"),
        "w4a8": (4, 128, False, "dynamic"),
        "w4a8-gptq": (4, 128, False, "dynamic"),
        "w4a16-gptq": (4, 128, False, "float"),
        "w4a16": (4, 128, True, "float"),
        "w4a16-g64": (4, 64, True, "float"),
        "w4a16-g32": (4, 32, True, "float"),
        "w4a16-asymmetric": (4, 128, False, "float"),
        "w4a16-channel": (4, None, True, "float"),
    }
    assert {name: shown[name] for name in expected} == expected


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_the_first_rule_that_names_a_product_wins(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, RULES))
    first = recipe.format_of(["decoder:model.layers.0.q.weight"], "language-model")
    assert (first.bits, first.activations) == (8, "dynamic")
    by_node = recipe.format_of(["g:onnx::MatMul_7", "g:/model/last/MatMul"], "graph")
    assert by_node.bits == 8
    assert recipe.format_of(["projector:decoder"], "projector").bits == 16
    plain = recipe.format_of(["decoder:model.layers.10.q.weight"], "language-model", head=False)
    assert plain.grid(64) == Grid(bits=4, block_size=32, symmetric=False)
    assert recipe.format_of(["decoder:lm_head"], "language-model", head=True).bits == 8


def test_one_block_is_no_block_and_halves_have_no_grid() -> None:
    assert Format(bits=4, block_size=64).grid(64) == Grid(bits=4)
    assert Format(bits=4, block_size=64).grid(65) == Grid(bits=4, block_size=64)
    assert Format(bits=16).grid(64) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[linears\n", "mine.toml: error: not TOML"),
        ("[head]\nbits = 8\n", "mine.toml: linears: error: the key is missing [MLC-I022]"),
        ("[linears]\nbit = 4\n", "linears.bit: error: unknown key 'bit' [MLC-I021] (did you mean"),
        ("[linears]\nbits = 5\n", "linears.bits: error: unknown 5 [MLC-I022] (write one of 2, 4"),
        ("[linears]\nbits = '4'\n", "linears.bits: error: an integer is expected"),
        (
            "[linears]\nbits = 8\nactivations = 'dinamic'\n",
            "linears.activations: error: unknown 'dinamic' [MLC-I022] (did you mean 'dynamic'?)",
        ),
        (
            "[linears]\nbits = 8\nmethod = 'neares'\n",
            "linears.method: error: unknown 'neares' [MLC-I022] (did you mean 'nearest'?)",
        ),
        ("[linears]\nbits = 4\nblock_size = 0\n", "linears.block_size: error: a block has"),
        (
            "smooth = 'smooth'\n[linears]\nbits = 8\n",
            "smooth: error: unknown 'smooth' [MLC-I022] (did",
        ),
        ("strength = 2.0\n[linears]\nbits = 8\n", "strength: error: 2.0 is no part"),
        ("[linears]\nbits = 4\n[mixed]\naverage = 5\nbits = 16\n", "mixed.bits: error: products"),
        ("[linears]\nbits = 8\n[mixed]\naverage = 9\n", "mixed.bits: error: no more than the 8"),
        ("[linears]\nbits = 4\n[cache]\nbits = 2\n", "cache.bits: error: a cache does not take 2"),
        ("[linears]\nbits = 8\n[values]\nbits = 4\n", "values.bits: error: values do not take 4"),
        (
            "[linears]\nbits = 8\n[values]\nbits = 8\nmethod = 'mes'\n",
            "values.method: error: unknown 'mes' [MLC-I022] (did you mean 'mse'?)",
        ),
        (
            "[linears]\nbits = 8\nactivations = 'dynamic'\n[values]\nbits = 8\n",
            "values: error: what products read has codes already, as [linears] says",
        ),
        (
            "[linears]\nbits = 4\ndamping = 0.0\n",
            "linears.damping: error: 0.0 is no part of a mean",
        ),
        ("[linears]\nbits = 4\nsweeps = -1\n", "linears.sweeps: error: -1 is no number of rounds"),
        ("[linears]\nbits = 4\n[calibration]\ntokens = 0\n", "calibration.tokens: error: 0 is too"),
        (
            "[linears]\nbits = 4\n[embeddings]\nbits = 4\nmethod = 'gptq'\n",
            "embeddings.method: error: a look-up has no activations",
        ),
        (
            "[linears]\nbits = 8\n[[rules]]\nbits = 16\nactivations = 'static'\n",
            "rules[0].activations: error: weights of 16 bits take float ones",
        ),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as fault:
        read_recipe(write(tmp_path, text))
    assert line in str(fault.value)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("w4a61", "w4a61: error: no recipe of this name [MLC-Q001] (did you mean w4a16?)"),
        ("gone/w8a8.toml", "gone/w8a8.toml: error: no such recipe [MLC-Q001]"),
        ("w4a8+kv9", "kv9: error: no recipe of this name [MLC-Q001] (did you mean kv8?)"),
        ("w4a8+w8a8", "w4a8+w8a8: error: w8a8 has no [cache] [MLC-Q001] (add +kv16"),
        ("kv8+kv4", "kv8+kv4: error: kv8 has a [cache] [MLC-Q001] (add +kv16"),
        ("zzz", "zzz: error: no recipe of this name [MLC-Q001] (recipes: kv16, kv4, kv8, w4a16"),
    ],
)
def test_an_unknown_recipe_names_the_nearest(word: str, line: str) -> None:
    with pytest.raises(CompileError) as fault:
        read_recipe(word)
    assert str(fault.value).startswith(line)
