"""`mllmc run`: a bundle answers, or runs one graph on tensors."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllm_compiler.cli.console import write_json
from mllm_compiler.cli.faults import say

if TYPE_CHECKING:
    from mllm_compiler.sessions.session import Facts

PATH = click.Path(path_type=Path)
WHERE = "mllmc run"
LOOKUP = "lookup"
"""What --speculate takes in the place of a bundle."""
MOST = (1 << 32) - 1
"""The largest number that the runtime counts to."""


class Finite(click.FloatRange):
    """A number in a range; NaN is in none, though it is neither above nor below."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number that the user typed."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


@click.command(name="run")
@click.argument("bundle", type=PATH)
@click.option("--prompt", help="What to ask.  [default: the bundle's own prompt]")
@click.option("--system", help="A system prompt.")
@click.option("--image", type=PATH, help="A picture.")
@click.option("--audio", type=PATH, help="A WAV file.")
@click.option("--max-new-tokens", type=click.IntRange(1, MOST), help="The longest answer.")
@click.option("--temperature", type=Finite(0, 100), default=0.0, help="0 is greedy.")
@click.option("--top-p", type=Finite(0, 1, min_open=True), default=1.0)
@click.option("--seed", type=click.IntRange(0, (1 << 64) - 1), default=0)
@click.option(
    "--speculate",
    metavar="lookup|DRAFT",
    help="Guess tokens and verify several in one run: looked up in the conversation, or by DRAFT, "
    "a bundle with the same tokenizer.",
)
@click.option("--drafts", type=click.IntRange(1, 16), default=4, help="Tokens that are guessed.")
@click.option(
    "--window",
    type=click.IntRange(1, MOST),
    help="Tokens that the cache keeps at most: older ones are forgotten, but for the first 256, "
    "and the answer goes on.",
)
@click.option("--inputs", type=PATH, help="Tensors in, by name: IN.npz.")
@click.option("--outputs", type=PATH, help="Tensors out, by name: OUT.npz.")
@click.option("--entry", help="The graph to run on tensors.")
@click.option("--trust", type=PATH, help="Believe the keys of this file.")
@click.option("--allow-unsigned", is_flag=True, help="Accept a bundle that nobody trusted signed.")
@click.option("--threads", type=click.IntRange(0, MOST), default=0, help="0: one per core.")
@click.option("--stats", is_flag=True, help="Print speed and memory on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run_command(
    bundle: Path,
    prompt: str | None,
    system: str | None,
    image: Path | None,
    audio: Path | None,
    max_new_tokens: int | None,
    temperature: float,
    top_p: float,
    seed: int,
    speculate: str | None,
    drafts: int,
    window: int | None,
    inputs: Path | None,
    outputs: Path | None,
    entry: str | None,
    trust: Path | None,
    allow_unsigned: bool,
    threads: int,
    stats: bool,
    as_json: bool,
) -> None:
    """Run a bundle: text, image and sound, or tensors."""
    from mllm_compiler.bundle.trust import read_trust
    from mllm_compiler.bundle.verify import Policy, open_bundle
    from mllm_compiler.sessions.session import Access, Ask, session_of

    tensors = inputs is not None or outputs is not None or entry is not None
    _check(tensors, inputs, outputs, [prompt, system, image, audio])
    opened = open_bundle(bundle, Policy(trust=read_trust(trust), allow_unsigned=allow_unsigned))
    access = Access(trust=trust, allow_unsigned=allow_unsigned, threads=threads)
    with session_of(opened, access) as session:
        if inputs is not None and outputs is not None:
            facts = session.run_tensors(inputs, outputs, entry)
            _finish(facts, as_json, False)
            return
        ask = Ask(
            prompt=_text(prompt),
            system=_text(system),
            image=image,
            audio=audio,
            max_new_tokens=max_new_tokens or 0,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            drafts=0 if speculate is None else drafts,
            draft=None if speculate in (None, LOOKUP) else Path(speculate),
            window=window or 0,
        )
        facts = session.answer(ask, _silent if as_json else _stream)
        if not as_json:
            _stream("\n")
        _finish(facts, as_json, stats)


def _check(tensors: bool, inputs: Path | None, outputs: Path | None, words: list[object]) -> None:
    from mllm_compiler.errors import CompileError

    if tensors and any(word is not None for word in words):
        text = "--inputs, --outputs and --entry exclude --prompt, --system, --image and --audio"
        remedy = "give tensors or text"
        raise CompileError("MLC-U007", text, location=WHERE, remedy=remedy)
    if tensors and (inputs is None or outputs is None):
        text = "tensors need both --inputs and --outputs"
        raise CompileError("MLC-U007", text, location=WHERE, remedy="give both files")


def _text(words: str | None) -> str | None:
    """Words of the command line; bytes that are no UTF-8 become U+FFFD."""
    return None if words is None else os.fsencode(words).decode("utf-8", "replace")


def _stream(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _silent(text: str) -> None:
    return


def _finish(facts: Facts, as_json: bool, stats: bool) -> None:
    if as_json:
        write_json(facts)
    elif stats:
        for name, value in facts.items():
            if name not in ("text", "tokens"):
                say(f"{name.replace('_', ' ')}: {value}")
