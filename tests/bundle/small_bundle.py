"""A small bundle for tests: every kind of member, a weight of more than one piece on request."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mllm_compiler.bundle.manifest import EntryRecord, Manifest, PlanRecord, TensorRecord
from mllm_compiler.bundle.signature import public_bytes
from mllm_compiler.bundle.verify import Policy
from mllm_compiler.bundle.writer import Content, content_of_bytes, write_bundle

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TRUSTED = Policy(trust=frozenset({public_bytes(KEY).hex()}))

MANIFEST = Manifest(
    name="tiny",
    targets=("c",),
    entries={
        "decoder": EntryRecord(
            role="language-model",
            inputs=(TensorRecord(name="input_ids", dtype="i64", shape=("batch_size", 4)),),
            outputs=(TensorRecord(name="logits", dtype="f32", shape=("batch_size", 4, 256)),),
        )
    },
    plan=PlanRecord(bound=1000, plan=1024, gap=0.024),
)


def contents(weight_bytes: int = 300) -> list[Content]:
    """Members in an order that is not the file's."""
    pattern = bytes(range(251))
    weights = (pattern * (weight_bytes // len(pattern) + 1))[:weight_bytes]
    return [
        content_of_bytes("weights/c.bin", weights),
        content_of_bytes("targets/c/program.bin", b"program" * 9),
        content_of_bytes("text/tokenizer.json", b'{"model":{}}'),
        content_of_bytes("config.json", b"{}"),
        content_of_bytes("text/empty", b""),
    ]


def write_small(path: Path, *, weight_bytes: int = 300, signed: bool = True) -> Path:
    """Writes it, signed by `KEY`."""
    write_bundle(path, MANIFEST, contents(weight_bytes), key=KEY if signed else None)
    return path
