"""A graph of QNN as plain data: what the library, `model.cpp` and the net JSON are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Number = bool | int | float

PACKAGE: Final = "qti.aisw"
"""The package of operators that HTP has built in."""

INPUT, OUTPUT, NATIVE, STATIC = ROLES = ("input", "output", "native", "static")
"""What a graph takes, gives, makes on its way, and knows from the start."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What codes of a tensor mean: scale (code - zero point).

    Attributes:
        scales: One, or one for each element of `axis`.
        zero_point: Of all of them.
        bits: Of a code; fewer than the element has, where one takes a byte all the same.
        axis: The axis that scales go along.
        blocks: With `axis`: how many times its scale the codes of a block have, 1 to 15,
            [elements of the axis, blocks].
    """

    scales: tuple[float, ...]
    zero_point: int = 0
    bits: int = 8
    axis: int | None = None
    blocks: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor.

    Attributes:
        name: Of its own in its graph.
        element: As the IR spells it: `f16`, `ui16`, `i1`.
        dims: Its extents.
        role: One of `ROLES`.
        encoding: What its codes mean, where it has some.
        data: What a static one holds; narrow codes have a byte each.
    """

    name: str
    element: str
    dims: tuple[int, ...]
    role: str = NATIVE
    encoding: Encoding | None = None
    data: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Node:
    """A call of an operator.

    Attributes:
        name: Of its own in its graph.
        operator: As Qualcomm names it.
        inputs: Names of tensors.
        outputs: Names of tensors.
        parameters: By name: a number with its element, or a static tensor.
        location: The node of the model that it was made for.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, tuple[str, Number] | Tensor]
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Tensors by name, in the order in which they are made, and nodes in the order of execution."""

    name: str
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    nodes: list[Node] = field(default_factory=list[Node])

    def of_role(self, role: str) -> list[Tensor]:
        """The tensors of a role, in order."""
        return [tensor for tensor in self.tensors.values() if tensor.role == role]


@dataclass(frozen=True, kw_only=True)
class Soc:
    """A chip: its name, Qualcomm's number of it, and the version of its HTP."""

    name: str
    model: int
    arch: int


@dataclass(frozen=True, kw_only=True)
class PortFacts:
    """An input or output of a graph in a context binary; codes have a scale and a zero point."""

    name: str
    element: str
    dims: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """A graph in a context binary."""

    name: str
    inputs: tuple[PortFacts, ...]
    outputs: tuple[PortFacts, ...]


@dataclass(frozen=True, kw_only=True)
class ContextFacts:
    """What a context binary says of itself: who made it, for which SoC, and its graphs."""

    build: str
    soc_model: int
    graphs: tuple[GraphFacts, ...]
