"""`mllmc bundle`, as a user calls it: output, one line of error, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mllm_compiler.bundle.signature import to_pem
from mllm_compiler.cli.main import run
from tests.bundle.small_bundle import KEY, write_small

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MLLM_CACHE", str(tmp_path / "cache"))


def last_line(capsys: Captured) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_sign_then_verify_needs_no_flag(tmp_path: Path, capsys: Captured) -> None:
    path = str(write_small(tmp_path / "a.mllm_bundle", signed=False))
    assert run(["bundle", "verify", path]) == 1
    assert "[MLC-B005]" in last_line(capsys)
    assert run(["bundle", "sign", path]) == 0
    assert run(["bundle", "verify", path]) == 0
    assert "intact, signed by" in capsys.readouterr().out


def test_a_bundle_from_elsewhere_is_not_believed(tmp_path: Path, capsys: Captured) -> None:
    path = write_small(tmp_path / "a.mllm_bundle")
    assert run(["bundle", "verify", str(path)]) == 1
    assert "[MLC-B006]" in last_line(capsys)
    assert run(["bundle", "inspect", str(path), "--json"]) == 0
    signer = json.loads(capsys.readouterr().out)["signer"]
    (tmp_path / "trust").write_text(f"{signer}  # a colleague\n")
    assert run(["bundle", "verify", str(path), "--trust", str(tmp_path / "trust")]) == 0


def test_a_signature_by_a_named_key_gives_the_same_bytes(tmp_path: Path) -> None:
    signed = write_small(tmp_path / "a.mllm_bundle")
    (tmp_path / "key.pem").write_bytes(to_pem(KEY))
    unsigned = str(write_small(tmp_path / "b.mllm_bundle", signed=False))
    again = tmp_path / "c.mllm_bundle"
    words = ["bundle", "sign", unsigned, "--key", str(tmp_path / "key.pem"), "-o", str(again)]
    assert run(words) == 0
    assert again.read_bytes() == signed.read_bytes()


def test_a_broken_bundle_is_not_signed(tmp_path: Path, capsys: Captured) -> None:
    path = write_small(tmp_path / "a.mllm_bundle", signed=False)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"programprogram")] ^= 1
    path.write_bytes(raw)
    assert run(["bundle", "sign", str(path)]) == 1
    assert "targets/c/program.bin: bytes 0-62 were changed" in last_line(capsys)


def test_diff_ends_with_status_3_where_bundles_differ(tmp_path: Path, capsys: Captured) -> None:
    left = str(write_small(tmp_path / "a.mllm_bundle"))
    right = str(write_small(tmp_path / "b.mllm_bundle", weight_bytes=301))
    assert run(["bundle", "diff", left, left]) == 0
    assert capsys.readouterr().out == ""
    assert run(["bundle", "diff", left, right]) == 3
    assert "member weights/c.bin: 300 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["bundel"], 2, "mllmc: error: no such command 'bundel' [MLC-U001] (did you mean bundle?)"),
        (["bundle", "verify", "a", "--trsut", "b"], 2, "did you mean --trust?"),
        (["bundle", "verify"], 2, "[MLC-U001]"),
        (["bundle", "verify", "absent"], 1, "absent: error: No such file or directory [MLC-U005]"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], status: int, text: str, capsys: Captured
) -> None:
    assert run(words) == status
    assert text in last_line(capsys)
