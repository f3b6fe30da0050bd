"""A model that is measured: a bundle of either target, its entries run by name.

Outputs that other entries read are kept and given to them; a cache without tokens is added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mllm_compiler.backends.runner import Runner
from mllm_compiler.bundle.config import TOKENIZER
from mllm_compiler.bundle.verify import Bundle, Policy, open_bundle
from mllm_compiler.generation.loop import Ask, generate
from mllm_compiler.generation.model import NumpyModel, open_model
from mllm_compiler.generation.settings import Settings, read_settings
from mllm_compiler.sessions.session import Access, Session

Array = NDArray[np.generic]
Values = Mapping[str, Array]


@dataclass
class Side:
    """A bundle that runs.

    Attributes:
        bundle: The open bundle.
        settings: How text, pixels and sound go in.
        execute: Runs an entry on tensors.
        reply: Answers what a user asks.
        runner: The module itself, where the target is `numpy`.
        shared: Outputs that are inputs of other entries, by entry and name of the input.
        past: The caches after the last run, by entry and name of the input.
    """

    bundle: Bundle
    settings: Settings
    execute: Callable[[str, Values], dict[str, Array]]
    reply: Callable[[Ask], str]
    runner: Runner | None = None
    shared: dict[tuple[str, str], Array] = field(default_factory=dict[tuple[str, str], Array])
    past: dict[tuple[str, str], Array] = field(default_factory=dict[tuple[str, str], Array])

    def entry_of(self, role: str) -> str | None:
        """The entry that has a role."""
        entries = self.bundle.manifest.entries
        return next((name for name, entry in entries.items() if entry.role == role), None)

    def inputs_of(self, entry: str) -> tuple[str, ...]:
        """The names of what an entry takes."""
        return tuple(tensor.name for tensor in self.bundle.manifest.entries[entry].inputs)

    def completed(self, entry: str, inputs: Values) -> dict[str, Array]:
        """Inputs with what other entries gave, and with the past, which may have no tokens."""
        kept = {**self.shared, **self.past}
        given = {name: array for (to, name), array in kept.items() if to == entry}
        found = {**given, **inputs}
        for name in self.inputs_of(entry):
            if name not in found and self.runner is not None:
                empty = self.runner.empty_past(entry, name)
                found |= {} if empty is None else {name: empty}
        return found

    def run(self, entry: str, inputs: Values) -> dict[str, Array]:
        """The outputs of an entry by name."""
        outputs = self.execute(entry, self.completed(entry, inputs))
        for consumer, name, producer, output in self._edges:
            if producer == entry:
                self.shared[consumer, name] = outputs[output]
        self.past |= {(entry, name): array for name, array in self._present(entry, outputs)}
        return outputs

    def _present(self, entry: str, outputs: Values) -> Iterator[tuple[str, Array]]:
        """What a cache holds after a run, by the names of the inputs that take it."""
        names = self._pipeline.get("caches", {}).get(entry)
        for layer in count() if names else ():
            for kind in ("key", "value"):
                out = names["out"].format(layer=layer, kind=kind)
                if out not in outputs:
                    return
                yield names[kind].format(layer=layer), outputs[out]

    def ids(self, text: str) -> list[int]:
        """The tokens of a text; none is put before or behind it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_str(bytes(self.bundle.member(TOKENIZER)).decode())

    @property
    def _edges(self) -> Sequence[Sequence[str]]:
        return self._pipeline.get("edges", [])

    @cached_property
    def _pipeline(self) -> dict[str, Any]:
        config = cast("dict[str, Any]", json.loads(bytes(self.bundle.member("config.json"))))
        return config.get("pipeline", {})


@contextmanager
def opened(path: Path, policy: Policy, trust: Path | None = None) -> Generator[Side]:
    """A bundle, loaded by the runtime of its target.

    Raises:
        CompileError: It is refused, or its runtime is not installed.
    """
    bundle = open_bundle(path, policy)
    settings = read_settings(bytes(bundle.member("config.json")))
    if "numpy" in bundle.manifest.targets:
        model = open_model(bundle)
        yield Side(bundle, settings, model.runner.run, partial(_generated, model), model.runner)
        return
    from mllm_compiler.sessions.on_c import opened as opened_c

    access = Access(trust=trust, allow_unsigned=policy.allow_unsigned)
    with opened_c(bundle, access) as session:
        yield Side(bundle, settings, session.model.run, partial(_answered, session))


def _generated(model: NumpyModel, ask: Ask) -> str:
    return generate(model, ask, lambda piece: None).text


def _answered(session: Session, ask: Ask) -> str:
    return str(session.answer(ask, lambda piece: None)["text"])
