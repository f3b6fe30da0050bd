"""Runs cases in a child process, so that one that ends the process is told from one that fails."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from tests.conformance.cases import cases
from tests.conformance.runners import CRASHED, RUNNERS, Outcome

LIMIT_S = 60.0
"""A case that takes longer hangs."""


class Worker:
    """A child process that answers for one case at a time; a new one replaces one that died."""

    def __init__(self) -> None:
        self._process: ForkProcess | None = None
        self._end: Connection | None = None

    def run(self, level: str, name: str) -> Outcome:
        """What became of a case at a level."""
        if self._end is None:
            self._start()
        assert self._end is not None
        assert self._process is not None
        self._end.send((level, name))
        try:
            if self._end.poll(LIMIT_S):
                answer: Outcome = self._end.recv()
                return answer
            why = f"no answer in {LIMIT_S:g} s"
        except EOFError:
            self._process.join()
            why = f"the process ended with status {self._process.exitcode}"
        self.close()
        return Outcome(CRASHED, why)

    def close(self) -> None:
        """Ends the child."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._end = None

    def _start(self) -> None:
        cases()  # Loaded before the fork: the child has them too.
        context = multiprocessing.get_context("fork")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()


def _serve(end: Connection) -> None:
    while True:
        level, name = end.recv()
        end.send(RUNNERS[level](cases()[name]))
