"""Past and present tensors of a raw run, which the runtime keeps in its KV cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runtime_stub.library import CData, check, failure, ffi, library, new_error
from runtime_stub.tensors import Array

KINDS = {"key": 0, "value": 1}


@dataclass(frozen=True)
class CacheNames:
    """What the model calls its cache: `{layer}` and `{kind}` stand for the parts that vary."""

    key: str = "past_key_values.{layer}.key"
    value: str = "past_key_values.{layer}.value"
    out: str = "present.{layer}.{kind}"

    def place(self, name: str) -> tuple[int, int] | None:
        """Layer and kind of a past input, nothing for any other name."""
        for kind, pattern in ((0, self.key), (1, self.value)):
            match = re.fullmatch(re.escape(pattern).replace(r"\{layer\}", r"(\d+)"), name)
            if match:
                return int(match[1]), kind
        return None


def write_past(session: CData, cache: int, names: CacheNames, past: Mapping[str, Array]) -> None:
    """Makes the cache hold exactly the past tensors, [1, heads, tokens, head_dim] each.

    Raises:
        RuntimeFailure: A tensor has another shape than the cache.
    """
    error, lengths = new_error(), {0}
    for name, array in past.items():
        place = names.place(name)
        if place is None or array.ndim != 4 or array.shape[0] != 1:
            raise failure("MLC-X001", f"no input '{name}' of shape {list(array.shape)}")
        data = np.ascontiguousarray(array, np.float32)
        tokens = data.shape[2]
        lengths = {tokens} if lengths == {0} else lengths | {tokens}
        pointer = ffi.cast("const float *", data.ctypes.data)
        if tokens:
            status = library().mllm_session_cache_write(
                session, cache, *place, pointer, tokens, error
            )
            check(status, error)
    if len(lengths) != 1:
        raise failure("MLC-X001", f"past tensors of different lengths: {sorted(lengths)}")
    status = library().mllm_session_cache_set_length(session, cache, max(lengths), error)
    check(status, error)


def read_present(session: CData, cache: int, names: CacheNames, info: CData) -> dict[str, Array]:
    """The cache as present tensors."""
    error = new_error()
    tokens = library().mllm_session_cache_length(session, cache)
    present: dict[str, Array] = {}
    for layer in range(info.layers):
        for kind, number in KINDS.items():
            data = np.empty((1, info.kv_heads, tokens, info.head_dim), np.float32)
            pointer = ffi.cast("float *", data.ctypes.data)
            status = library().mllm_session_cache_read(
                session, cache, layer, number, pointer, tokens, error
            )
            check(status, error)
            present[names.out.format(layer=layer, kind=kind)] = data
    return present
