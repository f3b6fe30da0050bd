"""A bundle of ours, measured as its peers are: `python ours.py BUNDLE`; see with_llama_cpp.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from runtime_stub import Model

STEPS, THREADS = 64, 2
WORDS = "Tell me a long story about a compiler. " * 25
"""About 256 tokens."""


def main() -> None:
    """Answers until its input ends."""
    with Model.open(Path(sys.argv[1]), allow_unsigned=True, threads=THREADS) as model:
        for _ in sys.stdin:
            for _ in model.generate(WORDS, max_new_tokens=STEPS):
                continue
            found = model.statistics
            speeds = found.prompt_tokens_per_second, found.decode_tokens_per_second
            sys.stdout.write(f"{speeds[0]} {speeds[1]}\n")
            sys.stdout.flush()


main()
