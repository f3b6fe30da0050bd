"""Static encodings of the values between a vendor's ops, from calibration samples.

A graph in a vendor's ops runs on samples. Each of its values gets a range, and so an encoding; the
vendor's `Rules` say which values share one, which it fixes, and which ops compute on codes.

What is computed from whole numbers alone, such as angles from positions and masks from lengths,
stays real until it meets values of codes. Rows that are looked up in a table get codes when they
are real: an op on what was looked up, such as codes by their scales, still computes on reals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from xdsl.dialects.builtin import AnyFloat, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.types import element_of, is_float
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.samples import Samples
from mllm_compiler.quantisation.recipe import Values
from mllm_compiler.quantisation.values import UNSEEN, Encoding, Range, reach_of, union
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a vendor's tables say of its ops on codes.

    Attributes:
        coded: Whether an op computes on codes; around others values become real and codes again.
        operands: Which operands of an op have codes of one scale; weights and biases are others.
        moves: Which of those have the encoding of the result, as where elements only move.
        fixed: The encoding that the result of an op has whatever its range.
        symmetric: Whether a value has the zero point 0.
        unseen: Numbers below hide a score, and are no measure of how far it reaches.
    """

    coded: Callable[[Operation], bool]
    operands: Callable[[Operation], Sequence[SSAValue]]
    moves: Callable[[Operation], Sequence[SSAValue]]
    fixed: Callable[[Operation], Encoding | None]
    symmetric: Callable[[SSAValue], bool]
    unseen: float = UNSEEN


class Kind(Enum):
    """What a real value is made from."""

    CONSTANT = 0
    COUNTED = 1
    LOOKED_UP = 2
    VALUE = 3


@dataclass(frozen=True)
class Encodings:
    """The encodings of a graph.

    Attributes:
        of: The encoding of each value that has codes, constants among them.
        coded: The ops that compute on codes.
    """

    of: Mapping[SSAValue, Encoding]
    coded: frozenset[Operation]


def encodings_of(
    graph: FuncOp,
    inputs: Sequence[Mapping[str, Array]],
    store: WeightStore,
    values: Values,
    rules: Rules,
) -> Encodings:
    """The encodings of a graph's values.

    Args:
        graph: In a vendor's ops, on reals.
        inputs: Samples of its arguments.
        store: The bytes of weights.
        values: How many bits, and how far codes reach.
        rules: The vendor's.

    Raises:
        CompileError: `MLC-Q003` or `MLC-D001`, a sample does not fit.
    """
    kinds, coded = kinds_of(graph, rules)
    wanted = {v for op in coded for v in rules.operands(op)}
    wanted |= {v for v, kind in kinds.items() if kind is Kind.VALUE}
    fixed: dict[SSAValue, Encoding] = {
        op.results[0]: e for op in coded if (e := rules.fixed(op)) is not None
    }
    groups = _grouped(coded, rules, fixed)

    def encode(value: SSAValue, reach: Range) -> Encoding:
        symmetric = any(rules.symmetric(v) for v in groups.members(value))
        return Encoding.of(reach, values.bits, symmetric=symmetric)

    ranges = _ranges(graph, inputs, store, wanted, values, encode, rules.unseen)
    found: dict[SSAValue, Encoding] = {}
    for value in wanted:
        members = groups.members(value)
        given = [fixed[v] for v in members if v in fixed]
        reach = union([ranges[v] for v in members if v in ranges])
        found[value] = given[0] if given else encode(value, reach)
    return Encodings(found, frozenset(coded))


def kinds_of(graph: FuncOp, rules: Rules) -> tuple[dict[SSAValue, Kind], set[Operation]]:
    """What each value is made from, and the ops that compute on codes."""
    kinds: dict[SSAValue, Kind] = {a: Kind.VALUE for a in graph.args if element_of(a) == f32}
    coded: set[Operation] = set()
    for op in block_of(graph).ops:
        if not op.results:
            continue
        read = {kinds[v] for v in op.operands if v in kinds} - {Kind.CONSTANT}
        kind = _kind(op, read, kinds)
        if read == {Kind.LOOKED_UP} and rules.moves(op):
            kind = Kind.LOOKED_UP
        for result in op.results:
            if element_of(result) == f32 or kind is Kind.CONSTANT:
                kinds[result] = kind
        real = Kind.LOOKED_UP in read or Kind.VALUE not in read
        if kind is Kind.VALUE and not real and rules.coded(op):
            coded.add(op)
    return kinds, coded


def _kind(op: Operation, read: set[Kind], kinds: Mapping[SSAValue, Kind]) -> Kind:
    """What the results of an op are made from, by what it reads besides constants."""
    if read:
        return Kind.COUNTED if read == {Kind.COUNTED} else Kind.VALUE
    if all(kinds.get(v) is Kind.CONSTANT for v in op.operands):
        return Kind.CONSTANT
    halves = [v for v in op.operands if kinds.get(v) is not Kind.CONSTANT and _is_code(v)]
    if halves:
        return Kind.LOOKED_UP
    tables = any(kinds.get(v) is Kind.CONSTANT and is_float(element_of(v)) for v in op.operands)
    return Kind.VALUE if tables else Kind.COUNTED


def _is_code(value: SSAValue) -> bool:
    """Whether a value has codes of a table, or their scales."""
    element = element_of(value)
    return isinstance(element, AnyFloat) or str(element) in ("i8", "ui8", "i16", "ui16", "i4")


def _grouped(
    coded: Iterable[Operation], rules: Rules, fixed: Mapping[SSAValue, Encoding]
) -> _Groups:
    """The values that share an encoding.

    Where several join, those that a vendor fixes keep theirs: the op reads them by another.
    """
    groups, joining = _Groups(), list[Operation]()
    for op in coded:
        for other in op.results[1:]:
            groups.join(op.results[0], other)
        moved = rules.moves(op)
        if len(moved) == 1:
            groups.join(op.results[0], moved[0])
        elif moved:
            joining.append(op)
    for op in joining:
        for operand in rules.moves(op):
            both = groups.members(op.results[0]) | groups.members(operand)
            if both.isdisjoint(fixed):
                groups.join(op.results[0], operand)
    return groups


def _ranges(
    graph: FuncOp,
    inputs: Sequence[Mapping[str, Array]],
    store: WeightStore,
    wanted: Iterable[SSAValue],
    values: Values,
    encode: Callable[[SSAValue, Range], Encoding],
    unseen: float,
) -> dict[SSAValue, Range]:
    """How far values reach on samples."""
    left, found = set(wanted), dict[SSAValue, Range]()
    ops = list(block_of(graph).ops)
    asking = [op for op in ops if isinstance(op, ReturnOp) or not left.isdisjoint(op.results)]
    samples = Samples.of(graph, inputs, store, asking)

    def measure(value: SSAValue) -> None:
        arrays = samples.of_value(value)
        found[value] = reach_of(arrays, values.method, lambda reach: encode(value, reach), unseen)

    for value in left.intersection(graph.args):
        measure(value)
    for op in ops:
        if isinstance(op, ReturnOp):
            continue
        samples.step(op)
        for value in left.intersection(op.results):
            measure(value)
    return found


@dataclass
class _Groups:
    """Values that have one encoding."""

    sets: dict[SSAValue, set[SSAValue]] = field(default_factory=dict[SSAValue, set[SSAValue]])

    def members(self, value: SSAValue) -> set[SSAValue]:
        """The values that share the encoding of one, itself among them."""
        return self.sets.setdefault(value, {value})

    def join(self, a: SSAValue, b: SSAValue) -> None:
        """Lets two values have one encoding."""
        joined = self.members(a) | self.members(b)
        for value in joined:
            self.sets[value] = joined
