"""Texts as the tokens and embeddings that language models take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from mllm_compiler.bundle.config import config_of
from mllm_compiler.bundle.manifest import canonical
from mllm_compiler.calibration.sources import words_beside
from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.generation.prompts import IMAGE, prompt_ids
from mllm_compiler.generation.settings import Settings, read_settings
from mllm_compiler.importer import ModelSpec
from mllm_compiler.passes.graphs import pipeline_of
from mllm_compiler.quantisation.recipe import Limits
from mllm_compiler.reference import Array
from mllm_compiler.weights import WeightStore

PROMPT = "Describe the image."
"""What is asked of a picture where the model has no prompt of its own."""


@dataclass(frozen=True)
class Words:
    """How a model takes text.

    Attributes:
        settings: Its templates and features.
        tokenizer: None where it takes no text.
        table: The rows that tokens stand for where the model takes embeddings.
        bounds: The largest value of each symbol of dims.
    """

    settings: Settings
    tokenizer: Tokenizer | None
    table: Array | None
    bounds: Mapping[str, int]

    @staticmethod
    def of(module: ModuleOp, spec: ModelSpec, store: WeightStore) -> Words:
        """What `model.toml` says of text."""
        settings, bounds = read_settings(canonical(config_of(spec, {}))), pipeline_of(module)
        if spec.text is None:
            return Words(settings, None, None, bounds.bound_of)
        tokenizer = Tokenizer.from_file(str(spec.folder / spec.text.tokenizer))
        name = (spec.text.embedding or "").partition(":")[2]
        return Words(settings, tokenizer, _weight(module, store, name), bounds.bound_of)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        assert self.tokenizer is not None
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def windows(self, text: str, tokens: SSAValue, limits: Limits) -> list[Array]:
        """Windows, [1, length] each, evenly over a text, as long as an input takes them."""
        ids, length = self.ids(text), self._length(tokens, limits.window)
        if shape_of(tokens)[1].as_int() is None:
            length = max(1, min(length, len(ids)))
        count = min(max(1, limits.tokens // length), len(ids) // length)
        starts = np.linspace(0, len(ids) - length, count).astype(int)
        return [np.array([ids[at : at + length]], np.int64) for at in starts]

    def _length(self, tokens: SSAValue, wanted: int) -> int:
        """The tokens of a window: as many as an input has, or as its bounds allow."""
        dim = shape_of(tokens)[1]
        if (size := dim.as_int()) is not None:
            return size
        ours = [s for s in self.bounds if s in dim.symbols() or s.startswith("past")]
        return min(wanted, sum(self.bounds[s] for s in ours) or wanted)

    def rows(self, ids: Sequence[int]) -> Array:
        """The rows of tokens, [tokens, dim]."""
        assert self.table is not None
        return self.table[list(ids)].astype(np.float32)

    def picture(self, path: Path, picture: Array) -> Array:
        """The embeddings [1, tokens, dim] of a turn about a picture, and of the words beside it."""
        assert self.tokenizer is not None
        prompt = self.settings.prompt or PROMPT
        ids = prompt_ids(self.tokenizer, self.settings, prompt, None, image=True)
        said = self.ids(words_beside(path) or "")
        parts = [picture if i == IMAGE else self.rows([i]) for i in (*ids, *said)]
        return np.concatenate(parts)[None]


def _weight(module: ModuleOp, store: WeightStore, name: str) -> Array | None:
    for op in module.walk():
        if isinstance(op, WeightOp) and op.weight_name is not None and op.weight_name.data == name:
            return store.array(op.value.digest.data, str(op.value.element), op.value.dims)
    return None
