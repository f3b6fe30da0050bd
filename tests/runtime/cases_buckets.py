"""An entry of any shape that graphs of static shapes serve, and what NumPy says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.runtime.cases import F32, Case, normal
from tests.runtime.cases_elementwise import words
from tests.runtime.program_writer import Array, Expr, ProgramWriter

SIZES = ((6, 4), (3, 4), (3, 2))
"""Past and new tokens that each graph is made for; the first two take 24 and 12 in all."""

TABLE = (2, len(SIZES), 0, 1, 1, 0, *(n for sizes in SIZES for n in sizes))
"""Two symbols, three graphs; past (symbol 0) is padded before its tokens, new tokens behind."""

REAL = ("past", "new")


def outputs_of(past: F32, new: F32) -> Mapping[str, Array]:
    """What the entry gives; `which` tells the number of the graph that runs."""
    fitting = [
        (p * t, i) for i, (p, t) in enumerate(SIZES) if past.shape[1] <= p and new.shape[1] <= t
    ]
    return {
        "y": np.concatenate([past, new], 1),
        "which": new * np.float32(min(fitting)[1] + 2),
        "total": past.sum(1),
        "real": np.array([past.shape[1]]),
    }


def decoder(
    table: Sequence[int] = TABLE, *, sizes: Sequence[tuple[int, int]] = SIZES, lengths: bool = True
) -> ProgramWriter:
    """main: y = past and new tokens, through the graphs main_0, main_1, ..."""
    writer = ProgramWriter()
    p, t = writer.symbol("p", 6), writer.symbol("t", 4, 1)
    inputs, outputs = ports(writer, p, t)
    writer.entry("main", inputs=inputs, outputs=outputs, buckets=table)
    for number, (past, new) in enumerate(sizes):
        inputs, outputs = ports(writer, Expr(((0, past),), past), Expr(((0, new),), new))
        length = writer.io("length.p" if lengths else "length.q", "i64", [1])
        y, which, total, real = outputs
        writer.stage("concat", inputs, [y], [1])
        scale = words(f"in0 {number + 2}.0 mul")
        writer.stage("f32_elementwise", [inputs[1]], [which], [scale])
        writer.stage("f32_reduce", [inputs[0]], [total], [0, [1]])
        writer.stage("i64_elementwise", [length], [real], [words("in0")])
        writer.entry(f"main_{number}", inputs=[*inputs, length], outputs=outputs)
    return writer


def ports(writer: ProgramWriter, p: Expr, t: Expr) -> tuple[list[int], list[int]]:
    joined = p.upper + t.upper if len(p.words) == len(t.words) == 1 and not p.words[0][0] else p + t
    inputs = [writer.io("in0", "f32", [2, p]), writer.io("in1", "f32", [2, t])]
    outputs = [
        writer.io("y", "f32", [2, joined]),
        writer.io("which", "f32", [2, t]),
        writer.io("total", "f32", [2]),
        writer.io("real", "i64", [1]),
    ]
    return inputs, outputs


@dataclass(frozen=True)
class BucketCase(Case):
    """Runs through the smallest graph that fits."""

    def program(self) -> tuple[bytes, bytes]:
        return decoder().finish()


def buckets() -> Iterator[Case]:
    for past, new in ((0, 1), (3, 2), (2, 3), (3, 4), (5, 1), (6, 4)):
        operands = normal(2, past), normal(2, new)
        y = np.concatenate(operands, 1)
        yield BucketCase(f"buckets-{past}-{new}", "", operands, (), y, rtol=0, atol=0)
