"""Convolution, pooling and patch embedding against loops of NumPy; resizing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tests.runtime.cases import ACTIVATIONS, F32, Case, f32, f64, normal
from tests.runtime.program_writer import Array, pack_panels


@dataclass(frozen=True)
class Window:
    """A moving window over spatial axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def out(self, spatial: Sequence[int]) -> tuple[int, ...]:
        n = len(spatial)
        return tuple(
            (spatial[i] + self.pads[i] + self.pads[n + i] - self.dilations[i] * (self.kernel[i] - 1)
             - 1) // self.strides[i] + 1
            for i in range(n)
        )  # fmt: skip

    def taps(self, x: Array, fill: float) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
        """For each kernel place, what it reads for every output place: [B, C, *out]."""
        n = len(self.kernel)
        around = [(0, 0), (0, 0), *((self.pads[i], self.pads[n + i] + 64) for i in range(n))]
        padded = np.pad(f64(x), around, constant_values=fill)
        out = self.out(x.shape[2:])
        for place in itertools.product(*(range(k) for k in self.kernel)):
            starts = [p * d for p, d in zip(place, self.dilations, strict=True)]
            cut = tuple(
                slice(b, b + s * o, s) for b, s, o in zip(starts, self.strides, out, strict=True)
            )
            yield place, padded[(slice(None), slice(None), *cut)]


CONVS = [
    ((1, 80, 100), 24, 1, Window((3,), (1,), (1, 1), (1,))),
    ((2, 5, 31), 17, 1, Window((3,), (2,), (1, 0), (1,))),
    ((1, 3, 20, 21), 16, 1, Window((4, 4), (4, 4), (0, 0, 0, 0), (1, 1))),
    ((2, 3, 9, 11), 7, 1, Window((3, 2), (2, 1), (1, 0, 2, 1), (1, 2))),
    ((1, 2, 5, 6, 7), 3, 1, Window((2, 3, 2), (1, 2, 1), (0, 1, 1, 0, 1, 0), (1, 1, 2))),
    ((1, 300, 8), 40, 1, Window((3,), (1,), (1, 1), (1,))),
    ((2, 6, 12, 13), 6, 6, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))),
    ((1, 6, 12, 13), 12, 3, Window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))),
    ((1, 4, 9), 8, 4, Window((3,), (1,), (2, 0), (2,))),
    ((0, 3, 9), 4, 1, Window((3,), (1,), (0, 0), (1,))),
]


def conv() -> Iterator[Case]:
    for i, (shape, filters, groups, window) in enumerate(CONVS):
        x = normal(*shape, seed=i)
        w = normal(filters, shape[1] // groups, *window.kernel, seed=i + 1)
        bias = normal(filters, seed=i + 2) if i % 2 else None
        y = np.zeros((shape[0], filters, *window.out(shape[2:])))
        for f in range(filters):
            first = f // (filters // groups) * (shape[1] // groups)
            for place, values in window.taps(x, 0.0):
                channels = values[:, first : first + shape[1] // groups]
                y[:, f] += np.einsum("bc...,c->b...", channels, f64(w[(f, slice(None), *place)]))
            y[:, f] += 0 if bias is None else bias[f]
        packed = pack_panels(w.reshape(filters, -1)) if groups == 1 else w
        moves = (window.kernel, window.strides, window.pads, window.dilations, groups, filters)
        for kind in {0, i % len(ACTIVATIONS)}:
            yield Case(f"conv-{i}-{kind}", "f32_conv", (x, packed, bias), (*moves, kind),
                       f32(ACTIVATIONS[kind](y)), frozenset({1}), atol=3e-5)  # fmt: skip


POOLS = [
    ((1, 3, 20), Window((3,), (2,), (1, 1), (1,))),
    ((2, 3, 8, 9), Window((2, 3), (2, 2), (0, 1, 1, 0), (1, 1))),
    ((1, 2, 5, 6, 7), Window((2, 2, 2), (1, 2, 3), (0,) * 6, (1,) * 3)),
    ((1, 4, 16, 16), Window((2, 2), (2, 2), (0,) * 4, (1, 1))),
]


def pool() -> Iterator[Case]:
    for i, (shape, window) in enumerate(POOLS):
        x = normal(*shape, seed=i)
        largest = np.stack([v for _, v in window.taps(x, -np.inf)]).max(0)
        total = sum(v for _, v in window.taps(x, 0.0))
        count = sum(v for _, v in window.taps(np.ones_like(x), 0.0))
        area = float(np.prod(window.kernel))
        geometry = (window.kernel, window.strides, window.pads)
        yield Case(f"pool-max-{i}", "f32_pool", (x,), (0, *geometry, 0), f32(largest))
        yield Case(f"pool-mean-{i}", "f32_pool", (x,), (1, *geometry, 0), f32(total / count))
        yield Case(f"pool-pads-{i}", "f32_pool", (x,), (1, *geometry, 1), f32(total / area))


def patch_embed() -> Iterator[Case]:
    for batch, channels, height, width, p, n in (
        (1, 3, 28, 42, 14, 24), (2, 3, 9, 10, 4, 17), (1, 1, 4, 4, 1, 3), (0, 3, 8, 8, 4, 16),
        (1, 3, 40, 40, 20, 33),
    ):  # fmt: skip
        pixels, w = normal(batch, channels, height, width), normal(n, channels * p * p, seed=1)
        bias = normal(n, seed=2)
        down, across = height // p, width // p
        cut: F32 = pixels[:, :, : down * p, : across * p]
        patches = cut.reshape(batch, channels, down, p, across, p).transpose(0, 2, 4, 1, 3, 5)
        y = f64(patches.reshape(batch, down * across, channels * p * p)) @ f64(w).T + bias
        yield Case(f"patch-{height}x{width}-{p}", "f32_patch_embed",
                   (pixels, pack_panels(w), bias), (p, n), f32(y), frozenset({1}),
                   atol=5e-5)  # fmt: skip


def resize() -> Iterator[Case]:
    """Against ONNX Runtime."""
    modes = ("nearest", "linear", "cubic")
    places = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    for mode, name in enumerate(modes):
        for coordinates, place in enumerate(places):
            model = resize_model(name, place)
            for axis, size in ((2, 11), (3, 3), (2, 1)):
                x = normal(2, 3, 5, 8, seed=axis)
                sizes = np.array([size if i == axis else n for i, n in enumerate(x.shape)])
                (y,) = model.run(None, {"x": x, "s": sizes})
                yield Case(f"resize-{name}-{place}-{axis}-{size}", "f32_resize", (x,),
                           (axis, mode, coordinates, -0.75, 0.0), f32(y), atol=1e-5)  # fmt: skip


def resize_model(mode: str, place: str) -> onnxruntime.InferenceSession:
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["" : 17]>
        resize (float[a, b, c, d] x, int64[4] s) => (float[e, f, g, h] y) {{
          y = Resize <mode = "{mode}", coordinate_transformation_mode = "{place}"> (x, , , s)
        }}
        """
    )
    return onnxruntime.InferenceSession(model.SerializeToString())


MAKERS = (conv, pool, patch_embed, resize)
