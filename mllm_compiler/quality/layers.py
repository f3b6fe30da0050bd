"""How far each node of the model is from float, as the reference computes both modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.quality.features import cosine
from mllm_compiler.quality.sides import Side
from mllm_compiler.reference import find_function
from mllm_compiler.validate.run import node_values

Values = Mapping[str, NDArray[np.generic]]

SHOWN_TOKENS = 64
"""As many tokens of a text show the error of a node; the values of all nodes are held at once."""


@dataclass(frozen=True, kw_only=True)
class NodeError:
    """A node of the model in two modules.

    Attributes:
        name: `graph/node`.
        cosine: Of its value with that of the float model.
        error: The length of the difference, as a share of the float value's.
    """

    name: str
    cosine: float
    error: float


def node_errors(plain: Side, given: Side, entry: str, inputs: Values) -> list[NodeError]:
    """The nodes that both modules have, in the order in which they are computed.

    Args:
        plain: The float model, of the target numpy.
        given: The quantised one, of the target numpy.
        entry: A graph of both.
        inputs: Its inputs.
    """
    expected = _values(plain, entry, inputs)
    found: list[NodeError] = []
    for name, value in _values(given, entry, inputs).items():
        former = expected.get(name)
        if former is None or former.shape != value.shape or former.dtype.kind != "f":
            continue
        left, right = former.astype(np.float64), value.astype(np.float64)
        length = float(np.linalg.norm(left))
        error = float(np.linalg.norm(left - right)) / length if length > 0 else 0.0
        found.append(NodeError(name=f"{entry}/{name}", cosine=cosine(left, right), error=error))
    return found


def _values(side: Side, entry: str, inputs: Values) -> Values:
    assert side.runner is not None
    module, store = side.runner.module, side.runner.store
    side.past.clear()
    given = side.completed(entry, inputs)
    return node_values(module, find_function(module, entry), given, store)
