"""Signs a bundle that exists: the same members around a new signature."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mllm_compiler.bundle.signature import public_bytes
from mllm_compiler.bundle.verify import LOOK, Bundle, open_bundle
from mllm_compiler.bundle.writer import Content, write_bundle


def sign_bundle(source: Path, destination: Path, key: Ed25519PrivateKey) -> str:
    """Writes `source`, checked first, with a signature by `key`; the answer is its public key.

    The two paths may be the same.

    Raises:
        CompileError: The source is not intact, or the destination cannot be written.
    """
    bundle = open_bundle(source, LOOK)
    bundle.verify()
    contents = [_content(bundle, name) for name in bundle.names()]
    write_bundle(destination, bundle.manifest, contents, key=key)
    return public_bytes(key).hex()


def _content(bundle: Bundle, name: str) -> Content:
    return Content(name, bundle.manifest.members[name].size, lambda: [bundle.member(name)])
