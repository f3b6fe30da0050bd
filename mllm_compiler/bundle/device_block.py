"""`targets/NAME/device.json`: what the artifact for a device needs, and what was placed there.

The C runtime reads it before it opens the device, and refuses another version or chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mllm_compiler.bundle.manifest import ABI, MIN_RUNTIME, Producer, canonical
from mllm_compiler.bundle.writer import Content, content_of_bytes


@dataclass(frozen=True, kw_only=True)
class Sdk:
    """A vendor's library, and the least version that runs the artifact."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """How a graph is divided.

    Attributes:
        calls: The functions that the device runs for it.
        fallback: The operations that the host runs instead, by node, with the reason.
        plan: How much runs where, and what it costs; empty where all of it had to run there.
    """

    calls: tuple[str, ...]
    fallback: Mapping[str, str] = field(default_factory=dict[str, str])
    plan: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True)
class DeviceBlock:
    """What a device must be to run its part of a bundle.

    Attributes:
        sdk: Its library.
        members: The members that it reads.
        graphs: What runs on it, by graph.
        soc: The chips that the artifact is for; empty: any.
    """

    sdk: Sdk
    members: tuple[str, ...]
    graphs: Mapping[str, GraphPlan]
    soc: tuple[str, ...] = ()
    abi: int = ABI
    min_runtime: str = MIN_RUNTIME
    producer: Producer = field(default_factory=Producer)

    def content(self, device: str) -> Content:
        """The member that holds it."""
        return content_of_bytes(f"targets/{device}/device.json", canonical(self))
