"""Every case of the standard's suite on the C runtime: it passes or is refused by a code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.expectations import check, parameters
from tests.conformance.runners import REFUSED
from tests.conformance.worker import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A child process that a crash of the runtime may take down."""
    made = Worker()
    yield made
    made.close()


@pytest.mark.parametrize("name", parameters())
def test_case(name: str, worker: Worker) -> None:
    check("c", name, worker.run("c", name), allowed=(REFUSED,))
