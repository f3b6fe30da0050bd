"""Compiles many mutants of valid models, each a number, in child processes with limits.

    .venv/bin/python tests/fuzz/run.py --mutants 20000
    .venv/bin/python tests/fuzz/run.py --mutants 1000000 --minutes 5
    .venv/bin/python tests/fuzz/run.py --first 4711 --mutants 1     # one again

A finding is a fault of ours, a traceback, a hang, too much memory, a file outside of the output, or
a process that ended; its model and what was said are kept in `build/fuzz/`. Exit status 1 where
there is one.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.cases import ROOT
from tests.fuzz import seeds
from tests.fuzz.attempt import FindingError, Sandbox
from tests.fuzz.mutations import mutant

KEPT = ROOT / "build" / "fuzz"
PROCESSOR_S = 10
"""Seconds of processor time that a model may take: it hangs above."""
WALL_S = 120
"""Seconds on the clock after which a child is ended, whatever it waits for."""
MEMORY = 2 << 30
"""Bytes of memory that a child may have of its own."""
FORK = get_context("fork")


def serve(end: Connection) -> None:
    """Answers each number with an outcome and what is wrong; ends with its parent."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="mllm-fuzz-") as folder:
        os.environ["MLLM_CACHE"] = f"{folder}/tmp"
        os.environ["MLLM_TRACEBACK"] = "1"
        sandbox = Sandbox(Path(folder).resolve())
        while (number := end.recv()) is not None:
            data = mutant(random.Random(number))
            signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
            try:
                answer = sandbox.attempt(data), ""
            except FindingError as found:
                answer = "finding", str(found)
            signal.setitimer(signal.ITIMER_PROF, 0)
            end.send(answer)


@dataclass
class Child:
    """A process that compiles one mutant at a time.

    Attributes:
        end: Our end of its pipe.
        number: The mutant that it compiles.
        begun: When it began.
    """

    number: int = -1
    begun: float = 0.0

    def __post_init__(self) -> None:
        self.end, theirs = FORK.Pipe()
        self.process = FORK.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, number: int | None) -> None:
        """Starts a mutant; without one the process ends."""
        self.number, self.begun = -1 if number is None else number, time.monotonic()
        with suppress(BrokenPipeError):
            self.end.send(number)

    def outcome(self) -> tuple[str, str] | None:
        """The outcome of its mutant, if there is one; also where the process ended or hangs."""
        if time.monotonic() - self.begun > WALL_S:
            self.process.kill()
            self.process.join()
            return "finding", f"no answer in {WALL_S} s"
        if not self.end.poll():
            return None
        try:
            return self.end.recv()
        except EOFError:
            self.process.join()
        status = self.process.exitcode
        if status == -signal.SIGPROF:
            return "finding", f"it takes more than {PROCESSOR_S} s of processor time"
        return "finding", f"the process ended with status {status}"


@dataclass
class Tally:
    """What came of the mutants.

    Attributes:
        outcomes: How many ended how.
        findings: What is wrong, by the number of the mutant.
    """

    outcomes: Counter[str] = field(default_factory=Counter[str])
    findings: dict[int, str] = field(default_factory=dict[int, str])

    def note(self, number: int, outcome: str, text: str) -> None:
        """Counts a mutant; what is wrong is printed and its model kept."""
        self.outcomes[outcome] += 1
        if outcome != "finding":
            return
        self.findings[number] = text
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{number}.onnx").write_bytes(mutant(random.Random(number)))
        (KEPT / f"{number}.txt").write_text(text)
        lines = text.strip().splitlines()
        print(f"mutant {number}: {lines[0][:160]} ... {lines[-1][:160]}", flush=True)


def compile_all(numbers: Iterable[int], children: int, until: float) -> Tally:
    """Compiles the mutants of some numbers, several at a time, until a moment of the clock."""
    tally, working = Tally(), list[Child]()
    given = takewhile(lambda number: time.monotonic() < until, numbers)
    while True:
        for number in islice(given, children - len(working)):
            working.append(Child())
            working[-1].give(number)
        if not working:
            return tally
        wait([child.end for child in working], timeout=1)
        for child in list(working):
            answer = child.outcome()
            if answer is None:
                continue
            tally.note(child.number, *answer)
            number = next(given, None) if child.process.is_alive() else None
            child.give(number)
            if number is None:
                working.remove(child)


def import_all() -> None:
    """Compiles one model, so that the children find all modules imported."""
    with tempfile.TemporaryDirectory() as folder:
        Sandbox(Path(folder).resolve()).attempt(seeds.own()[0])


def main() -> int:
    """Reads the command line, compiles, prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=20_000, help="how many, at most")
    parser.add_argument("--minutes", type=float, default=1e6, help="for how long, at most")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    print(f"{len(seeds.own())} models of ours, {len(seeds.suite())} of ONNX's suite", flush=True)
    import_all()
    start = time.monotonic()
    numbers = range(asked.first, asked.first + asked.mutants)
    tally = compile_all(numbers, asked.children, start + 60 * asked.minutes)
    count, seconds = tally.outcomes.total(), time.monotonic() - start
    told = ", ".join(f"{name} {many}" for name, many in tally.outcomes.most_common())
    print(f"{count} mutants in {seconds:.0f} s, {len(tally.findings)} findings ({told})")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
