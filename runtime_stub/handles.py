"""What a model holds open in the library, opened in order and given back in reverse."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from runtime_stub.devices import Device, Registered
from runtime_stub.failure import RuntimeFailure
from runtime_stub.library import CData, check, ffi, library, new_error

ALLOW_UNSIGNED, ALREADY_VERIFIED = 1, 2
MOST_KEYS = 4096


class Handles:
    """Bundle, model, session, and a generator from its first use on."""

    def __init__(
        self,
        path: Path,
        trust: Path | None,
        flags: int,
        threads: int,
        devices: Mapping[str, Device],
    ) -> None:
        """Opens a bundle.

        Raises:
            RuntimeFailure: It is not trusted, broken, or has no program for the C runtime.
        """
        lib, error = library(), new_error()
        self._open, self._is_open = ExitStack(), False
        self._generator: CData = None
        keys, count = ffi.new("mllm_key[]", MOST_KEYS), ffi.new("size_t *")
        file = ffi.NULL if trust is None else ffi.from_buffer(os.fsencode(trust) + b"\0")
        check(lib.mllm_trust_read(file, keys, MOST_KEYS, count, error), error)
        options = ffi.new("mllm_bundle_options *")
        options.trusted, options.n_trusted = keys, min(count[0], MOST_KEYS)
        options.flags, options.threads = flags, threads
        with ExitStack() as stack:
            bundle = ffi.new("mllm_bundle **")
            check(lib.mllm_bundle_open(os.fsencode(path), options, bundle, error), error)
            self._bundle: CData = bundle[0]
            stack.callback(lib.mllm_bundle_close, self._bundle)
            model = ffi.new("mllm_model **")
            self._devices = Registered(devices)
            table, count = self._devices.table, len(devices)
            status = lib.mllm_bundle_model_on(self._bundle, ffi.NULL, table, count, model, error)
            check(status, error)
            self._model: CData = model[0]
            stack.callback(lib.mllm_model_destroy, self._model)
            wanted = ffi.new("mllm_session_options *")
            wanted.threads = threads
            session = ffi.new("mllm_session **")
            check(lib.mllm_session_create(self._model, wanted, session, error), error)
            self._session: CData = session[0]
            stack.callback(lib.mllm_session_destroy, self._session)
            self._open = stack.pop_all()
            self._is_open = True

    @property
    def bundle(self) -> CData:
        """The mapped bundle."""
        return self._alive(self._bundle)

    @property
    def model(self) -> CData:
        """Its model."""
        return self._alive(self._model)

    @property
    def session(self) -> CData:
        """The model's session."""
        return self._alive(self._session)

    def generator(self) -> CData:
        """The generator, made when it is first asked for.

        Raises:
            RuntimeFailure: The bundle generates no text.
        """
        if self._generator is None:
            error, made = new_error(), ffi.new("mllm_generator **")
            status = library().mllm_generator_create(
                self.bundle, self.model, self.session, made, error
            )
            check(status, error)
            self._generator = made[0]
            self._open.callback(library().mllm_generator_destroy, self._generator)
        return self._generator

    def member(self, name: str) -> bytes:
        """A member of the bundle, copied; nothing where there is none."""
        size = ffi.new("size_t *")
        data = library().mllm_bundle_member(self.bundle, name.encode(), size)
        return b"" if data == ffi.NULL else bytes(ffi.buffer(data, size[0]))

    def close(self) -> None:
        """Gives everything back; a second call does nothing."""
        self._open.close()
        self._generator, self._is_open = None, False

    def _alive(self, handle: CData) -> CData:
        if not self._is_open:
            raise RuntimeFailure("MLC-X001", "the model is closed", remedy="open it again")
        return handle
