"""The dialects, and a context that knows them without importing them before they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from xdsl.context import Context
from xdsl.ir import Dialect

from mllm_compiler.weights import WeightStore

DIALECTS = {
    "builtin": ("xdsl.dialects.builtin", "Builtin"),
    "func": ("xdsl.dialects.func", "Func"),
    "mllm": ("mllm_compiler.dialects.mllm", "Mllm"),
    "onnx": ("mllm_compiler.dialects.onnx", "Onnx"),
    "cpu": ("mllm_compiler.dialects.cpu", "Cpu"),
    "tfl": ("mllm_compiler.dialects.tfl", "Tfl"),
    "neuron": ("mllm_compiler.dialects.neuron", "Neuron"),
    "rknn": ("mllm_compiler.dialects.rknn", "Rknn"),
    "qnn": ("mllm_compiler.dialects.qnn", "Qnn"),
    "hal": ("mllm_compiler.dialects.hal", "Hal"),
}
"""The module and the name of each dialect."""


def dialect_factory(name: str) -> Callable[[], Dialect]:
    """A function that imports a dialect of `DIALECTS` and answers with it."""
    module, attribute = DIALECTS[name]

    def load() -> Dialect:
        dialect: Dialect = getattr(import_module(module), attribute)
        return dialect

    return load


@dataclass
class CompilerContext(Context):
    """A context that also knows where the bytes of weights lie.

    Attributes:
        store: Passes that read or make weights find them there.
    """

    store: WeightStore = field(default_factory=WeightStore)


def make_context(store: WeightStore | None = None) -> CompilerContext:
    """A context with every dialect registered; each is imported when a name of it is met."""
    context = CompilerContext(store=WeightStore() if store is None else store)
    for name in DIALECTS:
        context.register_dialect(name, dialect_factory(name))
    context.load_registered_dialect("builtin")
    return context


def store_of(context: Context) -> WeightStore:
    """The weight store of a context; an empty one where the context has none."""
    return context.store if isinstance(context, CompilerContext) else WeightStore()
