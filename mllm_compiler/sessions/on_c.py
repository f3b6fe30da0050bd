"""A session over the C runtime."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.bundle.files import reading
from mllm_compiler.bundle.tensor_files import read_tensors, write_tensors
from mllm_compiler.bundle.verify import Bundle
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.loop import Ask
from mllm_compiler.sessions.devices import devices_of
from mllm_compiler.sessions.session import (
    Access,
    Facts,
    chosen_entry,
    peak_bytes,
    tensor_facts,
)
from runtime_stub import Model, RuntimeFailure


@contextmanager
def opened(bundle: Bundle, access: Access) -> Generator[CSide]:
    """The session of a bundle, which the runtime verifies; its faults become ours.

    Raises:
        CompileError: What the runtime says, or `MLC-X026`: its library is not there.
    """
    try:
        with Model.open(
            bundle.path,
            trust=access.trust,
            allow_unsigned=access.allow_unsigned,
            threads=access.threads,
            devices=devices_of(bundle, access.threads),
        ) as model:
            yield CSide(bundle, model, access)
    except RuntimeFailure as fault:
        raise CompileError(
            fault.code, fault.message, location=fault.location, remedy=fault.remedy
        ) from fault
    except ImportError as fault:
        raise CompileError(
            "MLC-X026",
            f"the C runtime cannot be loaded: {fault}",
            location=str(bundle.path),
            remedy="pip install -e ., or compile with --target numpy",
        ) from fault


@dataclass(frozen=True)
class CSide:
    """A session of the target `c`.

    Attributes:
        bundle: The bundle as it was opened first.
        model: The loaded model.
        access: How it was opened, and how a draft is.
    """

    bundle: Bundle
    model: Model
    access: Access

    def answer(self, ask: Ask, emit: Callable[[str], None]) -> Facts:
        """Answers; each piece of text is emitted as it comes."""
        with ExitStack() as stack:
            draft = None if ask.draft is None else stack.enter_context(self._draft(ask.draft))
            return self._answer(ask, draft, emit)

    def _answer(self, ask: Ask, draft: Model | None, emit: Callable[[str], None]) -> Facts:
        samples, rate = (None, 16000) if ask.audio is None else samples_of(ask.audio)
        tokens: list[int] = []
        text: list[str] = []
        for piece in self.model.generate(
            ask.prompt,
            system=ask.system,
            image=None if ask.image is None else picture_of(ask.image),
            audio=samples,
            rate=rate,
            max_new_tokens=ask.max_new_tokens,
            temperature=ask.temperature,
            top_p=ask.top_p,
            seed=ask.seed,
            drafts=ask.drafts,
            draft=draft,
            window=ask.window,
        ):
            tokens += [] if piece.token is None else [piece.token]
            text.append(piece.text)
            emit(piece.text)
        figures = self.model.statistics
        return {
            "bundle": str(self.bundle.path),
            "target": ", ".join(self.bundle.manifest.targets),
            "text": "".join(text),
            "tokens": tokens,
            "prompt_tokens": figures.prompt_tokens,
            "finish": figures.finish,
            "first_token_s": round(figures.encode_seconds + figures.prompt_seconds, 4),
            "tokens_per_second": round(figures.decode_tokens_per_second, 2),
            "peak_memory_bytes": peak_bytes(),
            "copied_bytes": figures.copied_bytes,
            **({"drafted": figures.drafted, "accepted": figures.accepted} if ask.drafts else {}),
            **({"forgotten": figures.forgotten} if ask.window else {}),
            **self._counted(),
        }

    def _draft(self, path: Path) -> Model:
        return Model.open(
            path,
            trust=self.access.trust,
            allow_unsigned=self.access.allow_unsigned,
            threads=self.access.threads,
        )

    def _counted(self) -> Facts:
        """How often devices were called, where the bundle has some."""
        counters = self.model.counters
        if self.bundle.manifest.targets == ("c",):
            return {}
        return {
            "device_calls": counters.device_calls,
            "fallback_stages": counters.fallback_stages,
        }

    def run_tensors(self, inputs: Path, outputs: Path, entry: str | None) -> Facts:
        """Runs an entry on the tensors of a file."""
        arrays = read_tensors(inputs)
        chosen = chosen_entry(self.bundle, entry, arrays)
        results = self.model.run(chosen, arrays)
        write_tensors(outputs, results)
        return tensor_facts(chosen, outputs, results) | self._counted()


def picture_of(path: Path) -> NDArray[np.uint8]:
    """The pixels of a picture, [height, width, 3].

    Raises:
        CompileError: `MLC-X023`, it is none; `MLC-U005`, it cannot be read.
    """
    from mllm_compiler.generation.features import open_picture

    return np.asarray(open_picture(path), np.uint8)


def samples_of(path: Path) -> tuple[NDArray[np.float32], int]:
    """The samples of a WAV file, mono, -1 to 1, and its rate.

    Raises:
        CompileError: `MLC-X024`, it is none; `MLC-U005`, it cannot be read.
    """
    from mllm_compiler.generation.features import read_wave

    with reading(path):
        return read_wave(path)
