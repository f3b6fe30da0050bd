"""The member `signature`: an Ed25519 public key and its signature over the manifest."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from mllm_compiler.bundle.files import reading
from mllm_compiler.errors import CompileError

KEY_BYTES = 32
SIZE = 96
"""Bytes of the member: public key, then signature."""


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The raw public key that belongs to a private key."""
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def sign(manifest: bytes, key: Ed25519PrivateKey) -> bytes:
    """The content of the member `signature`."""
    return public_bytes(key) + key.sign(manifest)


def signs(signature: bytes, manifest: bytes) -> bool:
    """Whether the member's content is a signature over the manifest by the key in it."""
    if len(signature) != SIZE:
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(signature[:KEY_BYTES])
        public.verify(signature[KEY_BYTES:], manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def to_pem(key: Ed25519PrivateKey) -> bytes:
    """The private key in PEM (PKCS 8, without a password)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_key(path: Path) -> Ed25519PrivateKey:
    """The private key of a PEM file.

    Raises:
        CompileError: `MLC-B012`, the file holds no such key; `MLC-U005`, it cannot be read.
    """
    with reading(path):
        raw = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise _no_key(path, "not a private key in PEM without a password") from fault
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "a private key, but not of Ed25519")
    return key


def _no_key(path: Path, message: str) -> CompileError:
    return CompileError(
        "MLC-B012",
        message,
        location=str(path),
        remedy="make one with mllmc bundle keygen",
    )
