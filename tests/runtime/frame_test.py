"""NV12 frames: colours beside NumPy and Pillow, the way into an encoder, and what is no frame."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from mllm_compiler.compiler import Request, compile_model
from runtime_stub import Frame, Model, RuntimeFailure
from runtime_stub.frames import COLOURS
from runtime_stub.library import CData, check, ffi, library, new_error
from tests.bundle.small_bundle import KEY
from tests.cli.recipes import tiny
from tests.runtime.image_test import MEAN, STD, frame_of, prepared
from tests.runtime.internals import Internals
from tests.runtime.library import ROOT

Pixels = NDArray[np.uint8]
WEIGHTS = {"bt601": (0.299, 0.587, 0.114), "bt709": (0.2126, 0.7152, 0.0722)}
"""What red, green and blue count for in luma: ITU-R BT.601-7 and BT.709-6, item 3.2."""


def scales(colours: str) -> tuple[float, float, float]:
    """The luma of black, and the levels that luma and chroma range over."""
    return (0.0, 255.0, 255.0) if colours.endswith("-full") else (16.0, 219.0, 224.0)


def to_rgb(luma: Pixels, chroma: Pixels, colours: str) -> NDArray[np.float64]:
    """RGB as reals, from the equations that define luma and chroma."""
    red, green, blue = WEIGHTS[colours.removesuffix("-full")]
    black, bright, coloured = scales(colours)
    y = (luma.astype(float) - black) / bright
    pairs = chroma.reshape(*chroma.shape[:1], -1, 2).repeat(2, 0).repeat(2, 1)
    cb, cr = ((pairs[..., i].astype(float) - 128) / coloured for i in (0, 1))
    b, r = y + 2 * (1 - blue) * cb, y + 2 * (1 - red) * cr
    g = (y - red * r - blue * b) / green
    return 255 * np.stack([r, g, b], -1)


def to_nv12(rgb: Pixels, colours: str) -> tuple[Pixels, Pixels]:
    """The planes of a picture: chroma is the mean of four pixels."""
    red, green, blue = WEIGHTS[colours.removesuffix("-full")]
    black, bright, coloured = scales(colours)
    r, g, b = (rgb[..., i] / 255 for i in range(3))
    y = red * r + green * g + blue * b
    both = np.stack([(b - y) / (2 - 2 * blue), (r - y) / (2 - 2 * red)], -1)
    height, width = y.shape
    small = both.reshape(height // 2, 2, width // 2, 2, 2).mean((1, 3))
    planes = (black + bright * y, (128 + coloured * small).reshape(height // 2, width))
    first, second = (np.clip(np.rint(p), 0, 255).astype(np.uint8) for p in planes)
    return first, second


def in_c(c: Internals, planes: tuple[Pixels, ...], colours: str) -> CData:
    """The frame for the inner functions."""
    frame = c.ffi.new("mllm_frame *", {"pixels": len(planes) - 1})
    frame.colours = COLOURS.index(colours)
    frame.height, frame.width = planes[0].shape[:2]
    for i, plane in enumerate(planes):
        frame.planes[i] = c.ffi.cast("const uint8_t *", plane.ctypes.data)
        frame.strides[i] = plane.strides[0]
    return frame


def rows(c: Internals, planes: tuple[Pixels, ...], colours: str) -> Pixels:
    """The whole frame as RGB, row by row."""
    frame = in_c(c, planes, colours)
    out = np.empty((frame.height, frame.width, 3), np.uint8)
    for y, row in enumerate(out):
        scratch = c.ffi.cast("uint8_t *", row.ctypes.data)
        assert c.lib.mllm_frame_row(frame, y, scratch) == scratch
    return out


def gapped(plane: Pixels, gap: int) -> Pixels:
    """The same rows with bytes between them that are not of the picture."""
    wide = np.full((plane.shape[0], plane.shape[1] + gap), 99, np.uint8)
    wide[:, : plane.shape[1]] = plane
    return wide[:, : plane.shape[1]]


@pytest.mark.parametrize("colours", COLOURS)
def test_every_colour_is_what_the_standard_says(internals: Internals, colours: str) -> None:
    """All pairs of chroma under luma in steps: within the rounding of NumPy's reals."""
    cb, cr = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    chroma = np.stack([cb, cr], -1).reshape(256, 512)
    for level in (0, 1, 15, 16, 17, 90, 128, 235, 236, 255):
        luma = np.full((512, 512), level, np.uint8)
        want = np.clip(to_rgb(luma, chroma, colours), 0, 255)
        made = rows(internals, (luma, chroma), colours)
        assert np.abs(made - want).max() <= 0.51


def test_pillow_sees_the_same_colours(internals: Internals) -> None:
    """Its YCbCr is BT.601 of full range."""
    rng = np.random.default_rng(0)
    luma = rng.integers(0, 256, (32, 48), dtype=np.uint8)
    chroma = rng.integers(0, 256, (16, 48), dtype=np.uint8)
    pairs = chroma.reshape(16, 24, 2).repeat(2, 0).repeat(2, 1)
    theirs = Image.fromarray(np.concatenate([luma[..., None], pairs], -1), "YCbCr").convert("RGB")
    off = rows(internals, (luma, chroma), "bt601-full").astype(int) - np.asarray(theirs)
    assert np.abs(off).max() <= 1


@pytest.mark.parametrize(("colours", "fit"), [*product(COLOURS, [0, 1])])
def test_a_frame_is_prepared_as_its_rgb_is(internals: Internals, colours: str, fit: int) -> None:
    """NumPy's RGB through the path of RGB: within a level where rounding met a tie; gaps or not."""
    rng = np.random.default_rng(5)
    config = internals.ffi.new("mllm_image_config *", {"width": 32, "height": 28, "fit": fit})
    config.mean, config.std = MEAN, STD
    luma = rng.integers(0, 256, (46, 90), dtype=np.uint8)
    chroma = rng.integers(0, 256, (23, 90), dtype=np.uint8)
    reference = np.rint(np.clip(to_rgb(luma, chroma, colours), 0, 255)).astype(np.uint8)
    want = prepared(internals, frame_of(internals, reference), config)
    made = prepared(internals, in_c(internals, (luma, chroma), colours), config)
    assert np.abs(made - want).max() <= 1.01 / 255 / min(STD)
    gaps = (gapped(luma, 7), gapped(chroma, 38))
    wide = in_c(internals, gaps, colours)
    np.testing.assert_array_equal(prepared(internals, wide, config), made)
    whole = rows(internals, (luma, chroma), colours)
    same = prepared(internals, frame_of(internals, whole), config)
    np.testing.assert_array_equal(same, made)


def refusal(c: Internals, **changes: object) -> str:
    """Why a frame of 4 x 2 is refused after some changes."""
    held = np.zeros(64, np.uint8)
    frame = c.ffi.new("mllm_frame *", {"pixels": 1, "width": 4, "height": 2, "strides": [4, 4]})
    frame.planes[0] = frame.planes[1] = c.ffi.cast("const uint8_t *", held.ctypes.data)
    for name, value in changes.items():
        setattr(frame, name, value)
    error = c.ffi.new("mllm_error *")
    status = c.lib.mllm_frame_check(frame, error)
    assert (status == 0) == (not changes)
    location, message = (c.ffi.string(s).decode() for s in (error.location, error.message))
    return f"{location}: {message}"


def test_what_is_no_frame_is_refused_with_a_line(internals: Internals) -> None:
    c = internals
    held = c.ffi.new("uint8_t[64]")
    assert refusal(c) == ": "
    cases: list[tuple[str, dict[str, object]]] = [
        ("frame: the rows of the frame are longer", {"strides": [3, 4]}),
        ("frame: the rows of the frame are longer", {"strides": [4, 3]}),
        ("frame: the rows of the frame are longer", {"pixels": 0, "strides": [11, 0]}),
        ("frame: a plane of the frame is missing", {"planes": [held, c.ffi.NULL]}),
        ("frame: a plane of the frame is missing", {"planes": [c.ffi.NULL, held]}),
        ("frame: width and height of an NV12 frame are even", {"width": 3}),
        ("frame: width and height of an NV12 frame are even", {"height": 1}),
        ("frame: the frame's colours", {"colours": 4}),
        ("frame: the frame's pixels", {"pixels": 2}),
        ("frame: the stride of the frame", {"strides": [2**64 - 1, 4]}),
        (": the image's size is out of range", {"width": 0}),
        (": the image's size is out of range", {"height": 40000}),
    ]
    for words, changes in cases:
        assert words in refusal(c, **changes)


def scene(height: int, width: int) -> Pixels:
    """A picture with edges and slow changes."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [np.sin(x / 37 + c) * np.cos(y / 43 - c) for c in range(3)]
    picture = 127 + 120 * np.stack(waves, -1)
    picture[height // 3 : height // 2, width // 4 : width // 2] = (230, 40, 60)
    return picture.astype(np.uint8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, trust: Path) -> Iterator[Model]:
    output = tmp_path_factory.mktemp("eyes") / "eyes.mllm_bundle"
    compile_model(Request(model=tiny("tiny-vlm"), output=output, key=KEY))
    with Model.open(output, trust=trust, threads=2) as opened:
        yield opened


def answer(model: Model, image: Pixels | Frame) -> list[int | None]:
    """An answer, for which nothing was copied between stages."""
    found = [piece.token for piece in model.generate(image=image, max_new_tokens=24)]
    assert model.statistics.copied_bytes == 0
    return found


@pytest.mark.parametrize("colours", COLOURS)
def test_an_answer_to_a_frame_is_that_to_its_rgb(
    internals: Internals, model: Model, colours: str
) -> None:
    planes = to_nv12(scene(120, 160), colours)
    gaps = (gapped(planes[0], 32), gapped(planes[1], 96))
    want = answer(model, rows(internals, planes, colours))
    assert answer(model, Frame(planes=gaps, colours=colours)) == want


def test_rows_of_rgb_may_have_gaps(model: Model) -> None:
    picture = scene(60, 80)
    wide = gapped(picture.reshape(60, 240), 16).reshape(60, 80, 3, copy=False)
    assert answer(model, Frame(planes=[wide])) == answer(model, picture)


def test_planes_that_are_no_picture_are_refused(model: Model) -> None:
    luma, chroma = to_nv12(scene(8, 8), "bt601")
    for frame, words in (
        (Frame(planes=[]), "or two planes of rows"),
        (Frame(planes=[luma]), "or two planes of rows"),
        (Frame(planes=[luma[..., None]]), "or two planes of rows"),
        (Frame(planes=[luma, chroma[:3]]), "chroma is not"),
        (Frame(planes=[luma.astype(np.uint16), chroma]), "are uint8"),  # type: ignore[list-item]
        (Frame(planes=[luma[:, ::2], chroma[:, ::2]]), "one behind the other"),
        (Frame(planes=[luma[::-1], chroma]), "one behind the other"),
        (Frame(planes=[luma[:7], chroma[:3]]), "are even"),
        (Frame(planes=[np.broadcast_to(luma[:1], (8, 8)), chroma]), "longer than its stride"),
        (Frame(planes=[luma, chroma], colours="bt2020"), "no colours 'bt2020'"),
    ):
        with pytest.raises(RuntimeFailure, match=words) as caught:
            next(iter(model.generate(image=frame)))
        assert caught.value.code == "MLC-X023"
        assert caught.value.location == "frame"


def test_a_frame_of_another_process_under_sanitizers(tmp_path: Path) -> None:
    """Written into a buffer of a pool by a producer, prepared where it lies by the consumer."""
    program = tmp_path / "frame_test"
    runtime = ROOT / "runtime_stub"
    files = [ROOT / "tests/runtime/c/frame_test.c", *sorted(runtime.glob("pool/*.c"))]
    files += [runtime / "src" / f"{name}.c" for name in ("status", "frame", "image")]
    flags = ("-std=c11", "-g", "-Wall", "-Wextra", "-D_POSIX_C_SOURCE=200809L", "-pthread")
    clean = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    include = [f"-I{runtime / folder}" for folder in ("include", "src")]
    command = ["cc", *flags, *clean, *include, "-o", str(program), *map(str, files), "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


CAMERA = """
import sys
import numpy as np
from runtime_stub.library import check, ffi, library, new_error

socket, error, raw = int(sys.argv[1]), new_error(), np.load(sys.argv[2]).tobytes()
lib, pool, buffer = library(), ffi.new("mllm_pool **"), ffi.new("mllm_buffer *")
options = {"bytes": 1 << 20, "backend": lib.mllm_pool_memfd()}
check(lib.mllm_pool_create(ffi.new("mllm_pool_options *", options), pool, error), error)
names = {"name": ffi.new("char[]", b"frame"), "owner": ffi.new("char[]", b"camera")}
request = ffi.new("mllm_pool_request *", {"bytes": len(raw), "type": 2, **names})
check(lib.mllm_pool_take(pool[0], request, buffer, error), error)
data = ffi.new("void **")
check(lib.mllm_pool_access(pool[0], buffer[0], 0, 2, data, error), error)
ffi.memmove(data[0], raw, len(raw))
check(lib.mllm_pool_access_end(pool[0], buffer[0], 0, 2, error), error)
check(lib.mllm_pool_send(pool[0], buffer[0], socket, error), error)
"""
"""A process with a pool of its own, which leaves a frame there, passes the descriptor and ends."""


def test_a_camera_in_another_process_is_answered_without_a_copy(
    model: Model, tmp_path: Path
) -> None:
    planes = to_nv12(scene(120, 160), "bt709")
    np.save(tmp_path / "frame.npy", np.concatenate(planes))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-c", CAMERA, str(theirs.fileno()), str(tmp_path / "frame.npy")]
    subprocess.run(command, check=True, pass_fds=[theirs.fileno()], timeout=60)
    shared, error = ffi.new("mllm_shared *"), new_error()
    check(library().mllm_shared_receive(ours.fileno(), shared, error), error)
    seen = np.frombuffer(ffi.buffer(shared.data, 180 * 160), np.uint8).reshape(180, 160)
    frame = Frame(planes=[seen[:120], seen[120:]], colours="bt709")
    assert answer(model, frame) == answer(model, Frame(planes=planes, colours="bt709"))
    library().mllm_shared_unmap(shared)
    ours.close()
    theirs.close()
