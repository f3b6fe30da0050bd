"""How fast a target computes, reads and is called, as its table says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mllm_compiler.hal.cost import Cost

PICOSECONDS = 10**6
"""Of a microsecond."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What work costs on a target; placement weighs processors by it.

    Attributes:
        startup_us: What a call costs before it computes, in microseconds.
        gflop_per_s: Floating-point operations, in 10^9 a second.
        gb_per_s: What ops read and write, in 10^9 bytes a second.
        copy_gb_per_s: What is carried to it and back, in 10^9 bytes a second.
        turns_images: Whether images are turned where they come and go: it has channels last.
        source: Where the figures are from.
    """

    startup_us: float
    gflop_per_s: float
    gb_per_s: float
    copy_gb_per_s: float
    turns_images: bool
    source: str

    @property
    def startup(self) -> int:
        """What a call costs before it computes, in picoseconds."""
        return round(self.startup_us * PICOSECONDS)

    def time(self, cost: Cost) -> int:
        """How long an op computes or reads, whichever is longer, in picoseconds."""
        computes, moves = cost.flops / self.gflop_per_s, cost.bytes / self.gb_per_s
        return round(max(computes, moves) * 1000)

    def carried(self, nbytes: int) -> int:
        """How long bytes are carried, in picoseconds."""
        return round(nbytes / self.copy_gb_per_s * 1000)


def rates_of(table: Mapping[str, Any]) -> Rates:
    """The rates that the section `[cost]` of a table describes."""
    return Rates(
        startup_us=table["startup_us"],
        gflop_per_s=table["gflop_per_s"],
        gb_per_s=table["gb_per_s"],
        copy_gb_per_s=table["copy_gb_per_s"],
        turns_images=table.get("turns_images", False),
        source=table["source"],
    )
