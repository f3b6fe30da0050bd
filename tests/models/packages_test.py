"""Downloads resume, are checked, and fail in one line that says what to do."""

from __future__ import annotations

import hashlib
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from models.recipe import packages
from models.recipe.packages import RecipeError, Wheel, download, fetch_wheel, read_members

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; ends the first `cuts` replies half-way."""

    ranges: list[str | None]
    cuts: int

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        type(self).ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).cuts:
            type(self).cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Handler]]]:
    handler = type("Handler", (_Handler,), {"ranges": [], "cuts": 0})
    service = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{service.server_port}/file", handler
    service.shutdown()
    service.server_close()


def test_a_partial_download_goes_on_where_it_stopped(
    server: tuple[str, type[_Handler]], tmp_path: Path
) -> None:
    url, handler = server
    target = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(url, target, SHA256, "file")
    assert target.read_bytes() == CONTENT
    assert handler.ranges == ["bytes=1000-"]
    assert not (tmp_path / "file.part").exists()


def test_a_connection_that_breaks_is_taken_up_again(
    server: tuple[str, type[_Handler]], tmp_path: Path
) -> None:
    url, handler = server
    handler.cuts = 2
    download(url, tmp_path / "file", SHA256, "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(handler.ranges) == 3


def test_a_complete_part_is_only_checked(
    server: tuple[str, type[_Handler]], tmp_path: Path
) -> None:
    url, _ = server
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(url, tmp_path / "file", SHA256, "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_digest_is_refused_and_nothing_is_left(
    server: tuple[str, type[_Handler]], tmp_path: Path
) -> None:
    url, _ = server
    with pytest.raises(RecipeError, match=r"file has sha256 .* expected 0000") as caught:
        download(url, tmp_path / "file", "0" * 64, "file")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="check the network and run again") as caught:
        download("http://127.0.0.1:9/file", tmp_path / "file", SHA256, "file")
    assert "\n" not in str(caught.value)


def test_a_wheel_is_located_fetched_and_read(
    server: tuple[str, type[_Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    monkeypatch.setenv("MLLM_CACHE", str(tmp_path))
    monkeypatch.setattr(packages, "_locate", lambda package, options: url)
    wheel = Wheel(name="thing", version="1", sha256=SHA256)
    first, second = fetch_wheel(wheel), fetch_wheel(wheel)
    assert first == second
    assert first.parent == tmp_path / "packages"
    assert len(handler.ranges) == 1


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.whl"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data/x", b"x")
    assert read_members(archive, "data/x") == [b"x"]
    with pytest.raises(RecipeError, match=r"a\.whl has no member data/y"):
        read_members(archive, "data/y")


def test_a_source_archive_is_read_as_a_wheel_is(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    source = tmp_path / "a.tar.gz"
    with tarfile.open(source, "w:gz") as file:
        file.add(tmp_path / "x", "a-1/data/x")
    assert read_members(source, "a-1/data/x") == [b"x"]
    with pytest.raises(RecipeError, match=r"a\.tar\.gz has no member a-1/data/y"):
        read_members(source, "a-1/data/y")
