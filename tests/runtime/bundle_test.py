"""The runtime refuses what the compiler's verifier refuses, in the same words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mllm_compiler.bundle import layout
from mllm_compiler.bundle.manifest import FORMAT, Compatibility, Manifest
from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.bundle.writer import write_bundle
from mllm_compiler.errors import CompileError
from runtime_stub.failure import RuntimeFailure
from runtime_stub.library import check, ffi, library, new_error
from tests.bundle.small_bundle import KEY, MANIFEST, TRUSTED, contents, write_small

ALLOW_UNSIGNED, ALREADY_VERIFIED = 1, 2
Verdict = tuple[str, str, str] | None


def open_in_c(path: Path, trust: Path | None, flags: int = 0) -> None:
    """Opens and closes a bundle."""
    lib, error, bundle = library(), new_error(), ffi.new("mllm_bundle **")
    keys, count = ffi.new("mllm_key[]", 8), ffi.new("size_t *")
    if trust is not None:
        check(lib.mllm_trust_read(str(trust).encode(), keys, 8, count, error), error)
    options = ffi.new("mllm_bundle_options *", {"flags": flags, "threads": 1})
    options.trusted, options.n_trusted = keys, count[0]
    check(lib.mllm_bundle_open(str(path).encode(), options, bundle, error), error)
    lib.mllm_bundle_close(bundle[0])


def verdict_of_c(path: Path, trust: Path | None, flags: int = 0) -> Verdict:
    try:
        open_in_c(path, trust, flags)
    except RuntimeFailure as failure:
        return failure.code, failure.message, failure.remedy
    return None


def verdict_of_python(path: Path, policy: Policy = TRUSTED) -> Verdict:
    try:
        open_bundle(path, policy).verify()
    except CompileError as error:
        return error.code, error.message, error.remedy
    return None


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_small(tmp_path_factory.mktemp("small") / "small.mllm_bundle").read_bytes()


def both(path: Path, trust: Path, changed: bytes) -> tuple[Verdict, Verdict]:
    path.write_bytes(changed)
    return verdict_of_c(path, trust), verdict_of_python(path)


def positions(raw: bytes) -> Iterator[int]:
    """Every byte that says something, and a few of each stretch of padding."""
    rng = random.Random(1)
    yield from (at for at, byte in enumerate(raw) if byte != 0 or rng.random() < 0.01)


def test_a_flipped_bit_anywhere_is_refused_in_the_same_words(
    tmp_path: Path, trust: Path, raw: bytes
) -> None:
    rng, seen = random.Random(2), Counter[str]()
    for at in positions(raw):
        changed = bytearray(raw)
        changed[at] ^= 1 << rng.randrange(8)
        ours, python = both(tmp_path / "flipped", trust, bytes(changed))
        assert ours is not None, at
        assert ours == python, at
        seen[ours[0]] += 1
    assert set(seen) == {"MLC-B001", "MLC-B004", "MLC-B007"}


def test_a_file_cut_anywhere_is_refused_in_the_same_words(
    tmp_path: Path, trust: Path, raw: bytes
) -> None:
    for size in [*range(0, 300, 7), *range(300, len(raw), 211), *range(len(raw) - 99, len(raw))]:
        ours, python = both(tmp_path / "cut", trust, raw[:size])
        assert ours is not None, size
        assert ours == python, size


def test_bytes_behind_the_end_are_refused(tmp_path: Path, trust: Path, raw: bytes) -> None:
    ours, python = both(tmp_path / "longer", trust, raw + b"xy")
    assert ours == python
    assert ours is not None
    assert ours[1] == "2 bytes follow the end record"


def rewritten(path: Path, change: Callable[[list[layout.Member], list[bytes]], None]) -> bytes:
    """The bundle with other members, in the one right layout, under the old manifest."""
    bundle = open_bundle(path, TRUSTED)
    view = memoryview(path.read_bytes())
    members = [place.member for place in bundle.placed]
    datas = [bytes(view[place.data : place.end]) for place in bundle.placed]
    change(members, datas)
    placed = layout.place(members)
    out = bytearray(layout.total_size(placed))
    for region in layout.regions(placed):
        out[region.offset : region.offset + len(region.content)] = region.content
    for place, data in zip(placed, datas, strict=True):
        out[place.data : place.end] = data
    return bytes(out)


def removed(members: list[layout.Member], datas: list[bytes]) -> None:
    del members[3], datas[3]


def added(members: list[layout.Member], datas: list[bytes]) -> None:
    members.append(layout.Member("zz.txt", 3, 0x352441C2))
    datas.append(b"abc")


def unsigned(members: list[layout.Member], datas: list[bytes]) -> None:
    del members[1], datas[1]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (removed, "MLC-B002", "member 'targets/c/program.bin' is missing"),
        (added, "MLC-B003", "member 'zz.txt' is not in the manifest"),
        (unsigned, "MLC-B005", "the bundle is not signed"),
    ],
)
def test_a_member_that_is_gone_or_new_is_named(
    tmp_path: Path,
    trust: Path,
    change: Callable[[list[layout.Member], list[bytes]], None],
    code: str,
    words: str,
) -> None:
    path = write_small(tmp_path / "small")
    ours, python = both(path, trust, rewritten(path, change))
    assert ours == python
    assert ours is not None
    assert ours[:2] == (code, words)


def write_with(path: Path, manifest: Manifest) -> Path:
    write_bundle(path, manifest, contents(), key=KEY)
    return path


def test_other_formats_and_runtimes(tmp_path: Path, trust: Path) -> None:
    changes = [
        ({"format": FORMAT + 1}, "MLC-B008"),
        ({"compatibility": Compatibility(abi=2)}, "MLC-B009"),
        ({"compatibility": Compatibility(min_runtime="0.1.1")}, "MLC-B009"),
        ({"compatibility": Compatibility(min_runtime="9")}, "MLC-B009"),
    ]
    for change, code in changes:
        manifest = Manifest(**{**vars(MANIFEST), **change})  # type: ignore[arg-type]
        path = write_with(tmp_path / "other", manifest)
        ours, python = verdict_of_c(path, trust), verdict_of_python(path)
        assert ours == python
        assert ours is not None
        assert ours[0] == code


def test_trust(tmp_path: Path, trust: Path) -> None:
    signed = write_small(tmp_path / "signed")
    bare = write_small(tmp_path / "bare", signed=False)
    stranger = tmp_path / "stranger"
    stranger.write_text("00" * 32 + "\n")
    assert verdict_of_c(signed, trust) is None
    assert verdict_of_c(signed, stranger) == verdict_of_python(signed, Policy(trust=frozenset()))
    assert verdict_of_c(signed, stranger, ALLOW_UNSIGNED) is None
    assert verdict_of_c(bare, trust) == verdict_of_python(bare)
    assert verdict_of_c(bare, None, ALLOW_UNSIGNED) is None


def test_a_changed_bundle_is_refused_even_where_no_signature_is_wanted(
    tmp_path: Path, trust: Path
) -> None:
    path = write_small(tmp_path / "bare", signed=False)
    raw = bytearray(path.read_bytes())
    for at in positions(bytes(raw)):
        changed = bytearray(raw)
        changed[at] ^= 4
        path.write_bytes(changed)
        assert verdict_of_c(path, None, ALLOW_UNSIGNED) is not None, at


def test_a_piece_in_the_middle_is_named(tmp_path: Path, trust: Path) -> None:
    path = write_small(tmp_path / "large", weight_bytes=(5 << 20) + 77)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") - 77 - (2 << 20) - 5] ^= 1
    raw[raw.index(b"PK\x01\x02") - 3] ^= 1
    ours, python = both(path, trust, bytes(raw))
    assert ours == python
    assert ours is not None
    assert ours[1] == "weights/c.bin: bytes 2097152-3145727 were changed"


def test_who_has_verified_already_pays_no_digests(tmp_path: Path, trust: Path) -> None:
    path = write_small(tmp_path / "small")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") - 3] ^= 1
    path.write_bytes(raw)
    assert verdict_of_c(path, trust) is not None
    assert verdict_of_c(path, None, ALREADY_VERIFIED) is None


@pytest.mark.parametrize("line", ["abc", "0" * 63, "g" * 64, "00" * 33])
def test_a_trust_file_with_another_line_is_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trust"
    path.write_text(f"# ours\n{'ab' * 32} # one\n\n{line}\n")
    with pytest.raises(RuntimeFailure, match="64 hexadecimal digits") as caught:
        open_in_c(tmp_path / "any", path)
    assert caught.value.code == "MLC-B012"
    assert caught.value.location.endswith("trust:4") or len(str(path)) > 120


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="No such file") as caught:
        open_in_c(tmp_path / "absent", None)
    assert caught.value.code == "MLC-U005"
