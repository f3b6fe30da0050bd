"""An open bundle: its entries as functions over NumPy arrays, and text generation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_stub import generation
from runtime_stub.caches import CacheNames, read_present, write_past
from runtime_stub.devices import Device
from runtime_stub.frames import Frame
from runtime_stub.generation import Piece, Request, Statistics
from runtime_stub.handles import ALLOW_UNSIGNED, ALREADY_VERIFIED, Handles
from runtime_stub.library import (
    CData,
    bytes_of,
    check,
    failure,
    ffi,
    library,
    new_error,
    text_of,
)
from runtime_stub.schedule import Schedule
from runtime_stub.tensors import Array, check_input, describe, dtype_name, empty_like


@dataclass(frozen=True)
class TensorInfo:
    """An input or output; a dim is a number, or an expression over symbols."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Entry:
    """A graph that can be run by name.

    Attributes:
        name: Its name.
        role: `encoder`, `language-model`, ..
        inputs: What it takes.
        outputs: What it gives.
        cache: Whether it appends to a KV cache; then past and present tensors are taken and
            given beside inputs and outputs.
    """

    name: str
    role: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    cache: bool


@dataclass(frozen=True)
class Counters:
    """What the runs of a model have called and copied.

    Attributes:
        device_calls: Functions of devices.
        fallback_stages: Kernels that run what a graph's device refuses.
        copied_bytes: Copied from what one entry gave to what another takes.
    """

    device_calls: int
    fallback_stages: int
    copied_bytes: int = 0


class Model:
    """A bundle that was verified and loaded; use `Model.open`. It serves one caller at a time."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        trust: str | Path | None = None,
        allow_unsigned: bool = False,
        threads: int = 0,
        already_verified: bool = False,
        devices: Mapping[str, Device] | None = None,
    ) -> Model:
        """Verifies and loads a bundle.

        Args:
            path: The `.mllm_bundle`.
            trust: A file of public keys; None: the user's own.
            allow_unsigned: Accept a bundle without signature, or by an unknown signer.
            threads: 0: one per core.
            already_verified: The caller has checked signature and digests.
            devices: What runs functions of the model beside the C kernels, by name.

        Raises:
            RuntimeFailure: It is refused; the message names the member or region.
        """
        flags = ALLOW_UNSIGNED if allow_unsigned else 0
        flags |= ALREADY_VERIFIED if already_verified else 0
        file = None if trust is None else Path(trust)
        return cls(Handles(Path(path), file, flags, threads, devices or {}))

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives memory and files back; a second call does nothing."""
        self._handles.close()

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """What can be run, by name."""
        lib, found = library(), list[Entry]()
        for index in range(lib.mllm_model_entries(self._handles.model)):
            info = self._entry_info(index)
            inputs = tuple(self._tensor("input", index, i) for i in range(info.inputs))
            outputs = tuple(self._tensor("output", index, i) for i in range(info.outputs))
            name, role = text_of(info.name), text_of(info.role)
            found.append(Entry(name, role, inputs, outputs, info.cache >= 0))
        return MappingProxyType({entry.name: entry for entry in found})

    def run(self, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Runs an entry on arrays, all outputs by name.

        An entry that graphs of static shapes serve is run by the smallest that the arrays fit.

        An entry with a cache starts from the past tensors that are given (none: from nothing)
        and gives the present ones too.

        Raises:
            RuntimeFailure: An input is missing, unknown or of another type or shape.
        """
        index = library().mllm_model_find_entry(self._handles.model, bytes_of(entry))
        if index < 0:
            known = ", ".join(self.entries)
            raise failure("MLC-X001", f"no entry '{entry}'; there are {known}")
        info, session = self._entry_info(index), self._handles.session
        own = {tensor.name for tensor in self.entries[entry].inputs}
        past = {name: array for name, array in inputs.items() if name not in own}
        if info.cache < 0 and past:
            raise failure("MLC-X001", f"no input '{min(past)}'", location=entry)
        if info.cache >= 0:
            write_past(session, info.cache, self._cache_names(entry), past)
        results = self._run(index, entry, {n: inputs[n] for n in inputs if n in own})
        if info.cache >= 0:
            cache = ffi.new("mllm_cache_info *")
            library().mllm_model_cache(self._handles.model, info.cache, cache)
            results |= read_present(session, info.cache, self._cache_names(entry), cache)
        return results

    def generate(
        self,
        prompt: str | None = None,
        *,
        image: npt.NDArray[np.uint8] | Frame | None = None,
        audio: npt.NDArray[np.float32] | None = None,
        rate: int = 16000,
        system: str | None = None,
        max_new_tokens: int = 0,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        drafts: int = 0,
        draft: Model | None = None,
        window: int = 0,
    ) -> Iterator[Piece]:
        """Answers a prompt, token by token; `generation.Request` explains the arguments.

        `draft` is another open model, with the same tokenizer, that guesses the next tokens.

        Raises:
            RuntimeFailure: The model generates no text, or the prompt does not fit it.
        """
        request = Request(
            prompt=prompt,
            system=system,
            image=image,
            audio=audio,
            rate=rate,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            drafts=drafts,
            draft=None if draft is None else draft._handles.generator,
            window=window,
        )
        return generation.generate(self._handles.generator, request)

    def schedule(
        self,
        *,
        conversations: int = 0,
        cache_bytes: int = 0,
        prepares: bool = False,
        spill: tuple[str | PathLike[str], int] | None = None,
    ) -> Schedule:
        """Lends the session to conversations that take turns; `generate` has to wait meanwhile.

        Args:
            conversations: At most so many at a time; 0: 16.
            cache_bytes: Of all their caches; 0: no bound.
            prepares: A thread prepares the next prompt while others run.
            spill: With `cache_bytes`: a folder for a file of at most so many bytes, where
                conversations sleep as long as more urgent ones need their room.

        Raises:
            RuntimeFailure: What the model remembers is not in its cache alone.
        """
        lent = self._handles.generator()
        return Schedule(lent, conversations, cache_bytes, prepares, spill)

    @property
    def statistics(self) -> Statistics:
        """Figures of the last answer."""
        return generation.statistics(self._handles.generator())

    @property
    def counters(self) -> Counters:
        """What all runs have called so far."""
        found = library().mllm_session_counters(self._handles.session)
        return Counters(
            int(found.device_calls), int(found.fallback_stages), int(found.copied_bytes)
        )

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special`: markers in it act as such, and the model's own surround it."""
        return generation.tokenize(self._handles.generator(), text, special)

    def detokenize(self, ids: list[int], *, special: bool = False) -> str:
        """Text of ids; `special`: special tokens are spelled out.

        Raises:
            RuntimeFailure: An id is no token.
        """
        return generation.detokenize(self._handles.generator(), ids, special)

    def _run(self, index: int, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        lib, error = library(), new_error()
        names = {name: ffi.new("char[]", name.encode()) for name in inputs}
        arrays = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        given = ffi.new("mllm_tensor[]", max(len(arrays), 1))
        for place, (name, array) in enumerate(arrays.items()):
            check_input(name, array, entry)
            describe(given[place], names[name], array)
        outputs = self.entries[entry].outputs
        wanted = ffi.new("mllm_tensor[]", max(len(outputs), 1))
        session, n_in, n_out = self._handles.session, len(arrays), len(outputs)
        check(lib.mllm_run_shapes(session, index, given, n_in, wanted, n_out, error), error)
        results = {out.name: empty_like(wanted[i]) for i, out in enumerate(outputs)}
        for place, array in enumerate(results.values()):
            wanted[place].data = ffi.cast("void *", array.ctypes.data)
            wanted[place].bytes = array.nbytes
        check(lib.mllm_run(session, index, given, n_in, wanted, n_out, error), error)
        return results

    def _cache_names(self, entry: str) -> CacheNames:
        known = self._caches.get(entry, {})
        return CacheNames(**{key: known[key] for key in ("key", "value", "out") if key in known})

    @cached_property
    def _caches(self) -> Mapping[str, Mapping[str, str]]:
        return self._pipeline.get("caches", {})

    @cached_property
    def _pipeline(self) -> dict[str, Any]:
        config = json.loads(self._handles.member("config.json") or b"{}")
        return config.get("pipeline", {})

    def _entry_info(self, index: int) -> CData:
        info = ffi.new("mllm_entry_info *")
        library().mllm_model_entry(self._handles.model, index, info)
        return info

    def _tensor(self, side: str, entry: int, index: int) -> TensorInfo:
        info = ffi.new("mllm_tensor_info *")
        getattr(library(), f"mllm_model_{side}")(self._handles.model, entry, index, info)
        shape = tuple(self._dim(info, axis) for axis in range(info.rank))
        return TensorInfo(text_of(info.name), dtype_name(info.dtype), shape)

    def _dim(self, info: CData, axis: int) -> int | str:
        if info.dims[axis] >= 0:
            return int(info.dims[axis])
        text = ffi.new("char[]", 256)
        library().mllm_model_dim_text(self._handles.model, info.exprs[axis], text, 256)
        return text_of(text)
