"""Dims agree with Python's own integers, and their spelling parses back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, f32
from xdsl.ir import Dialect
from xdsl.parser import Parser

from mllm_compiler.dialects.dims import UNKNOWN, Dim, DimsAttr, combine, dims_of, tensor_of

NAMES = ("batch_size", "past", "seq")
OPS = ("+", "-", "*", "floordiv", "mod", "min", "max")
PYTHON = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
BUILD = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": lambda a, b: combine("min", a, b),
    "max": lambda a, b: combine("max", a, b),
}
TREES = st.recursive(
    st.one_of(st.integers(0, 9), st.sampled_from(NAMES)),
    lambda inner: st.tuples(st.sampled_from(OPS), inner, inner),
    max_leaves=6,
)
ENVIRONMENTS = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})


def build(tree):
    if isinstance(tree, int):
        return Dim.const(tree)
    if isinstance(tree, str):
        return Dim.symbol(tree)
    op, lhs, rhs = tree
    return BUILD[op](build(lhs), build(rhs))


def evaluate(tree, env):
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, lhs, rhs = tree
    return PYTHON[op](evaluate(lhs, env), evaluate(rhs, env))


@given(TREES, ENVIRONMENTS)
def test_a_dim_has_the_value_of_the_integers(tree, env):
    try:
        expected = evaluate(tree, env)
    except ZeroDivisionError:
        return
    try:
        dim = build(tree)
    except ZeroDivisionError:
        return
    assert dim.evaluate(env) == expected


@given(TREES)
def test_the_spelling_parses_back(tree):
    try:
        dim = build(tree)
    except ZeroDivisionError:
        return
    assert Dim.parse(str(dim)) == dim


def test_equal_sums_are_one_dim():
    p, t = Dim.symbol("past"), Dim.symbol("seq")
    assert (p + t) * 2 - t == t + p * 2
    assert (p * t * 6) // (p * 3) == t * 2
    assert (p * 2 + t * 2) // (p + t) == Dim.const(2)
    assert str((p + t) * 3 - 4) == "3 * past + 3 * seq - 4"


def test_an_unknown_dim_stays_unknown():
    assert UNKNOWN + 1 == UNKNOWN
    assert UNKNOWN.as_int() is None
    with pytest.raises(KeyError):
        UNKNOWN.evaluate({})


def test_a_substituted_symbol_is_gone():
    total = Dim.symbol("total")
    p, t = Dim.symbol("past"), Dim.symbol("seq")
    assert (total * 2).substitute({"total": p + t}) == p * 2 + t * 2


@pytest.mark.parametrize("text", ["", "1 +", "(a", "a b", "+", "a $ b"])
def test_text_that_is_no_dim_is_refused(text):
    with pytest.raises(ValueError, match="no dimension expression"):
        Dim.parse(text)


def test_a_type_with_dims_parses_back():
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Dialect("mllm", [], [DimsAttr]))
    dims = (Dim.const(1), Dim.symbol("past") + Dim.symbol("seq"), Dim.const(64))
    type = tensor_of(f32, dims)
    assert str(type) == 'tensor<1x?x64xf32, #mllm.dims<"1", "past + seq", "64">>'
    assert Parser(context, str(type)).parse_type() == type
    assert dims_of(type) == dims
    assert str(tensor_of(f32, [2, 3])) == "tensor<2x3xf32>"
