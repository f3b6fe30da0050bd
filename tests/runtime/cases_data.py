"""Data movement and casts against NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from tests.runtime.cases import Case, f32, normal, rng
from tests.runtime.program_writer import Array, pack_panels

DTYPES = ("f4", "f8", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")


def numbers(dtype: str, *shape: int) -> Array:
    values = rng(dtype, shape).integers(0, 100, shape)
    return (values % 2 if dtype == "?" else values).astype(dtype)


def embedding() -> Iterator[Case]:
    table = normal(37, 24)
    for shape in ((5,), (2, 3), (0,), ()):
        ids = rng(shape).integers(0, 37, shape)
        yield Case(f"embedding-{shape}", "f32_embedding", (ids, pack_panels(table)), (), table[ids],
                   frozenset({1}), rtol=0, atol=0)  # fmt: skip


def gather() -> Iterator[Case]:
    for dtype in ("f4", "i8", "?", "f2"):
        x = numbers(dtype, 4, 5, 6)
        for axis in range(3):
            for shape in ((), (3,), (2, 2), (0,)):
                indices = rng(axis, shape).integers(-4, 4, shape)
                y = np.take(x, indices, axis)
                yield exact(f"gather-{dtype}-{axis}-{shape}", "gather", (x, indices), (axis,), y)


def exact(
    name: str, kernel: str, operands: tuple[Array, ...], params: tuple[object, ...], y: Array
) -> Case:
    return Case(name, kernel, operands, params, np.asarray(y, order="C"), rtol=0, atol=0)  # type: ignore[arg-type]


def top_k() -> Iterator[Case]:
    x = normal(3, 7, 5)
    x[0, :3, 0], x[1, 4, 2] = 1.5, np.nan
    for kind in ("f4", "i8"):
        values = x if kind == "f4" else numbers(kind, 3, 7, 5) % 4
        for axis, smallest, k in ((0, 0, 1), (1, 1, 3), (1, 0, 7), (2, 0, 2)):
            order = np.argsort(values if smallest else -values, axis, kind="stable")
            best = np.take(order, range(k), axis)
            for by_index, places in ((0, best), (1, np.sort(best, axis))):
                name, params = f"top-k-{kind}-{axis}-{k}-{by_index}", (axis, smallest, by_index)
                found = np.take_along_axis(values, places, axis)
                yield exact(f"{name}-values", "top_k", (values,), (*params, 0), found)
                yield exact(f"{name}-indices", "top_k", (values,), (*params, 1), places)


def transpose() -> Iterator[Case]:
    for dtype in ("f4", "i8", "u1", "f2"):
        for shape, perm in (
            ((3,), (0,)), ((5, 40), (1, 0)), ((2, 3, 17), (2, 0, 1)), ((2, 19, 3, 8), (0, 2, 1, 3)),
            ((2, 3, 4, 5), (3, 2, 1, 0)), ((33, 1, 70), (2, 1, 0)), ((2, 0, 3), (1, 0, 2)),
        ):  # fmt: skip
            x = numbers(dtype, *shape)
            yield exact(f"transpose-{dtype}-{perm}-{shape}", "transpose", (x,), (perm,),
                        x.transpose(perm))  # fmt: skip


def cut() -> Iterator[Case]:
    x = numbers("i4", 6, 7, 8)
    for i, places in enumerate((
        (slice(1, 4), slice(None), slice(None)), (slice(None), slice(None), slice(0, 7, 3)),
        (slice(None, None, -1), slice(2, 3), slice(5, 0, -2)), (slice(0, 0), slice(None), slice(1)),
    )):  # fmt: skip
        bounds = [p.indices(n) for p, n in zip(places, x.shape, strict=True)]
        starts, steps = [b[0] for b in bounds], [b[2] for b in bounds]
        yield exact(f"slice-{i}", "slice", (x,), (starts, steps), x[places])


def concat() -> Iterator[Case]:
    for axis in range(3):
        parts = [numbers("i2", *(n if i == axis else 3 for i in range(3))) for n in (2, 0, 5)]
        yield exact(f"concat-{axis}", "concat", tuple(parts), (axis,), np.concatenate(parts, axis))


def broadcast() -> Iterator[Case]:
    for dtype in ("f4", "?"):
        for shape, to in (((1,), (7,)), ((3, 1), (2, 3, 5)), ((), (2, 2)), ((2, 1, 4), (2, 6, 4))):
            x = numbers(dtype, *shape)
            yield exact(f"broadcast-{dtype}-{shape}", "broadcast", (x,), (), np.broadcast_to(x, to))


def copy() -> Iterator[Case]:
    x = numbers("i8", 3, 5)
    yield exact("copy", "copy", (x,), (), x)


def pad() -> Iterator[Case]:
    x = normal(2, 3, 4)
    wide = np.pad(x, ((1, 0), (2, 3), (0, 1)), constant_values=1.5)
    yield exact("pad-float", "pad", (x,), ([1, 2, 0], 1.5), wide)
    yield exact("pad-bits", "pad", (x,), ([1, 2, 0], 0x3FC00000), wide)
    integers = numbers("i8", 5)
    yield exact("pad-crop", "pad", (integers,), ([-2], 7), np.append(integers[2:], [7, 7]))


def cast() -> Iterator[Case]:
    for source in DTYPES:
        for target in DTYPES:
            x = numbers(source, 37)
            yield exact(f"cast-{source}-{target}", "cast", (x,), (), x.astype(target))
    halves = np.concatenate([
        np.arange(0, 1 << 16, 7, dtype=np.uint16).view(np.float16),
        np.float16([0.0, -0.0, 65504, np.inf, -np.inf]),
    ])  # fmt: skip
    halves = halves[~np.isnan(halves)]
    yield exact("cast-every-half", "cast", (halves,), (), f32(halves))
    singles = f32(normal(3000).astype(np.float64) * 10.0 ** rng("e").integers(-9, 6, 3000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield exact("cast-to-half", "cast", (singles,), (), singles.astype(np.float16))
    signed = np.float32([-2.7, 2.7, -0.4, 1e6])
    yield exact("cast-towards-zero", "cast", (signed,), (), signed.astype(np.int64))


def iota() -> Iterator[Case]:
    yield Case("iota", "iota", (), (5, -2), np.arange(5, -7, -2), rtol=0, atol=0)
    yield Case("iota-empty", "iota", (), (5, 1), np.zeros(0, np.int64), rtol=0, atol=0)


MAKERS = (embedding, gather, top_k, transpose, cut, concat, broadcast, copy, pad, cast, iota)
