"""From ONNX to captions, with the commands that a user would type: `make demo`.

Compiles `meeting-vlm` into a signed bundle, draws two frames that training never saw (a photo is
shared in the second), lets the bundle describe them and prints the truth beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent
DEMO = ROOT / "demo"
BUNDLE = DEMO / "meeting-vlm.mllm_bundle"
SEEDS = (1_000_000, 1_000_005)
"""Held-out frames: a chart is shared in the first, a photo in the second."""


class Answer(TypedDict):
    """What `mllmc run --json` prints, as far as it is shown here."""

    text: str
    tokens_per_second: float
    peak_memory_bytes: int


class CommandError(Exception):
    """A command failed; it has said why on stderr."""


def command(words: Sequence[str | Path], *, quiet: bool = False) -> str:
    """Show a command, run it and return what it prints; its stderr goes to ours."""
    shown = [str(word).removeprefix(f"{TOOLS}/").removeprefix(f"{ROOT}/") for word in words]
    if not quiet:
        say(f"$ {' '.join(shown)}")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise CommandError(f"{shown[0]} ended with status {done.returncode}")
    return done.stdout


def say(line: str = "") -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def caption(mllmc: Path, seed: int) -> Answer:
    """Draw a frame, let the bundle describe it and print both captions."""
    picture = DEMO / f"frame-{seed}.png"
    frames = ROOT / "models" / "meeting-vlm" / "frames.py"
    truth = command([sys.executable, frames, "--seed", str(seed), "--out", picture], quiet=True)
    printed = command(
        [mllmc, "run", BUNDLE, "--image", picture, "--max-new-tokens", "48", "--json"]
    )
    answer = cast(Answer, json.loads(printed))
    said, true = answer["text"].strip(), truth.strip()
    say(f"  the model says  {said}")
    say(f"  the truth is    {true}")
    say(f"  {right(said, true)} of {len(true.split(','))} facts right")
    say()
    return answer


def right(said: str, true: str) -> int:
    """How many phrases of the truth were said, each in its place."""
    pairs = zip(said.rstrip(".").split(","), true.rstrip(".").split(","), strict=False)
    return sum(a.strip() == b.strip() for a, b in pairs)


def main() -> int:
    """Run the demo."""
    start = time.monotonic()
    mllmc = TOOLS / "mllmc"
    DEMO.mkdir(exist_ok=True)
    try:
        told = command([mllmc, "compile", "meeting-vlm", "--target", "c", "-o", BUNDLE])
        for line in told.splitlines():
            if line.startswith(("lifted:", "memory:", "bundle:")):
                say(f"  {line.replace(f'{ROOT}/', '')}")
        verified = command([mllmc, "bundle", "verify", BUNDLE]).strip()
        say(f"  {verified.replace(f'{ROOT}/', '')}")
        say()
        answers = [caption(mllmc, seed) for seed in SEEDS]
    except CommandError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    speed = min(answer["tokens_per_second"] for answer in answers)
    peak = max(answer["peak_memory_bytes"] for answer in answers)
    say(f"tokens/s     {speed:.1f}")
    say(f"peak memory  {peak / (1 << 20):.0f} MiB")
    say(f"bundle       {BUNDLE.relative_to(ROOT)} ({BUNDLE.stat().st_size / (1 << 20):.0f} MiB)")
    say(f"all of it    {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
