"""A bundle is deterministic, a real zip, and any change to it is refused by name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from mllm_compiler.bundle import layout
from mllm_compiler.bundle.manifest import member_order
from mllm_compiler.bundle.verify import LOOK, Bundle, Policy, open_bundle, open_view
from mllm_compiler.bundle.writer import content_of_bytes, write_bundle
from mllm_compiler.errors import CompileError
from tests.bundle.small_bundle import KEY, MANIFEST, TRUSTED, contents, write_small

PATH = Path("small.mllm_bundle")


def verify(raw: bytes, policy: Policy = TRUSTED) -> Bundle:
    bundle = open_view(memoryview(raw), PATH, policy)
    bundle.verify()
    return bundle


def refusal(raw: bytes, policy: Policy = TRUSTED) -> CompileError:
    with pytest.raises(CompileError) as caught:
        verify(raw, policy)
    return caught.value


def regions_of(bundle: Bundle) -> list[tuple[int, int, str]]:
    """Start, end and name of every region and member of a sound bundle."""
    found = [
        (region.offset, region.offset + len(region.content), region.name)
        for region in layout.regions(list(bundle.placed))
    ]
    for place in bundle.placed:
        name = place.member.name
        found.append((place.data, place.end, name))
    return sorted(entry for entry in found if entry[0] < entry[1])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_small(tmp_path_factory.mktemp("bundle") / "small.mllm_bundle").read_bytes()


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("bundle")
    return write_small(folder / "small.mllm_bundle", signed=False).read_bytes()


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, small: bytes) -> None:
    write_bundle(tmp_path / "again", MANIFEST, list(reversed(contents())), key=KEY)
    assert (tmp_path / "again").read_bytes() == small


def test_members_are_aligned_and_in_order(small: bytes) -> None:
    bundle = verify(small)
    assert [place.member.name for place in bundle.placed] == [
        "manifest.json",
        "signature",
        *member_order([content.name for content in contents()]),
    ]
    assert all(place.data % 4096 == 0 for place in bundle.placed)
    assert bundle.placed[0].header == 0
    assert bundle.placed[0].data == 4096


def test_every_byte_belongs_to_one_region(small: bytes) -> None:
    at = 0
    for start, end, _ in regions_of(verify(small)):
        assert start == at
        at = end
    assert at == len(small)


def test_any_zip_tool_reads_it(tmp_path: Path) -> None:
    path = write_small(tmp_path / "small.mllm_bundle", weight_bytes=3_000_000)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("config.json") == b"{}"
        assert len(archive.read("weights/c.bin")) == 3_000_000
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_one_flipped_bit_anywhere_names_its_region(small: bytes, stride: int) -> None:
    regions = regions_of(verify(small))
    raw = bytearray(small)
    for start, end, name in regions:
        for at in range(start, end, stride if name.startswith("padding") else 1):
            raw[at] ^= 1 << (at % 8)
            error = refusal(bytes(raw))
            raw[at] ^= 1 << (at % 8)
            assert name in error.message, (at, str(error))
    assert bytes(raw) == small


def test_a_flipped_bit_of_an_unsigned_bundle_is_refused_too(unsigned: bytes) -> None:
    policy = Policy(allow_unsigned=True)
    assert verify(unsigned, policy).signer is None
    raw = bytearray(unsigned)
    for at in range(0, len(raw), 7):
        raw[at] ^= 1 << (at % 8)
        assert refusal(bytes(raw), policy).code in {"MLC-B001", "MLC-B002", "MLC-B004"}
        raw[at] ^= 1 << (at % 8)


def test_the_changed_piece_of_a_large_member_is_named(tmp_path: Path) -> None:
    path = write_small(tmp_path / "large.mllm_bundle", weight_bytes=2_500_000)
    raw = bytearray(path.read_bytes())
    place = verify(bytes(raw)).placed[-1]
    raw[place.data + 1_048_576] ^= 1
    assert "weights/c.bin: bytes 1048576-2097151 were changed" in str(refusal(bytes(raw)))
    raw[place.data + 1_048_576] ^= 1
    raw[place.end - 1] ^= 128
    assert "weights/c.bin: bytes 2097152-2499999 were changed" in str(refusal(bytes(raw)))


@pytest.mark.parametrize("name", [content.name for content in contents()])
def test_a_removed_member_is_named(tmp_path: Path, small: bytes, name: str) -> None:
    error = refusal(rebuilt(small, tmp_path, drop=name))
    assert (error.code, name in error.message) == ("MLC-B002", True)


def test_an_added_member_is_named(tmp_path: Path, small: bytes) -> None:
    error = refusal(rebuilt(small, tmp_path, add="text/extra.txt"))
    assert (error.code, "text/extra.txt" in error.message) == ("MLC-B003", True)
    error = refusal(rebuilt(small, tmp_path, add="zz"))
    assert (error.code, "'zz'" in error.message) == ("MLC-B003", True)


def test_a_member_that_stands_twice_is_refused(tmp_path: Path, small: bytes) -> None:
    assert refusal(rebuilt(small, tmp_path, twice="config.json")).code == "MLC-B003"


def test_reordered_members_are_refused(tmp_path: Path, small: bytes) -> None:
    error = refusal(rebuilt(small, tmp_path, reverse=True))
    assert error.code == "MLC-B001"
    assert "local header of member 'config.json'" in error.message


def test_a_removed_signature_is_no_signature(small: bytes, unsigned: bytes) -> None:
    assert refusal(unsigned).code == "MLC-B005"
    assert refusal(unsigned, Policy(trust=frozenset())).code == "MLC-B005"
    assert verify(small, LOOK).signer is not None


def test_an_untrusted_key_is_refused_by_its_name(small: bytes) -> None:
    error = refusal(small, Policy(trust=frozenset({"00" * 32})))
    assert error.code == "MLC-B006"
    assert verify(small).signer in str(error)
    assert verify(small, Policy(allow_unsigned=True)).signer in str(error)


def test_a_truncated_file_is_refused_wherever_it_ends(small: bytes) -> None:
    """Where nothing is left behind the manifest that says `signature`, it is not signed."""
    header = small.index(b"signature") - 30
    bare = range(header, header + 30 + len("signature"))
    for size in [*range(0, len(small), 97), *bare, *range(len(small) - 200, len(small))]:
        error = refusal(small[:size])
        codes = {"MLC-B005"} if size in bare else {"MLC-B001", "MLC-B004"}
        assert error.code in codes, (size, str(error))
    assert "the file ends inside member 'weights/c.bin'" in str(
        refusal(small[: verify(small).placed[-1].data + 10])
    )


def test_inserted_and_appended_bytes_are_refused(small: bytes) -> None:
    assert "1 bytes follow the end record" in str(refusal(small + b"x"))
    for at in range(0, len(small), 211):
        error = refusal(small[:at] + b"\0" + small[at:])
        assert error.code in {"MLC-B001", "MLC-B004", "MLC-B005", "MLC-B007"}


def test_other_files_are_no_bundles(tmp_path: Path) -> None:
    for raw in (b"", b"PK", b"\x08\x07" * 5000, b"\0" * 9000):
        path = tmp_path / "file"
        path.write_bytes(raw)
        with pytest.raises(CompileError, match="not a bundle") as caught:
            open_bundle(path, TRUSTED)
        assert caught.value.code == "MLC-B001"
    with pytest.raises(CompileError, match="No such file"):
        open_bundle(tmp_path / "absent", TRUSTED)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = content_of_bytes("weights/c.bin", b"four")
    short = type(broken)("weights/c.bin", 5, broken.chunks)
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(ValueError, match="gave 4 bytes, not 5"):
        write_bundle(tmp_path / "out", MANIFEST, [short], key=None)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"
    with pytest.raises(CompileError) as caught:
        write_bundle(tmp_path / "no" / "folder", MANIFEST, [broken], key=None)
    assert caught.value.code == "MLC-U005"


def rebuilt(
    raw: bytes,
    folder: Path,
    *,
    drop: str = "",
    add: str = "",
    twice: str = "",
    reverse: bool = False,
) -> bytes:
    """The same manifest and signature around other members, in a well-formed layout."""
    bundle = verify(raw)
    items = [(place.member, raw[place.data : place.end]) for place in bundle.placed]
    items = [item for item in items if item[0].name != drop]
    if add:
        extra = (layout.Member(add, 3, 0x352441C2), b"abc")
        items = [*items[:2], *sorted([*items[2:], extra], key=lambda item: item[0].name.encode())]
    items += [item for item in items if item[0].name == twice]
    if reverse:
        items = items[:2] + items[2:][::-1]
    placed = layout.place([member for member, _ in items])
    out = bytearray(layout.total_size(placed))
    for region in layout.regions(placed):
        out[region.offset : region.offset + len(region.content)] = region.content
    for place, (_, data) in zip(placed, items, strict=True):
        out[place.data : place.end] = data
    (folder / "rebuilt.zip").write_bytes(out)
    with zipfile.ZipFile(folder / "rebuilt.zip") as archive:
        assert archive.testzip() is None
    return bytes(out)
