"""The manifest reads back as written and refuses what it does not understand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mllm_compiler.bundle.manifest import (
    Compatibility,
    Manifest,
    MemberRecord,
    WeightRecord,
    canonical,
    parse_manifest,
)
from mllm_compiler.errors import CompileError
from tests.bundle.small_bundle import MANIFEST

FULL = replace(
    MANIFEST,
    members={"config.json": MemberRecord(size=1, crc32="0" * 8, sha256="a", pieces=("b",))},
    weights=(
        WeightRecord(
            name="w",
            digest="sha256:00",
            member="weights/c.bin",
            offset=64,
            size=4,
            dtype="f32",
            shape=(1,),
            layout="plain",
        ),
    ),
)


def changed(**keys: object) -> bytes:
    return canonical({**json.loads(FULL.to_bytes()), **keys})


def code_of(raw: bytes) -> str:
    with pytest.raises(CompileError) as caught:
        parse_manifest(raw, "x.mllm_bundle")
    return caught.value.code


def test_it_reads_back_as_written() -> None:
    assert parse_manifest(FULL.to_bytes(), "x") == FULL


def test_a_newer_format_says_both_versions() -> None:
    with pytest.raises(CompileError) as caught:
        parse_manifest(changed(format=2, unknown=1), "x.mllm_bundle")
    assert caught.value.code == "MLC-B008"
    assert "format 2, this version reads up to 1" in str(caught.value)


@pytest.mark.parametrize(
    "block",
    [Compatibility(abi=2), Compatibility(min_runtime="0.2"), Compatibility(min_runtime="1")],
)
def test_another_runtime_is_refused(block: Compatibility) -> None:
    assert code_of(replace(FULL, compatibility=block).to_bytes()) == "MLC-B009"


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        changed(format=0),
        changed(format=True),
        changed(name=3),
        changed(surprise=1),
        changed(entries=[]),
        changed(plan={"bound": 1}),
        changed(targets=[1]),
        FULL.to_bytes() + b"\n",
        FULL.to_bytes().replace(b'"format":1', b'"format":1.0'),
    ],
)
def test_what_is_not_a_manifest_is_refused(raw: bytes) -> None:
    assert code_of(raw) == "MLC-B013"


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "signature", "manifest.json", "a\\b", ""])
def test_a_member_may_not_leave_the_bundle(name: str) -> None:
    record = FULL.members["config.json"]
    assert code_of(replace(FULL, members={name: record}).to_bytes()) == "MLC-B013"


@pytest.mark.parametrize(
    "record",
    [
        MemberRecord(size=-1, crc32="0" * 8, sha256="", pieces=()),
        MemberRecord(size=1 << 32, crc32="0" * 8, sha256="", pieces=("",) * 4096),
        MemberRecord(size=2, crc32="0" * 8, sha256="", pieces=()),
        MemberRecord(size=1, crc32="0" * 7, sha256="", pieces=("",)),
        MemberRecord(size=1, crc32="GGGGGGGG", sha256="", pieces=("",)),
    ],
)
def test_a_record_must_fit_its_size(record: MemberRecord) -> None:
    manifest: Manifest = replace(FULL, members={"config.json": record})
    assert code_of(manifest.to_bytes()) == "MLC-B013"
