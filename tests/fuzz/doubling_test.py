"""Values that are made of the one before twice, 40 times: no reader may walk all 2^40 paths.

And a chain that is deeper than the interpreter lets functions call themselves.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.attempt import COMPILED, Sandbox
from tests.importer import onnx_models as models

TIMES, SECONDS, DEEP = 40, 60, 600


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path.resolve())


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    """Ends what takes too long with an error."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def doubled(operator: str, first: str, last: str) -> str:
    """Nodes that combine a value with itself, again and again."""
    names = [first, *(f"{last}{at}" for at in range(1, TIMES)), last]
    pairs = itertools.pairwise(names)
    return " ".join(f"{after} = {operator}({name}, {name})" for name, after in pairs)


def extremes() -> str:
    """Nodes that take the larger and the smaller of two shapes, again and again."""
    pairs = [(f"a{at}", f"b{at}") for at in range(TIMES + 1)]
    return " ".join(
        f"{c} = Max({a}, {b}) {d} = Min({a}, {b})" for (a, b), (c, d) in itertools.pairwise(pairs)
    )


QKV = "float[1, 2, 3, 4] q, float[1, 2, 4, 3] k, float[1, 2, 3, 4] v"
ATTENTION = "t = Add(s, bias) p = Softmax<axis = -1>(t) y = MatMul(p, v)"
SOFTMAX = "p = Softmax<axis = -1>(d) y = MatMul(p, v)"

CASES = {
    "scores": (
        QKV,
        "float[1, 2, 3, 4] y",
        f"s = MatMul(q, k) {doubled('Add', 's', 'd')} {SOFTMAX}",
    ),
    "scores of no product": (
        "float[1, 2, 3, 3] s, float[1, 2, 3, 4] v",
        "float[1, 2, 3, 4] y",
        f"{doubled('Add', 's', 'd')} {SOFTMAX}",
    ),
    "a bias": (
        f"{QKV}, float[1, 1, 3, 3] b",
        "float[1, 2, 3, 4] y",
        f"{doubled('Add', 'b', 'bias')} s = MatMul(q, k) {ATTENTION}",
    ),
    "a mask": (
        f"{QKV}, bool[1, 1, 3, 3] seen",
        "float[1, 2, 3, 4] y",
        f"zero = Constant<value_float = 0.0>() low = Constant<value_float = -1e9>() "
        f"{doubled('And', 'seen', 'd')} bias = Where(d, zero, low) s = MatMul(q, k) {ATTENTION}",
    ),
    "indices": (
        "float[3, 4] x, int64[3] i",
        "float[3, 4] y",
        f"{doubled('Add', 'i', 'd')} y = Gather(x, d)",
    ),
    "a product": ("float[3] x", "float[3] y", f"{doubled('Mul', 'x', 'd')} y = Exp(d)"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_doubles_is_compiled(name: str, sandbox: Sandbox) -> None:
    inputs, outputs, nodes = CASES[name]
    model = models.model_of(f"g ({inputs}) => ({outputs}) {{ {nodes} }}")
    assert sandbox.attempt(model.SerializeToString()) == COMPILED


def test_sizes_that_double_are_refused(sandbox: Sandbox) -> None:
    model = models.model_of(
        "g (float[n] x, float[m] w, float[1] z) => (float[k] y) { a0 = Shape(x) b0 = Shape(w) "
        f"{extremes()} size = Add(a{TIMES}, b{TIMES}) y = Expand(z, size) }}"
    )
    assert sandbox.attempt(model.SerializeToString()) == "MLC-R001"


def test_a_long_sum_of_scores_is_compiled(sandbox: Sandbox) -> None:
    names = ["s", *(f"d{at}" for at in range(DEEP)), "d"]
    sums = " ".join(f"{after} = Add(bias, {name})" for name, after in itertools.pairwise(names))
    model = models.model_of(
        f"g ({QKV}, float[1, 1, 3, 3] bias) => (float[1, 2, 3, 4] y) "
        f"{{ s = MatMul(q, k) {sums} {SOFTMAX} }}"
    )
    assert sandbox.attempt(model.SerializeToString()) == COMPILED
