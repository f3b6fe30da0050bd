"""Hostile changes of a valid model: of its graph, and of its bytes.

All of them draw from a `random.Random`, so that a number, a hypothesis strategy or a fuzzer may say
what is done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as arrays

from tests.fuzz.seeds import DATA, own, suite

INTEGERS = [0, 1, -1, 2, 3, 7, 255, 10**9, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 1e-45, 3e38, float("inf"), float("nan")]
PARAMS = [
    "seq", "seq + 1", "n % 0", "N/2", "n // 0", "?", "", "x y", "((a))", "-n", "n - 9", "-1", "\n",
    "(" * 3000 + "n" + ")" * 3000, "9" * 5000, "n*" * 300 + "n", "(a+b+c+d+e)*" * 24 + "(a+b)",
    "2" + "*2" * 5000, "n" * 100_000, "\u00b2", "min(a, b)", "10**9", "1e9", "a.b", "a if b",
]  # fmt: skip
PATHS = [
    "",
    ".",
    "..",
    "../model.data",
    "/etc/passwd",
    "/dev/zero",
    "a\0b",
    "no/such",
    "model.onnx",
]
NAMES = ["", " ", "\n", "\x1b[31m", "a" * 50_000, "\u202e", "%0", '"', "x:0", "/a//b", "\u0661"]
DEPTHS = [1, 2, 5, 12, 25, 33, 60]
OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})

Mutation = Callable[[ModelProto, random.Random], None]


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def any_node(model: ModelProto, rng: random.Random) -> NodeProto:
    """A node of any graph or function; a new one where there is none."""
    nodes = [n for g in graphs(model.graph) for n in g.node]
    nodes += [n for f in model.functions for n in f.node]
    return rng.choice(nodes) if nodes else model.graph.node.add(op_type="Relu")


def any_value(model: ModelProto, rng: random.Random) -> onnx.ValueInfoProto:
    """An input, an output or a value with a stated type."""
    graph = rng.choice(list(graphs(model.graph)))
    infos = [*graph.input, *graph.output, *graph.value_info]
    return rng.choice(infos) if infos else model.graph.input.add(name="new")


def any_name(model: ModelProto, rng: random.Random) -> str:
    """A name that the model knows, rarely a strange one."""
    if rng.random() < 0.1:
        return rng.choice(NAMES)
    known = [v for n in model.graph.node for v in (*n.input, *n.output)]
    known += [i.name for i in (*model.graph.input, *model.graph.initializer)]
    return rng.choice(known) if known else ""


def rewire(model: ModelProto, rng: random.Random) -> None:
    """A node takes another value: of another type, of nothing, or of itself, which is a cycle."""
    node = any_node(model, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = any_name(model, rng)


def rename(model: ModelProto, rng: random.Random) -> None:
    """One name means two things, or none."""
    graph = rng.choice(list(graphs(model.graph)))
    named = [*graph.input, *graph.output, *graph.initializer, *graph.node]
    if named and rng.random() < 0.6:
        rng.choice(named).name = any_name(model, rng)
        return
    node = any_node(model, rng)
    if node.output:
        node.output[rng.randrange(len(node.output))] = any_name(model, rng)


def change_arity(model: ModelProto, rng: random.Random) -> None:
    """A node has an operand or a result more or less."""
    node = any_node(model, rng)
    names = rng.choice([node.input, node.output])
    if names and rng.random() < 0.5:
        del names[rng.randrange(len(names))]
    else:
        names.extend([any_name(model, rng)] * rng.choice([1, 1, 2, 300]))


def change_operator(model: ModelProto, rng: random.Random) -> None:
    """A node is of another operator, domain or overload."""
    node = any_node(model, rng)
    node.op_type = rng.choice([*OPERATORS, *NAMES])
    if rng.random() < 0.2:
        node.domain = rng.choice(["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "x\ny"])


def change_attribute(model: ModelProto, rng: random.Random) -> None:
    """An attribute has another value, kind or name, or is there twice or not at all."""
    node = any_node(model, rng)
    if not node.attribute or rng.random() < 0.1:
        node.attribute.append(helper.make_attribute("axis", rng.choice(INTEGERS)))
        return
    index = rng.randrange(len(node.attribute))
    attribute = node.attribute[index]
    change = rng.randrange(8)
    if change == 0:
        attribute.type = rng.randrange(16)
    elif change == 1:
        del node.attribute[index]
    elif change == 2:
        node.attribute.append(attribute)
    elif change == 3:
        attribute.name = rng.choice(["axis", "axes", "value", "perm", "to", "body", *NAMES])
    elif change == 4:
        attribute.s = rng.choice([b"", b"\xff", b"NOTSET", b"x" * 9999])
    _change_numbers(attribute, rng)


def _change_numbers(attribute: AttributeProto, rng: random.Random) -> None:
    attribute.i, attribute.f = rng.choice(INTEGERS), rng.choice(FLOATS)
    for numbers, choices in ((attribute.ints, INTEGERS), (attribute.floats, FLOATS)):
        if numbers:
            numbers[rng.randrange(len(numbers))] = rng.choice(choices)
            numbers.extend(rng.choice(choices) for _ in range(rng.choice([0, 0, 1, 70])))
    if attribute.HasField("t"):
        change_tensor(attribute.t, rng)


def change_weight(model: ModelProto, rng: random.Random) -> None:
    """An initialiser has other dims, another dtype, fewer bytes, or lies in another file."""
    graph = rng.choice(list(graphs(model.graph)))
    if not graph.initializer:
        graph.initializer.append(arrays.from_array(np.zeros(3, np.int64), any_name(model, rng)))
    change_tensor(rng.choice(graph.initializer), rng)


def change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    """Changes one property of a tensor."""
    change = rng.randrange(6)
    if change == 0:
        tensor.data_type = rng.randrange(30)
    elif change == 1:
        numbers = [rng.choice(INTEGERS) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        tensor.CopyFrom(arrays.from_array(np.array(numbers, np.int64), tensor.name))
    elif change == 2:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif change == 3:
        make_external(tensor, rng)
    elif tensor.dims and change == 4:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTEGERS)
    else:
        tensor.dims.extend([rng.choice(INTEGERS)] * rng.choice([1, 1, 2, 60]))


def make_external(tensor: TensorProto, rng: random.Random) -> None:
    """A tensor lies in a file, at an offset and of a length that may be anything."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    entries = {
        "location": rng.choice([DATA, DATA, DATA, *PATHS]),
        "offset": str(rng.choice([0, 1, 100, 4095, 4096, *INTEGERS])),
        "length": rng.choice(["", "x", "1e3", *map(str, INTEGERS)]),
    }
    for key, value in entries.items():
        if rng.random() < 0.8:
            tensor.external_data.add(key=key, value=value)


def change_extent(model: ModelProto, rng: random.Random) -> None:
    """A value states another dim: huge, negative, or an expression."""
    dims = any_value(model, rng).type.tensor_type.shape.dim
    if not dims or rng.random() < 0.1:
        dims.add()
    dim = rng.choice(dims)
    if rng.random() < 0.5:
        dim.dim_value = rng.choice(INTEGERS)
    else:
        dim.dim_param = rng.choice(PARAMS)


def change_type(model: ModelProto, rng: random.Random) -> None:
    """A value states another type: another element, none, or one inside of many others."""
    value = any_value(model, rng)
    if rng.random() < 0.6:
        value.type.tensor_type.elem_type = rng.randrange(30)
        return
    inner = value.type
    for _ in range(rng.choice(DEPTHS)):
        field = rng.choice(["sequence_type", "optional_type", "map_type"])
        holder = getattr(inner, field)
        inner = holder.value_type if field == "map_type" else holder.elem_type
    inner.tensor_type.elem_type = TensorProto.FLOAT


def drop(model: ModelProto, rng: random.Random) -> None:
    """A node, an input, an output, an initialiser, a type or an opset is lost."""
    graph = rng.choice(list(graphs(model.graph)))
    lists: Sequence[object] = (
        graph.node, graph.node, graph.input, graph.output, graph.initializer, model.opset_import,
        model.functions,
    )  # fmt: skip
    chosen = rng.choice([each for each in lists if each] or [graph.node])
    if chosen:
        del chosen[rng.randrange(len(chosen))]  # type: ignore[arg-type]


def change_version(model: ModelProto, rng: random.Random) -> None:
    """The model is of another opset or another version of the format."""
    versions = [*range(28), *INTEGERS]
    if not model.opset_import or rng.random() < 0.2:
        model.ir_version = rng.choice(versions)
        return
    chosen = rng.choice(model.opset_import)
    chosen.version = rng.choice(versions)
    if rng.random() < 0.2:
        chosen.domain = rng.choice(["", "ai.onnx", "com.microsoft", "local", *NAMES])


def nest(model: ModelProto, rng: random.Random) -> None:
    """The graph's nodes stand in a branch of a branch of a branch."""
    graph, name = model.graph, any_name(model, rng)
    for _ in range(rng.choice(DEPTHS)):
        branch = GraphProto(name="branch")
        branch.node.extend(graph.node[-1:])
        if branch.node and branch.node[0].output:
            branch.output.add(name=branch.node[0].output[0])
        outputs = [o.name for o in branch.output]
        del graph.node[-1:]
        other = GraphProto(name="other")
        other.node.add(op_type="Identity", input=[name], output=["other"])
        other.output.add(name="other")
        graph.node.append(
            helper.make_node("If", [name], outputs, then_branch=branch, else_branch=other)
        )


def multiply(model: ModelProto, rng: random.Random) -> None:
    """Functions that call each other twice: n of them stand for 2^n nodes; or for ever."""
    count = rng.choice([1, 4, 10, 20, 40])
    last = rng.choice([count, 0])
    for at in range(count):
        function = model.functions.add(name=f"f{at}", domain="many", input=["a"], output=["c"])
        function.opset_import.add(domain="", version=17)
        function.opset_import.add(domain="many", version=1)
        after = at + 1 if at + 1 < count else last
        called, domain = (f"f{after}", "many") if after < count else ("Relu", "")
        function.node.add(op_type=called, domain=domain, input=["a"], output=["b"])
        function.node.add(op_type=called, domain=domain, input=["b"], output=["c"])
    model.opset_import.add(domain="many", version=1)
    node = any_node(model, rng)
    node.op_type, node.domain = "f0", "many"


def splice(model: ModelProto, rng: random.Random) -> None:
    """The nodes of another model are added; its names are those of this one, or unknown."""
    other = ModelProto.FromString(rng.choice(own()))
    model.graph.node.extend(other.graph.node)
    if rng.random() < 0.5:
        model.graph.initializer.extend(other.graph.initializer)


MUTATIONS: tuple[Mutation, ...] = (
    rewire, rename, change_arity, change_operator, change_attribute, change_weight, change_extent,
    change_type, drop, change_version, nest, multiply, splice,
)  # fmt: skip
"""The changes of a graph."""


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some changed, cut out or repeated."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(made) + 1)
        length = rng.choice([1, 1, 4, 64])
        change = rng.randrange(4)
        if change == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del made[at : at + length]
        elif change == 2:
            made[at:at] = made[at : at + length] * rng.choice([1, 2, 100])
        else:
            made[at : at + length] = bytes(rng.randrange(256) for _ in range(length))
    return bytes(made)


def changed(data: bytes, rng: random.Random, count: int) -> bytes:
    """A model with some mutations of its graph; of its bytes where they are no model."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
        for _ in range(count):
            rng.choice(MUTATIONS)(model, rng)
        return model.SerializeToString()
    except (DecodeError, ValueError):  # a change that the protobuf library refuses
        return change_bytes(data, rng)


def mutant(rng: random.Random) -> bytes:
    """A valid model with a few hostile changes, as the bytes of an `.onnx` file."""
    data = rng.choice(own() if rng.random() < 0.6 else suite())
    if rng.random() < 0.85:
        data = changed(data, rng, rng.choice([1, 1, 1, 2, 3]))
    if rng.random() < 0.2:
        data = change_bytes(data, rng)
    return data
