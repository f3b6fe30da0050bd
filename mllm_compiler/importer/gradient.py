"""`Gradient` of `ai.onnx.preview.training` as the arithmetic that it stands for.

    c = Mul(a, b)
    dc_da, dc_db = Gradient(a, b) {xs = ["a", "b"], y = "c"}

becomes `dc_da = Mul(ones, b)` and `dc_db = Mul(ones, a)`. Sums, differences, products and negations
of tensors of one static shape are differentiated; every other `Gradient` stays an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

DOMAIN = "ai.onnx.preview.training"


def expand_gradients(graph: ir.Graph) -> None:
    """Replaces the gradients of a graph that can be said in its own operators."""
    for node in [n for n in graph if n.domain == DOMAIN and n.op_type == "Gradient"]:
        made = _Backward(graph, node).results()
        if made is None:
            continue
        nodes, values = made
        ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, values)


class _Backward:
    """Walks from y back to the operands of a gradient."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.node = node
        self.before = _until(graph, node)
        self.made: list[ir.Node] = []
        self.known = {
            v.name: v for v in (*graph.inputs, *(o for n in self.before for o in n.outputs))
        }

    def results(self) -> tuple[list[ir.Node], list[ir.Value]] | None:
        """The nodes to insert and the derivative by each x; None where one cannot be said."""
        try:
            xs = [self.known.get(name) for name in self.node.attributes["xs"].as_strings()]
            y = self.known.get(self.node.attributes["y"].as_string())
        except (KeyError, TypeError):
            return None  # the schema's check says what is wrong
        given = list(self.node.inputs)[: len(xs)]
        if y is None or any(x is None or x is not g for x, g in zip(xs, given, strict=True)):
            return None
        wanted = [x for x in xs if x is not None]
        reached = self.reached(wanted)
        if self.static_shape([y]) is None:
            return None
        slopes = {y: self.filled(y, 1)}
        for node in reversed(self.before):
            on_the_way = node.outputs[0] in slopes and node.outputs[0] in reached
            if on_the_way and not self.step(node, slopes, reached):
                return None
        values = [self.call("Identity", [slopes.get(x) or self.filled(x, 0)]) for x in wanted]
        return self.made, values

    def reached(self, xs: list[ir.Value]) -> set[ir.Value]:
        """What depends on xs; a result without a shape has that of its operands."""
        reached = set(xs)
        for node in self.before:
            operands = [v for v in node.inputs if v is not None]
            if not reached.intersection(operands):
                continue
            reached.update(node.outputs)
            shape = self.static_shape(operands)
            if node.op_type in RULES and node.outputs[0].shape is None and shape is not None:
                node.outputs[0].shape = ir.Shape(shape)
        return reached

    def static_shape(self, values: list[ir.Value]) -> tuple[int, ...] | None:
        """The one shape of values; None where there are several or it is not static."""
        shapes = {None if v.shape is None else tuple(v.shape) for v in values}
        shape = shapes.pop() if len(shapes) == 1 else None
        if shape is None:
            return None
        numbers = tuple(d for d in shape if isinstance(d, int))
        return numbers if len(numbers) == len(shape) else None

    def step(self, node: ir.Node, slopes: dict[ir.Value, ir.Value], reached: set[ir.Value]) -> bool:
        """Adds a node's share to the derivatives by its operands; whether that is known."""
        operands = [v for v in node.inputs if v is not None]
        rule = RULES.get(node.op_type) if node.domain == "" else None
        if rule is None or self.static_shape(operands) is None:
            return False
        shares = rule(self, slopes[node.outputs[0]], operands)
        for operand, share in zip(operands, shares, strict=True):
            if operand in reached:
                old = slopes.get(operand)
                slopes[operand] = share if old is None else self.call("Add", [old, share])
        return True

    def call(self, operator: str, inputs: Sequence[ir.Value]) -> ir.Value:
        """A node that is inserted; its result."""
        made = ir.node(operator, inputs, name=f"{self.node.name or 'Gradient'}.{len(self.made)}")
        self.made.append(made)
        value = made.outputs[0]
        value.type, value.shape = inputs[0].type, inputs[0].shape
        return value

    def filled(self, like: ir.Value, number: int) -> ir.Value:
        """A tensor of one number."""
        dims = [d for d in like.shape or () if isinstance(d, int)]
        dtype = (like.dtype or ir.DataType.FLOAT).numpy()
        tensor = ir.tensor(np.full(dims, number, dtype))
        made = ir.node("Constant", [], attributes={"value": tensor})
        self.made.append(made)
        made.outputs[0].type, made.outputs[0].shape = like.type, like.shape
        return made.outputs[0]


def _until(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    nodes = list(graph)
    return nodes[: nodes.index(node)]


Rule = Callable[[_Backward, ir.Value, list[ir.Value]], list[ir.Value]]
"""The derivatives by the operands, from that by the result."""

RULES: dict[str, Rule] = {
    "Add": lambda b, slope, operands: [slope, slope],
    "Sub": lambda b, slope, operands: [slope, b.call("Neg", [slope])],
    "Mul": lambda b, slope, operands: [b.call("Mul", [slope, o]) for o in reversed(operands)],
    "Neg": lambda b, slope, operands: [b.call("Neg", [slope])],
    "Identity": lambda b, slope, operands: [slope],
}
"""By operator."""
