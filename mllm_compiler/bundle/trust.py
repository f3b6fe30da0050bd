"""Whose bundles are believed: the user's own key and the trust file."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mllm_compiler.bundle.files import atomic_output, file_error, locked, reading
from mllm_compiler.bundle.signature import KEY_BYTES, load_key, public_bytes, to_pem
from mllm_compiler.errors import CompileError


def configuration_folder() -> Path:
    """`$XDG_CONFIG_HOME/mllm-compiler`, else `~/.config/mllm-compiler`."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return root / "mllm-compiler"


def key_file() -> Path:
    """The user's own private key."""
    return configuration_folder() / "key.pem"


def trust_file() -> Path:
    """The user's list of public keys that are believed."""
    return configuration_folder() / "trust"


def read_trust(path: Path | None = None) -> frozenset[str]:
    """The public keys, in hexadecimal, of a trust file; of the user's where none is given.

    The user's own file may be absent; a file that is named must exist.

    Raises:
        CompileError: `MLC-B012`, a line is not a public key; `MLC-U005`, it cannot be read.
    """
    chosen = path or trust_file()
    if path is None and not chosen.exists():
        return frozenset()
    with reading(chosen):
        text = chosen.read_text(encoding="utf-8", errors="replace")
    keys: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip().lower()
        if not word:
            continue
        if not _is_key(word):
            raise CompileError(
                "MLC-B012",
                f"not a public key of {2 * KEY_BYTES} hexadecimal digits",
                location=f"{chosen}:{number}",
                remedy="one key a line",
            )
        keys.add(word)
    return frozenset(keys)


def add_trust(public: bytes, comment: str = "") -> Path:
    """Adds a public key to the user's trust file; the answer is that file."""
    path, word = trust_file(), public.hex()
    _make_folder(path.parent)
    with locked(path.parent):
        if word in read_trust():
            return path
        old = path.read_bytes() if path.exists() else b""
        gap = b"\n" if old and not old.endswith(b"\n") else b""
        note = f"  # {comment}" if comment else ""
        with atomic_output(path) as out:
            out.write(old + gap + f"{word}{note}\n".encode())
    return path


def keygen(path: Path | None = None) -> tuple[Path, bytes]:
    """Makes a private key, readable by its owner alone, and trusts its public key.

    Raises:
        CompileError: `MLC-B012`, the file exists already.
    """
    chosen = path or key_file()
    key = Ed25519PrivateKey.generate()
    _make_folder(chosen.parent)
    partial = chosen.with_name(f".{chosen.name}.{secrets.token_hex(4)}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(to_pem(key))
        os.link(partial, chosen)  # whole or not at all, and never over another key
    except FileExistsError as fault:
        raise CompileError(
            "MLC-B012",
            "the file exists and would be overwritten",
            location=str(chosen),
            remedy="choose another file with --key",
        ) from fault
    except OSError as fault:
        raise file_error(fault, chosen) from fault
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    public = public_bytes(key)
    add_trust(public, "made by mllmc bundle keygen")
    return chosen, public


def signing_key(path: Path | None = None) -> Ed25519PrivateKey:
    """The key to sign with: of the file given, else the user's own, made on first use."""
    if path is None and not key_file().exists():
        _make_own_key()
    return load_key(path or key_file())


def _make_own_key() -> None:
    try:
        keygen()
    except CompileError:
        if not key_file().exists():
            raise  # else another process was first: its key is as good


def _is_key(word: str) -> bool:
    return len(word) == 2 * KEY_BYTES and all(digit in "0123456789abcdef" for digit in word)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        raise file_error(fault, folder) from fault
