"""Keys and trust: made once, private, one public key a line."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mllm_compiler.bundle.signature import load_key, public_bytes, sign, signs
from mllm_compiler.bundle.trust import (
    add_trust,
    key_file,
    keygen,
    read_trust,
    signing_key,
    trust_file,
)
from mllm_compiler.errors import CompileError


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_the_first_use_makes_a_key_that_is_trusted() -> None:
    assert read_trust() == frozenset()
    key = signing_key()
    assert public_bytes(key).hex() in read_trust()
    assert public_bytes(signing_key()) == public_bytes(key)


def test_the_key_is_readable_by_its_owner_alone() -> None:
    keygen()
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600


def test_a_key_is_never_overwritten() -> None:
    path, public = keygen()
    with pytest.raises(CompileError) as caught:
        keygen()
    assert caught.value.code == "MLC-B012"
    assert public_bytes(load_key(path)) == public


def test_first_uses_at_the_same_time_agree_on_one_key() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(signing_key) for _ in range(8)]
    assert len({public_bytes(key.result()) for key in made}) == 1
    assert {entry.name for entry in key_file().parent.iterdir()} == {"key.pem", "trust"}


def test_keys_that_are_trusted_at_the_same_time_are_all_kept() -> None:
    keys = [bytes([number]) * 32 for number in range(32)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(add_trust, keys))
    assert read_trust() == {key.hex() for key in keys}


def test_trust_keeps_lines_comments_and_order(empty_home: Path) -> None:
    trust_file().parent.mkdir(parents=True)
    trust_file().write_text(f"# colleagues\n{'AB' * 32}  # anna")
    add_trust(bytes(32), "ours")
    add_trust(bytes(32), "twice")
    assert trust_file().read_text() == f"# colleagues\n{'AB' * 32}  # anna\n{'00' * 32}  # ours\n"
    assert read_trust() == {"ab" * 32, "00" * 32}


@pytest.mark.parametrize("line", ["zz" * 32, "ab" * 31, "ab" * 33, "key.pem"])
def test_a_wrong_line_is_located(empty_home: Path, line: str) -> None:
    path = empty_home / "trust"
    path.write_text(f"\n{line}\n")
    with pytest.raises(CompileError) as caught:
        read_trust(path)
    assert str(caught.value).startswith(f"{path}:2: error: not a public key of 64 hexadecimal")


def test_a_named_trust_file_must_exist(empty_home: Path) -> None:
    with pytest.raises(CompileError, match="No such file"):
        read_trust(empty_home / "absent")


@pytest.mark.parametrize("raw", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nAA==\n"])
def test_other_files_are_no_keys(empty_home: Path, raw: bytes) -> None:
    path = empty_home / "key"
    path.write_bytes(raw)
    with pytest.raises(CompileError) as caught:
        load_key(path)
    assert caught.value.code == "MLC-B012"


def test_a_signature_is_bound_to_its_bytes() -> None:
    key = signing_key()
    made = sign(b"manifest", key)
    assert len(made) == 96
    assert signs(made, b"manifest")
    assert not signs(made, b"manifesT")
    assert not signs(made[:-1], b"manifest")
    assert not signs(public_bytes(key) + bytes(64), b"manifest")
