"""What differs between two bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from mllm_compiler.bundle.manifest import Manifest, WeightRecord
from mllm_compiler.bundle.typed_json import Json, encode
from mllm_compiler.bundle.verify import Bundle

SEPARATE = ("members", "weights", "plan.buffers", "plan.graphs")
"""Keys of the manifest that are compared by name, not by value, and what the programs say too."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same.

    Attributes:
        kind: `manifest`, `member`, `weight` or `signature`.
        name: Which key, member or weight.
        left: What the first bundle has, empty where it has none.
        right: What the second bundle has, empty where it has none.
    """

    kind: str
    name: str
    left: str
    right: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.kind} {self.name}: {self.left or 'absent'} -> {self.right or 'absent'}"


def differences(left: Bundle, right: Bundle) -> list[Difference]:
    """Differences by signer, manifest key, member and weight, in that order."""
    found = [*_signers(left, right), *_keys(left.manifest, right.manifest)]
    found += _members(left.manifest, right.manifest)
    found += _weights(left.manifest, right.manifest)
    return found


def _signers(left: Bundle, right: Bundle) -> Iterator[Difference]:
    if left.signer != right.signer:
        yield Difference("signature", "key", left.signer or "", right.signer or "")


def _keys(left: Manifest, right: Manifest) -> Iterator[Difference]:
    ours, theirs = dict(_leaves(encode(left))), dict(_leaves(encode(right)))
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key) and not key.startswith(SEPARATE):
            yield Difference("manifest", key, ours.get(key, ""), theirs.get(key, ""))


def _members(left: Manifest, right: Manifest) -> Iterator[Difference]:
    for name in sorted(left.members.keys() | right.members.keys()):
        ours, theirs = left.members.get(name), right.members.get(name)
        if ours != theirs:
            texts = [f"{m.size} bytes, sha256 {m.sha256[:12]}" if m else "" for m in (ours, theirs)]
            yield Difference("member", name, *texts)


def _weights(left: Manifest, right: Manifest) -> Iterator[Difference]:
    ours = {(weight.member, weight.name): weight for weight in left.weights}
    theirs = {(weight.member, weight.name): weight for weight in right.weights}
    for key in sorted(ours.keys() | theirs.keys()):
        texts = [_content(found) if found else "" for found in (ours.get(key), theirs.get(key))]
        if texts[0] != texts[1]:
            yield Difference("weight", ":".join(key), *texts)


def _content(weight: WeightRecord) -> str:
    """What a weight is, without where it lies."""
    shape = "x".join(str(dim) for dim in weight.shape)
    digest = weight.digest.removeprefix("sha256:")[:12]
    return f"{weight.dtype}[{shape}] {weight.layout} {digest}"


def _leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Json]", value).items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path, str(value)
