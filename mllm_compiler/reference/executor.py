"""Runs a function of a module on NumPy arrays, op by op.

The dims of the arguments bind the symbols; every other dim is evaluated from them. A value is
freed after its last use. Meanings stand in tables by dialect (`mllm_compiler.reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx_types import NUMPY
from mllm_compiler.dialects.types import Tensor, ranked, tensor_type
from mllm_compiler.errors import CompileError
from mllm_compiler.reference.tables import meaning_of
from mllm_compiler.weights import WeightStore

Array = NDArray[Any]
"""A tensor's value. The onnx dialect also passes lists (sequences) and None (empty optionals)."""

Listener = Callable[[Operation, Sequence[Array]], None]
"""Called after each op with its results."""


@dataclass
class Frame:
    """What a meaning may ask for besides its operands.

    Attributes:
        env: The values of the symbols of dims.
        store: Where the bytes of weights lie.
        values: The values alive; a region reads those of its surroundings.
    """

    env: dict[str, int]
    store: WeightStore
    listener: Listener | None = None
    values: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])

    @cached_property
    def _schedules(self) -> dict[Block, list[tuple[Operation, list[SSAValue]]]]:
        return {}

    def size(self, dim: Dim) -> int:
        """The value of a dim.

        Raises:
            KeyError: A symbol is not bound or the dim is unknown.
        """
        return dim.evaluate(self.env)

    def shape(self, type: Tensor) -> tuple[int, ...]:
        """The shape of a tensor type.

        Raises:
            KeyError: A symbol is not bound or a dim is unknown.
        """
        return tuple(d.evaluate(self.env) for d in dims_of(type))

    def run_block(self, block: Block, arguments: Sequence[Array]) -> list[Array]:
        """Runs a block of a region and answers with the operands of its terminator."""
        values = self.values
        values.update(zip(block.args, arguments, strict=True))
        if block not in self._schedules:
            self._schedules[block] = _schedule(block)
        for op, dead in self._schedules[block]:
            if op.has_trait(IsTerminator):
                return [values[v] for v in op.operands]
            meaning = meaning_of(op)
            if meaning is None:
                raise CompileError(
                    "MLC-D002",
                    f"'{op.name}' has no meaning in the reference",
                    location=location_name(op),
                )
            results = meaning(op, [values[v] for v in op.operands], self)
            for result, array in zip(op.results, results, strict=True):
                self._check(op, result, array)
                values[result] = array
            if self.listener is not None:
                self.listener(op, results)
            for value in dead:
                del values[value]
        return []

    def _check(self, op: Operation, result: SSAValue, array: Array) -> None:
        """The result has the shape that its type promises."""
        kind = ranked(result)
        if kind is None:
            return
        promised = [_value(d, self.env) for d in dims_of(kind)]
        same = len(promised) == array.ndim
        same = same and all(p in (None, n) for p, n in zip(promised, array.shape, strict=True))
        if not same:
            raise CompileError(
                "MLC-D003",
                f"'{op.name}' made a tensor of shape {list(array.shape)} where {kind} is promised",
                location=location_name(op),
            )


Meaning = Callable[[Operation, Sequence[Array], Frame], Sequence[Array]]
"""Computes the results of an op from its operands."""


def _value(dim: Dim, env: Mapping[str, int]) -> int | None:
    known = dim.as_int()
    if known is not None:
        return known
    return None if dim.unknown or not dim.symbols() <= env.keys() else dim.evaluate(env)


def _schedule(block: Block) -> list[tuple[Operation, list[SSAValue]]]:
    """The ops of a block, each with the values of the block that nothing needs after it."""
    ops = list(block.ops)
    last: dict[SSAValue, int] = dict.fromkeys(block.args, -1)
    for at, op in enumerate(ops):
        last.update((r, at) for r in op.results)
        for inner in op.walk() if op.regions else (op,):
            last.update((v, at) for v in inner.operands if v in last)
    dead: list[list[SSAValue]] = [[] for _ in ops]
    for value, at in last.items():
        if at >= 0 and not ops[at].has_trait(IsTerminator):
            dead[at].append(value)
    return list(zip(ops, dead, strict=True))


def find_function(module: ModuleOp, name: str) -> FuncOp:
    """The function `name` of a module.

    Raises:
        CompileError: There is none; the message names those that there are.
    """
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    if name not in functions:
        known = ", ".join(functions) or "none"
        raise CompileError("MLC-D004", f"the module has no graph '{name}' (it has: {known})")
    return functions[name]


def argument_names(function: FuncOp) -> list[str]:
    """The names of a function's arguments: `mllm.name`, else `arg0`, `arg1` and so on."""
    return _names(function.arg_attrs, len(function.args), "arg")


def result_names(function: FuncOp) -> list[str]:
    """The names of a function's results: `mllm.name`, else `result0`, `result1` and so on."""
    return _names(function.res_attrs, len(function.function_type.outputs.data), "result")


def _names(attrs: ArrayAttr[DictionaryAttr] | None, count: int, stem: str) -> list[str]:
    given = [d.data.get("mllm.name") for d in attrs] if attrs is not None else [None] * count
    return [n.data if isinstance(n, StringAttr) else f"{stem}{i}" for i, n in enumerate(given)]


def bind_symbols(function: FuncOp, arrays: Sequence[Array]) -> dict[str, int]:
    """The values of the symbols, from the arrays that are the arguments.

    Raises:
        CompileError: Rank, dtype or extent of an array contradicts its argument.
    """
    names, env = argument_names(function), dict[str, int]()
    pairs = list(zip(names, function.args, arrays, strict=True))
    tensors = [(n, tensor_type(v), a) for n, v, a in pairs if ranked(v) is not None]
    for name, kind, array in tensors:
        _check_argument(name, kind, array)
        for dim, extent in zip(dims_of(kind), array.shape, strict=True):
            if (symbol := dim.as_symbol()) is not None and env.setdefault(symbol, extent) != extent:
                raise _mismatch(name, f"'{symbol}' is {env[symbol]} elsewhere and {extent} here")
    for name, kind, array in tensors:
        for dim, extent in zip(dims_of(kind), array.shape, strict=True):
            if _value(dim, env) not in (None, extent):
                raise _mismatch(name, f"'{dim}' is {dim.evaluate(env)}, the extent {extent}")
    return env


def _check_argument(name: str, kind: Tensor, array: Array) -> None:
    if array.ndim != kind.get_num_dims():
        raise _mismatch(name, f"rank {array.ndim} where {kind} is expected")
    dtype = NUMPY.get(kind.element_type)
    # Text has many dtypes in NumPy.
    if dtype is not None and dtype.kind != "O" and array.dtype != dtype:
        raise _mismatch(name, f"{array.dtype} where {kind} is expected")


def _mismatch(name: str, message: str) -> CompileError:
    remedy = "see the entries and their inputs with mllmc bundle inspect"
    return CompileError("MLC-D001", message, location=f"input '{name}'", remedy=remedy)


def arguments(function: FuncOp, inputs: Mapping[str, Array]) -> list[Array]:
    """The arrays of a function's arguments, in order.

    Raises:
        CompileError: One is missing.
    """
    names = argument_names(function)
    missing = [n for n in names if n not in inputs]
    if missing:
        raise CompileError(
            "MLC-D001",
            "these inputs are missing: " + ", ".join(missing),
            location=f"graph '{function.sym_name.data}'",
            remedy="give every input that mllmc bundle inspect lists",
        )
    return [inputs[n] for n in names]


def run_function(
    module: ModuleOp,
    name: str,
    inputs: Mapping[str, Array],
    store: WeightStore,
    *,
    listener: Listener | None = None,
) -> dict[str, Array]:
    """Runs a function of a module.

    Args:
        module: Any level of IR.
        name: The function.
        inputs: The arguments by name (`mllm.name`).
        store: Where the bytes of weights lie.
        listener: Called after each op with its results.

    Returns:
        The results by name.

    Raises:
        CompileError: The function or an input is missing or does not fit, or an op has no meaning.
    """
    function = find_function(module, name)
    arrays = arguments(function, inputs)
    frame = Frame(bind_symbols(function, arrays), store, listener)
    results = frame.run_block(function.body.block, arrays)
    return dict(zip(result_names(function), results, strict=True))
