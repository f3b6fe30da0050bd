"""Runs a bundle, its float model and its quantised reference on data, and sums up.

All run the same inputs; what the bundle gives is compared with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.bundle.tensor_files import read_tensors
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.features import log_mel_of, pixels_of
from mllm_compiler.generation.loop import Ask
from mllm_compiler.quality.data import Data, read_text
from mllm_compiler.quality.features import cosine, neighbour_agreement
from mllm_compiler.quality.overlap import bleu_4, rouge_l
from mllm_compiler.quality.prediction import Predictions
from mllm_compiler.quality.recognition import word_error_rate
from mllm_compiler.quality.sides import Side

Array = NDArray[np.generic]
Values = Mapping[str, Array]
Metrics = dict[str, float]


@dataclass
class Measurement:
    """Three sides of a model on the same inputs.

    Attributes:
        plain: The float model.
        given: The bundle.
        reference: The quantised reference; None where the bundle is one itself, or none is given.
        window: Tokens that a text is cut into.
        piece: Tokens of it that go through the model at a time.
        tokens: The most tokens of texts.
        fidelity: The least cosine of each output of the bundle with the reference.
        seen: The first inputs of each entry.
        nan_values: How many outputs of the bundle are NaN where the float model's are not.
    """

    plain: Side
    given: Side
    reference: Side | None = None
    window: int = 512
    piece: int = 256
    tokens: int = 1536
    fidelity: dict[str, float] = field(default_factory=dict[str, float])
    seen: dict[str, Values] = field(default_factory=dict[str, Values])
    nan_values: int = 0

    def metrics(self, data: Data) -> Metrics:
        """All metrics that the model and the data have between them.

        Raises:
            CompileError: `MLC-U017`, they have none.
        """
        families = (self._texts, self._speech, self._pictures, self._answers, self._tensors)
        found: Metrics = {}
        for family in families:
            found |= family(data)
        if not self.seen:
            entries = ", ".join(self.given.bundle.manifest.entries)
            raise CompileError(
                "MLC-U017",
                f"the data has nothing that its entries take ({entries})",
                location=str(self.given.bundle.path),
                remedy="docs/checking.md says what the data of a check looks like",
            )
        return {"nan_values": float(self.nan_values), **found}

    def run(
        self, entry: str, inputs: Values, *, follows: bool = False
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """What the float model and the bundle give; the bundle is held to the reference too.

        Args:
            entry: The entry.
            inputs: Its inputs; what other entries gave and the past are added.
            follows: Whether the past is that of the run before; else it is empty.
        """
        for side in (self.plain, self.given, self.reference):
            if side is not None and not follows:
                side.past.clear()
        expected, got = self.plain.run(entry, inputs), self.given.run(entry, inputs)
        self.seen.setdefault(entry, inputs)
        self.nan_values += sum(_nan_values(expected[name], got[name]) for name in expected)
        if self.reference is not None:
            oracle = self.reference.run(entry, inputs)
            for name in oracle.keys() & got.keys():
                at = f"{entry}/{name}"
                now = cosine(oracle[name], got[name])
                self.fidelity[at] = float(np.minimum(self.fidelity.get(at, 1.0), now))
        return expected, got

    def _texts(self, data: Data) -> Metrics:
        """Perplexity of texts, in windows without overlap."""
        entry, sums = self.given.entry_of("language-model"), Predictions()
        if entry is None:
            return {}
        for ids in self._windows(data):
            for at in range(0, len(ids), self.piece):
                inputs = self._tokens(entry, ids, at)
                expected, got = self.run(entry, inputs, follows=at > 0)
                targets = ids[at + 1 : at + 1 + self.piece]
                rows = slice(len(targets))
                sums.add(expected["logits"][0, rows], got["logits"][0, rows], targets)
        return sums.metrics()

    def _windows(self, data: Data) -> Iterator[NDArray[np.int64]]:
        left = self.tokens
        for path in data.texts:
            ids = np.array(self.given.ids(read_text(path))[:left], np.int64)
            left -= len(ids)
            pieces = (ids[at : at + self.window] for at in range(0, len(ids), self.window))
            yield from (piece for piece in pieces if len(piece) > 1)

    def _tokens(self, entry: str, ids: NDArray[np.int64], at: int) -> dict[str, Array]:
        """The inputs of a language model for the piece of a window that starts at a token."""
        row, known = ids[None, at : at + self.piece], self.given.inputs_of(entry)
        total = at + row.shape[1]
        inputs: dict[str, Array] = {
            "input_ids": row,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(at, total, dtype=np.int64)[None],
        }
        return {name: array for name, array in inputs.items() if name in known}

    def _speech(self, data: Data) -> Metrics:
        """Word errors, and the likelihood of the transcript where the model is led through it."""
        encoder, decoder = (self.given.entry_of(role) for role in ("encoder", "decoder"))
        settings = self.given.settings
        if encoder is None or decoder is None or settings.audio is None or not data.speech:
            return {}
        sums, references = Predictions(), [read_text(text).strip() for _, text in data.speech]
        for (sound, _), reference in zip(data.speech, references, strict=True):
            features = log_mel_of(sound, settings.audio)
            self.run(encoder, {self.given.inputs_of(encoder)[0]: features})
            words = self.given.ids(f" {reference}")
            ids = np.array([*settings.forced_prompt, *words], np.int64)
            expected, got = self.run(decoder, {"input_ids": ids[None]})
            rows = slice(len(settings.forced_prompt) - 1, -1)
            sums.add(expected["logits"][0, rows], got["logits"][0, rows], np.array(words))
        sounds = [sound for sound, _ in data.speech]
        errors = [
            word_error_rate(references, [side.reply(Ask(audio=sound)) for sound in sounds])
            for side in (self.plain, self.given)
        ]
        wer = {"wer": errors[1], "wer_float": errors[0], "wer_increase": errors[1] - errors[0]}
        return sums.likelihood() | wer

    def _pictures(self, data: Data) -> Metrics:
        """Features of pictures: the mean cosine of all of them, the nearest neighbour by the first.

        An encoder's first row stands for the picture where it gives [1, rows, size].
        """
        encoder, settings = self.given.entry_of("encoder"), self.given.settings.image
        if encoder is None or settings is None or not data.pictures:
            return {}
        name, pairs = self.given.inputs_of(encoder)[0], list[tuple[Array, Array]]()
        for picture in data.pictures:
            expected, got = self.run(encoder, {name: pixels_of(picture, settings)})
            output = next(iter(expected))
            pairs.append((expected[output], got[output]))
        found = {"feature_cosine": float(np.mean([cosine(*pair) for pair in pairs]))}
        if len(pairs) < 3:
            return found
        left, right = (np.stack([_first_row(pair[side]) for pair in pairs]) for side in (0, 1))
        return found | {"neighbours": neighbour_agreement(left, right)}

    def _answers(self, data: Data) -> Metrics:
        """What is said of pictures and to questions, beside what should be said."""
        if self.given.entry_of("language-model") is None:
            return {}
        takes_pictures = self.given.settings.image is not None
        captions = data.captions if takes_pictures else ()
        asks = [(Ask(image=picture), text) for picture, text in captions]
        asks += [(Ask(prompt=read_text(prompt)), text) for prompt, text in data.questions]
        if not asks:
            return {}
        references = [read_text(text).strip() for _, text in asks]
        found: Metrics = {}
        told = [[side.reply(ask) for ask, _ in asks] for side in (self.plain, self.given)]
        for name, score in (("rouge_l", rouge_l), ("bleu_4", bleu_4)):
            before, after = (score(references, answers) for answers in told)
            found |= {name: after, f"{name}_float": before, f"{name}_drop": before - after}
        return found

    def _tensors(self, data: Data) -> Metrics:
        """The mean cosine of all outputs of graphs on tensors."""
        known = self.given.bundle.manifest.entries
        cosines: list[float] = []
        for entry, path in data.tensors:
            if entry in known:
                cosines += self._cosines(entry, path)
        return {"output_cosine": float(np.mean(cosines))} if cosines else {}

    def _cosines(self, entry: str, path: Path) -> list[float]:
        expected, got = self.run(entry, read_tensors(path))
        return [cosine(expected[name], got[name]) for name in expected]


def _first_row(features: Array) -> NDArray[np.float64]:
    rows = features.reshape(-1, features.shape[-1])
    return rows[0].astype(np.float64)


def _nan_values(expected: Array, got: Array) -> int:
    if got.dtype.kind != "f":
        return 0
    return int((np.isnan(got) & ~np.isnan(expected)).sum())
