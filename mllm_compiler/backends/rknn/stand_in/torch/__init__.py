"""Stands in for torch where Rockchip's toolkit imports it and reads ONNX, which needs none of it.

The toolkit names many classes of torch when it is imported, and calls the few functions below, on
lists of indices. Whatever else it calls fails with a line that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

__version__ = "2.4.0"
"""The newest that the toolkit says it takes."""

Function = TypeVar("Function", bound=Callable[..., object])


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor that are called here."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array itself."""
        return np.asarray(self)


def arange(*bounds: int) -> Tensor:
    """Whole numbers in a row."""
    return np.arange(*bounds).view(Tensor)


def split(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts of these sizes along an axis."""
    ends = [int(end) for end in np.cumsum(sizes)[:-1]]
    return [part.view(Tensor) for part in np.split(x, ends, dim)]


def cat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Parts behind one another along an axis."""
    return np.concatenate(list(parts), dim).view(Tensor)


def no_grad() -> Callable[[Function], Function]:
    """A decorator that changes nothing: there are no gradients."""
    return lambda function: function


class _Names(type):
    """Answers with a class for every name, for those that are only mentioned or derived from."""

    def __getattr__(cls, name: str) -> type[Absent]:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"{cls.__qualname__}.{name}")


class Absent(metaclass=_Names):
    """A class or function of torch that is not here."""

    def __init__(self, *arguments: object, **named: object) -> None:
        name = type(self).__qualname__
        raise RuntimeError(f"{name} is not in the stand-in for torch: install torch beside it")


def absent(name: str) -> type[Absent]:
    """The class that a name of torch means."""
    made: type[Absent] = _Names(name, (Absent,), {"__qualname__": name})
    return made


def __getattr__(name: str) -> type[Absent]:
    if name.startswith("__"):
        raise AttributeError(name)
    return absent(f"torch.{name}")


class _Finder(MetaPathFinder, Loader):
    """Finds every submodule of torch: an empty module of names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a submodule."""
        ours = fullname.startswith("torch.")
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        made = ModuleType(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Lets the module answer with a class for every name."""

        def named(name: str) -> type[Absent]:
            if name.startswith("__"):
                raise AttributeError(name)
            return absent(f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = named


sys.meta_path.insert(0, _Finder())
