"""A session over what Python runs: the NumPy reference, or a vendor's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mllm_compiler.bundle.tensor_files import read_tensors, write_tensors
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.loop import Ask, generate
from mllm_compiler.generation.model import NumpyModel
from mllm_compiler.sessions.session import (
    Facts,
    chosen_entry,
    peak_bytes,
    tensor_facts,
)


@dataclass(frozen=True)
class NumpySide:
    """A session of the target `numpy`, or of one that a vendor's library runs.

    Attributes:
        model: The open model.
    """

    model: NumpyModel

    def answer(self, ask: Ask, emit: Callable[[str], None]) -> Facts:
        """Answers; each piece of text is emitted as it comes.

        Raises:
            CompileError: `MLC-X040`, drafts are asked for, which this side does not verify;
                `MLC-X043`, a window, which it does not keep.
        """
        target = ", ".join(self.model.bundle.manifest.targets)
        for asked, code, words, option in (
            (ask.drafts, "MLC-X040", "no tokens are guessed", "--speculate"),
            (ask.window, "MLC-X043", "no window is kept", "--window"),
        ):
            if asked:
                remedy = f"leave {option} out, or compile with --target c"
                raise CompileError(code, f"on the target '{target}' {words}", remedy=remedy)
        answer = generate(self.model, ask, emit)
        return {
            "bundle": str(self.model.bundle.path),
            "target": ", ".join(self.model.bundle.manifest.targets),
            "text": answer.text,
            "tokens": answer.tokens,
            "prompt_tokens": answer.prompt_tokens,
            "finish": answer.finish,
            "first_token_s": round(answer.first_token_s, 4),
            "tokens_per_second": round(answer.tokens_per_second, 2),
            "peak_memory_bytes": peak_bytes(),
        }

    def run_tensors(self, inputs: Path, outputs: Path, entry: str | None) -> Facts:
        """Runs an entry on the tensors of a file."""
        arrays = read_tensors(inputs)
        chosen = chosen_entry(self.model.bundle, entry, arrays)
        results = self.model.runner.run(chosen, arrays)
        write_tensors(outputs, results)
        return tensor_facts(chosen, outputs, results)
