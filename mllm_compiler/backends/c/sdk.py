"""Runs what the target `c` made, without a bundle: the one place that touches the C runtime.

The runtime's library is loaded when it is first used; where it was not built, the `ImportError`
says how to get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.backends.c.artifact import CacheNames, CArtifact
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]
ALIGNMENT = 64


class CRunner:
    """A model and one session over an artifact, its weights packed into memory.

    Args:
        artifact: What `compile_module` made.
        store: Where the bytes of its weights lie.
        threads: 0: one a core.
        cpu: A variant of the kernels; None: the best that there is.
    """

    def __init__(
        self, artifact: CArtifact, store: WeightStore, *, threads: int = 1, cpu: str | None = None
    ) -> None:
        from runtime_stub.library import ffi, library

        self._ffi, self._lib = ffi, library()
        self._entries = {entry.name: entry for entry in artifact.entries}
        self._caches = list(
            dict.fromkeys(e.cache.cache for e in artifact.entries if e.cache is not None)
        )
        self._weights = _aligned(b"".join(artifact.stream(store)))
        self._model, self._session = ffi.new("mllm_model **"), ffi.new("mllm_session **")
        options = ffi.new("mllm_model_options *")
        options.abi = self._lib.MLLM_ABI_VERSION
        self._cpu = ffi.NULL if cpu is None else ffi.new("char[]", cpu.encode())
        options.cpu = self._cpu
        weights = ffi.cast("void *", self._weights.ctypes.data)
        program, size = artifact.program, self._weights.nbytes
        self._check("mllm_model_create", program, len(program), weights, size, options, self._model)
        session = ffi.new("mllm_session_options *")
        session.threads = threads
        self._check("mllm_session_create", self._model[0], session, self._session)

    def __enter__(self) -> CRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives all memory back."""
        self._lib.mllm_session_destroy(self._session[0])
        self._lib.mllm_model_destroy(self._model[0])
        self._session[0] = self._model[0] = self._ffi.NULL

    def run(
        self, entry: str, inputs: Mapping[str, Array], *, only: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """The outputs of an entry by name.

        Past tensors among the inputs are written into the entry's cache first; without them the
        cache goes on from where it is. Inputs that have a place in the arena may be left out.

        Args:
            entry: The entry.
            inputs: What it takes, by name.
            only: The outputs that are wanted; the others land in their place in the arena. None:
                all of them, and the cache as present tensors.

        Raises:
            RuntimeFailure: The runtime refuses an input.
        """
        described = self._entries[entry]
        number = self._lib.mllm_model_find_entry(self._model[0], entry.encode())
        own = {p.name for p in described.inputs}
        past = {name: array for name, array in inputs.items() if name not in own}
        cache = described.cache
        if cache is not None and past:
            self._write_past(cache, past)
        wanted = [p.name for p in described.outputs] if only is None else list(only)
        given = {n: a for n, a in inputs.items() if n in own}
        results = self._call(number, given, wanted)
        if cache is None or only is not None:
            return results
        return results | self._read_present(cache)

    def cache_length(self, cache: str) -> int:
        """Tokens that a cache holds."""
        return self._lib.mllm_session_cache_length(self._session[0], self._caches.index(cache))

    def forget(self, cache: str, length: int = 0) -> None:
        """Rewinds a cache."""
        number = self._caches.index(cache)
        self._check("mllm_session_cache_set_length", self._session[0], number, length)

    def _call(
        self, number: int, inputs: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        from runtime_stub.tensors import describe, empty_like

        ffi = self._ffi
        arrays = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        names = {n: ffi.new("char[]", n.encode()) for n in (*arrays, *wanted)}
        given = ffi.new("mllm_tensor[]", max(len(arrays), 1))
        for at, (name, array) in enumerate(arrays.items()):
            describe(given[at], names[name], array)
        made = ffi.new("mllm_tensor[]", max(len(wanted), 1))
        for at, name in enumerate(wanted):
            made[at].name = names[name]
        ends = (self._session[0], number, given, len(arrays), made, len(wanted))
        self._check("mllm_run_shapes", *ends)
        results: dict[str, Array] = {name: empty_like(made[i]) for i, name in enumerate(wanted)}
        for at, array in enumerate(results.values()):
            made[at].data = ffi.cast("void *", array.ctypes.data)
            made[at].bytes = array.nbytes
        self._check("mllm_run", *ends)
        return results

    def _write_past(self, cache: CacheNames, past: Mapping[str, Array]) -> None:
        number, length = self._caches.index(cache.cache), 0
        for layer in range(cache.layers):
            for kind, pattern in enumerate((cache.key, cache.value)):
                array = past[pattern.replace("{layer}", str(layer))]
                length = array.shape[2]
                data = np.ascontiguousarray(array[0], np.float32)
                pointer = self._ffi.cast("float *", data.ctypes.data)
                place = (self._session[0], number, layer, kind, pointer, length)
                self._check("mllm_session_cache_write", *place)
        self._check("mllm_session_cache_set_length", self._session[0], number, length)

    def _read_present(self, cache: CacheNames) -> dict[str, Array]:
        number, present = self._caches.index(cache.cache), dict[str, Array]()
        length = self.cache_length(cache.cache)
        for layer in range(cache.layers):
            for kind, word in enumerate(("key", "value")):
                data = np.empty((1, cache.kv_heads, length, cache.head_dim), np.float32)
                pointer = self._ffi.cast("float *", data.ctypes.data)
                place = (self._session[0], number, layer, kind, pointer, length)
                self._check("mllm_session_cache_read", *place)
                name = cache.out.replace("{layer}", str(layer)).replace("{kind}", word)
                present[name] = data
        return present

    def _check(self, function: str, *arguments: Any) -> None:
        from runtime_stub.library import check, new_error

        error = new_error()
        check(getattr(self._lib, function)(*arguments, error), error)


def _aligned(raw: bytes) -> NDArray[np.uint8]:
    """A copy that begins at a multiple of 64."""
    room = np.empty(len(raw) + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    room[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
    return room[start : start + len(raw)]
