"""Calls of a device: `negate` of the device `test`, which the C programs register."""

from __future__ import annotations

from collections.abc import Iterator

from tests.runtime.cases import Case, normal


def device_calls() -> Iterator[Case]:
    for shape in ((3, 5), (1,), (2, 0)):
        x = normal(*shape)
        yield Case(f"device-{len(shape)}-{shape[0]}", "device_call", (x,), ("test", "negate"), -x)
