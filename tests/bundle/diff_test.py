"""A difference is told by the name of what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mllm_compiler.bundle.diff import differences
from mllm_compiler.bundle.inspect import lines, summary
from mllm_compiler.bundle.manifest import Manifest, WeightRecord
from mllm_compiler.bundle.verify import LOOK, Bundle, open_bundle
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from tests.bundle.small_bundle import KEY, MANIFEST, contents, write_small

WEIGHT = WeightRecord(
    name="head",
    digest="sha256:" + "1" * 64,
    member="weights/c.bin",
    offset=0,
    size=4,
    dtype="f32",
    shape=(1,),
    layout="plain",
)


def written(path: Path, manifest: Manifest, extra: bytes = b"") -> Bundle:
    more = [content_of_bytes("text/more", extra)] if extra else []
    write_bundle(path, manifest, [*contents(), *more], key=KEY)
    return open_bundle(path, LOOK)


def test_equal_bundles_do_not_differ(tmp_path: Path) -> None:
    bundle = written(tmp_path / "a", MANIFEST)
    assert differences(bundle, bundle) == []


def test_each_kind_of_difference_is_named(tmp_path: Path) -> None:
    left = written(tmp_path / "a", replace(MANIFEST, weights=(WEIGHT,)))
    other = replace(WEIGHT, digest="sha256:" + "2" * 64)
    right = written(tmp_path / "b", replace(MANIFEST, name="other", weights=(other,)), b"more")
    assert [(found.kind, found.name) for found in differences(left, right)] == [
        ("manifest", "name"),
        ("member", "text/more"),
        ("weight", "weights/c.bin:head"),
    ]
    unsigned = open_bundle(write_small(tmp_path / "c", signed=False), LOOK)
    assert [found.kind for found in differences(unsigned, written(tmp_path / "d", MANIFEST))] == [
        "signature"
    ]


def test_a_weight_that_only_moved_does_not_differ(tmp_path: Path) -> None:
    left = written(tmp_path / "a", replace(MANIFEST, weights=(WEIGHT,)))
    right = written(tmp_path / "b", replace(MANIFEST, weights=(replace(WEIGHT, offset=64),)))
    assert differences(left, right) == []


def test_inspect_tells_signer_entries_and_members(tmp_path: Path) -> None:
    bundle = written(tmp_path / "a", replace(MANIFEST, weights=(WEIGHT,)))
    facts = summary(bundle)
    assert facts["signer"] == bundle.signer
    assert facts["members"]["config.json"] == 2
    assert facts["entries"]["decoder"]["inputs"] == {"input_ids": "i64[batch_size, 4]"}
    text = "\n".join(lines(bundle))
    assert f"signed by   {bundle.signer}" in text
    assert "entry       decoder (language-model)" in text


def test_inspect_tells_how_many_bytes_weights_of_a_type_take(tmp_path: Path) -> None:
    codes = replace(WEIGHT, name="codes", dtype="ui4", shape=(16, 8), size=64, offset=64)
    bundle = written(tmp_path / "a", replace(MANIFEST, weights=(WEIGHT, codes)))
    weights = {"count": 2, "bytes": 68, "types": {"ui4": 64, "f32": 4}}
    assert summary(bundle)["weights"] == weights
    assert lines(bundle)[-2:] == ["  ui4       64 bytes", "  f32       4 bytes"]
