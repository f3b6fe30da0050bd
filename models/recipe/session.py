"""ONNX Runtime, typed: one file, arrays in and out by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import onnxruntime

Tensor = npt.NDArray[np.generic]


class _Named(Protocol):
    name: str


class _Options(Protocol):
    intra_op_num_threads: int


class _Session(Protocol):
    def run(self, outputs: list[str] | None, feeds: Mapping[str, Tensor]) -> list[Tensor]: ...

    def get_inputs(self) -> list[_Named]: ...

    def get_outputs(self) -> list[_Named]: ...


class Session:
    """An ONNX file, ready to run on the CPU.

    Attributes:
        inputs: Names of the graph's inputs.
        outputs: Names of its outputs.
    """

    def __init__(self, path: Path, threads: int = 2) -> None:
        """Load a file."""
        options = cast("_Options", onnxruntime.SessionOptions())
        options.intra_op_num_threads = threads
        made = onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._session = cast("_Session", made)
        self.inputs = [value.name for value in self._session.get_inputs()]
        self.outputs = [value.name for value in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the graph; return every output by name."""
        return dict(zip(self.outputs, self._session.run(None, feeds), strict=True))


def generate_step(
    session: Session, first: str, value: Tensor, cache: dict[str, Tensor]
) -> tuple[npt.NDArray[np.float32], dict[str, Tensor]]:
    """Run a decoder with a cache over more tokens.

    Args:
        session: A graph with the inputs of `models/recipe/llama.py`.
        first: Its first input, `input_ids` or `inputs_embeds`.
        value: What goes there, [batch, tokens, ...].
        cache: What the last step returned, or `empty_cache`.

    Returns:
        The logits of the last token, [batch, vocab], and the grown cache.
    """
    batch, tokens = value.shape[:2]
    past = next(iter(cache.values())).shape[2]
    positions = np.tile(np.arange(past, past + tokens, dtype=np.int64), (batch, 1))
    feeds: dict[str, Tensor] = {
        first: value,
        "attention_mask": np.ones((batch, past + tokens), np.int64),
        "position_ids": positions,
    }
    made = session.run(feeds | cache)
    logits = made.pop("logits")[:, -1].astype(np.float32)
    grown = {name.replace("present", "past_key_values"): made[name] for name in made}
    return logits, grown


def empty_cache(session: Session, batch: int, heads: int, head: int) -> dict[str, Tensor]:
    """Return a cache of no tokens: [batch, heads, 0, head] an input."""
    names = [name for name in session.inputs if name.startswith("past_key_values.")]
    return {name: np.zeros((batch, heads, 0, head), np.float32) for name in names}
