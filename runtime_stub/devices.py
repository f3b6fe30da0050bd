"""Devices in Python: what runs functions of a model beside the runtime's own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime_stub.library import CData, bytes_of, ffi, library, text_of
from runtime_stub.tensors import DTYPES, Array

Function = Callable[[Sequence[Array]], Sequence[Array]]
"""Takes the arguments of a function, valid until it answers with the results, in order."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device that a model may call.

    Attributes:
        prepare: Gives a function by its name; what it raises is told to the user, and so is what
            the function raises.
        sdk_version: Of the vendor's library; a bundle that needs a newer one is refused.
        soc: The chip; a bundle for another one is refused.
    """

    prepare: Callable[[str], Function]
    sdk_version: str = ""
    soc: str = ""


@dataclass
class Registered:
    """Devices as C sees them; they must outlive the model that is opened on them.

    Args:
        devices: By name.
    """

    devices: Mapping[str, Device]
    _kept: list[object] = field(default_factory=list[object], init=False)

    def __post_init__(self) -> None:
        """Makes the callbacks."""
        self.table: CData = ffi.new("mllm_device[]", max(len(self.devices), 1))
        for entry, (name, device) in zip(self.table, self.devices.items(), strict=False):
            entry.name, entry.soc = self._text(name), self._text(device.soc)
            entry.sdk_version = self._text(device.sdk_version)
            entry.memory = library().MLLM_MEMORY_HOST
            driver = _Driver(device)
            for member in ("open", "prepare", "run", "close"):
                kind = ffi.typeof(getattr(entry, member))
                made = ffi.callback(kind, getattr(driver, member))
                setattr(entry, member, made)
                self._kept.append(made)

    def _text(self, text: str) -> CData:
        if not text:
            return ffi.NULL
        raw = ffi.new("char[]", bytes_of(text))
        self._kept.append(raw)
        return raw


@dataclass
class _Driver:
    """The functions of `mllm_device` over a `Device`."""

    device: Device
    functions: list[Function] = field(default_factory=list[Function])

    def open(self, context: CData, bundle: CData, opened: CData, error: CData) -> int:
        opened[0] = ffi.NULL
        return library().MLLM_OK

    def prepare(
        self, context: CData, opened: CData, name: CData, function: CData, error: CData
    ) -> int:
        try:
            self.functions.append(self.device.prepare(text_of(name)))
        except Exception as fault:  # whatever a vendor's library raises
            return _told(fault, error)
        function[0] = ffi.cast("void *", len(self.functions) - 1)
        return library().MLLM_OK

    def run(
        self,
        context: CData,
        opened: CData,
        function: CData,
        inputs: CData,
        n_inputs: int,
        outputs: CData,
        n_outputs: int,
        error: CData,
    ) -> int:
        try:
            run = self.functions[int(ffi.cast("size_t", function))]
            results = run([_array(inputs[i]) for i in range(n_inputs)])
            for i, result in zip(range(n_outputs), results, strict=True):
                _write(result, _array(outputs[i]))
        except Exception as fault:  # whatever a vendor's library raises
            return _told(fault, error)
        return library().MLLM_OK

    def close(self, context: CData, opened: CData) -> None:
        self.functions.clear()


def _array(tensor: CData) -> Array:
    """The memory of a tensor as an array."""
    shape = tuple(tensor.dims[axis] for axis in range(tensor.rank))
    memory = ffi.buffer(tensor.data, tensor.bytes)
    return np.frombuffer(memory, DTYPES[tensor.dtype]).reshape(shape)


def _write(result: Array, into: Array) -> None:
    """Copies a result; its dtype and shape are those that the program says."""
    if result.dtype != into.dtype or result.shape != into.shape:
        found, wanted = (f"{a.dtype}{list(a.shape)}" for a in (result, into))
        raise ValueError(f"it gave {found} in the place of {wanted}")
    into[...] = result


def _told(fault: Exception, error: CData) -> int:
    """Writes the words of a fault; the status that goes with them."""
    words = str(getattr(fault, "message", fault)) or type(fault).__name__
    line = " ".join(words.split()).encode()[: int(library().MLLM_MESSAGE_BYTES) - 1]
    error.message = line.decode("utf-8", "ignore").encode()
    return library().MLLM_INTERNAL
