"""Frames of a camera: pixels in whatever memory, which the runtime reads where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from runtime_stub.failure import RuntimeFailure
from runtime_stub.library import CData, failure, ffi, library

COLOURS: Final[Sequence[str]] = ("bt601", "bt601-full", "bt709", "bt709-full")
"""What luma and chroma are: the matrix, and luma from 16 to 235 or, `full`, from 0 to 255."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A picture as a camera leaves it; rows may have gaps between them.

    Attributes:
        planes: uint8 [height, width, 3]; or NV12: luma, [height, width], and blue and red chroma in
            turn, [height / 2, width].
        colours: One of `COLOURS`, for NV12.
    """

    planes: Sequence[npt.NDArray[np.uint8]]
    colours: str = "bt601"

    def in_c(self) -> CData:
        """The frame as the runtime takes it, which reads the planes in place.

        Raises:
            RuntimeFailure: MLC-X023, the planes are not those of a picture.
        """
        rank = 3 if len(self.planes) == 1 else 2
        if len(self.planes) not in (1, 2) or any(p.ndim != rank for p in self.planes):
            raise _refused("a frame is [height, width, 3], or two planes of rows")
        if any(p.dtype != np.uint8 for p in self.planes):
            raise _refused("the planes of a frame are uint8")
        if self.colours not in COLOURS:
            raise _refused(f"no colours '{self.colours}': {', '.join(COLOURS)}")
        height, width = self.planes[0].shape[:2]
        if self.planes[0].shape[2:] not in ((), (3,)):
            raise _refused("a frame is [height, width, 3], or two planes of rows")
        if self.planes[1:] and self.planes[1].shape != (height // 2, width):
            raise _refused("chroma is not [height / 2, width]")
        if any(_row(p) not in (None, p.strides[1:]) or p.strides[0] < 0 for p in self.planes):
            raise _refused("the bytes of a row do not lie one behind the other")
        made = ffi.new("mllm_frame *")
        made.pixels = library().MLLM_NV12 if self.planes[1:] else library().MLLM_RGB8
        made.colours = COLOURS.index(self.colours)
        made.height, made.width = height, width
        for i, plane in enumerate(self.planes):
            made.planes[i] = ffi.cast("const uint8_t *", plane.ctypes.data)
            made.strides[i] = plane.strides[0]
        return made


def _row(plane: npt.NDArray[np.uint8]) -> tuple[int, ...] | None:
    """The strides of a row whose bytes lie one behind the other; None: it has no bytes."""
    if plane.size == 0:
        return None
    return (3, 1) if plane.ndim == 3 else (1,)


def _refused(why: str) -> RuntimeFailure:
    return failure("MLC-X023", why, location="frame")
