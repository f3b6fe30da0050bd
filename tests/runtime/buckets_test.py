"""An entry with buckets in C: which graph runs, where elements stand in it, and bad tables."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from tests.runtime.cases import normal
from tests.runtime.cases_buckets import SIZES, TABLE, decoder, outputs_of
from tests.runtime.library import Model, RunError, Session
from tests.runtime.program_writer import Array, ProgramWriter


def session_of(writer: ProgramWriter) -> Session:
    return Session(Model(*writer.finish()), threads=1)


def test_every_length_is_what_numpy_says() -> None:
    """By the smallest graph that fits; one session, so that no run sees the last one's padding."""
    session = session_of(decoder())
    for past, new in [*product(range(7), range(1, 5)), (0, 1)]:
        inputs: dict[str, Array] = {"in0": normal(2, past), "in1": normal(2, new)}
        expected = outputs_of(normal(2, past), normal(2, new))
        found = session.run(inputs, list(expected))
        for (name, want), got in zip(expected.items(), found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=f"{name} {past}")


def test_outputs_that_nobody_asks_for_need_no_memory() -> None:
    (total,) = session_of(decoder()).run({"in0": normal(2, 5), "in1": normal(2, 1)}, ["total"])
    np.testing.assert_allclose(total, normal(2, 5).sum(1), rtol=1e-6)


def test_a_graph_still_runs_under_its_own_name() -> None:
    inputs: dict[str, Array] = {"in0": normal(2, 3), "in1": normal(2, 2)}
    session = session_of(decoder())
    names = list(outputs_of(normal(2, 3), normal(2, 2)))
    results = session.run({**inputs, "length.p": np.array([3])}, names, "main_2")
    np.testing.assert_array_equal(results[names.index("which")], 4 * normal(2, 2))


@pytest.mark.parametrize(
    ("past", "new", "code", "words"),
    [
        (0, 5, "MLC-X005", "input 'in1': t = 5 exceeds the compiled bound 4"),
        (0, 0, "MLC-X005", "input 'in1': t = 0 is below the compiled bound 1"),
        (7, 1, "MLC-X005", "input 'in0': p = 7 exceeds the compiled bound 6"),
    ],
)
def test_what_no_bucket_takes_is_named(past: int, new: int, code: str, words: str) -> None:
    session = session_of(decoder())
    with pytest.raises(RunError) as caught:
        session.run({"in0": normal(2, past), "in1": normal(2, new)})
    assert (caught.value.code, caught.value.location) == (code, "main")
    assert words in str(caught.value)
    (y,) = session.run({"in0": normal(2, 0), "in1": normal(2, 1)})
    np.testing.assert_array_equal(y, normal(2, 1))


def test_sizes_below_the_bounds_are_told_when_a_run_needs_more() -> None:
    table = (2, 2, 0, 1, 1, 0, 6, 2, 3, 4)
    session = session_of(decoder(table, sizes=((6, 2), (3, 4))))
    session.run({"in0": normal(2, 6), "in1": normal(2, 2)})
    with pytest.raises(RunError, match=r"larger than every bucket \[MLC-X005\]"):
        session.run({"in0": normal(2, 6), "in1": normal(2, 3)})


@pytest.mark.parametrize(
    "inputs",
    [
        {"in0": normal(2, 1)},
        {"in0": normal(2, 1), "in1": normal(2, 1), "x": normal(1)},
        {"in0": normal(2, 1), "in1": normal(3, 1)},
        {"in0": normal(2, 1), "in1": normal(2, 1).astype(np.float64)},
        {"in0": normal(2, 1), "in1": normal(1)},
    ],
)
def test_inputs_are_checked_as_those_of_any_entry(inputs: dict[str, Array]) -> None:
    with pytest.raises(RunError) as caught:
        session_of(decoder()).run(inputs)
    assert (caught.value.code, caught.value.location) == ("MLC-X001", "main")


HUGE = 1 << 40


@pytest.mark.parametrize(
    "table",
    [
        (2,),
        (0, len(SIZES), *TABLE[2:]),
        (65, len(SIZES), *TABLE[2:]),
        (-1, len(SIZES), *TABLE[2:]),
        (2, 0, *TABLE[2:]),
        (2, 4, *TABLE[2:], 1, 1),
        (2, HUGE, *TABLE[2:]),
        (2, 3, 2, 1, 1, 0, *TABLE[6:]),
        (2, 3, -1, 1, 1, 0, *TABLE[6:]),
        (2, 3, 0, 2, 1, 0, *TABLE[6:]),
        (*TABLE[:6], HUGE, HUGE, *TABLE[8:]),
        (*TABLE[:6], -1, 4, *TABLE[8:]),
    ],
)
def test_a_bad_table_is_refused_at_load(table: Sequence[int]) -> None:
    refused(decoder(table))


def test_graphs_that_do_not_take_what_the_entry_takes_are_refused_at_load() -> None:
    refused(decoder(lengths=False))
    for other in ("in0", "past"):
        for dims in ([2, 3], [6], [2, HUGE]):
            if (other, dims) != ("in0", [2, 3]):
                refused(one_graph(other, dims))
    Model(*one_graph("in0", [2, 3]).finish())


def one_graph(name: str, dims: Sequence[int]) -> ProgramWriter:
    """main: takes in0 [2, p]; its graph takes another tensor, perhaps."""
    writer = ProgramWriter()
    x = writer.io("in0", "f32", [2, writer.symbol("p", 6)])
    writer.entry("main", inputs=[x], outputs=[], buckets=(1, 1, 0, 0, 3))
    size = 4 * int(np.prod(dims)) if max(dims) < HUGE else 8
    given = writer.tensor(name, "f32", dims, 2, 0xFFFFFFFFFFFFFFFF, size)
    writer.entry("main_0", inputs=[given], outputs=[])
    return writer


def refused(writer: ProgramWriter) -> None:
    with pytest.raises(RunError, match="malformed program: buckets of entry 0") as caught:
        Model(*writer.finish())
    assert caught.value.code == "MLC-X002"


def test_a_table_whose_sizes_are_not_those_of_the_graph_reads_nothing_else() -> None:
    """The sizes say that 6 fit, the graph has room for 3: refused before anything is copied."""
    session = session_of(decoder((2, 1, 0, 1, 1, 0, 6, 4), sizes=((3, 2),)))
    with pytest.raises(RunError, match="does not fit the graph of its bucket"):
        session.run({"in0": normal(2, 6), "in1": normal(2, 4)})


@pytest.mark.parametrize("field", [2, 4, 6])
def test_a_graph_out_of_range_is_refused_before_its_ports_are_read(field: int) -> None:
    """Stages, inputs or outputs of the entry behind a table begin outside of the file."""
    program, weights = decoder().finish()
    (entries,) = struct.unpack_from("<I", program, 12 + 8 * 10)
    changed = bytearray(program)
    struct.pack_into("<I", changed, entries + 40 + 4 * field, 0x7FFFFFF0)
    with pytest.raises(RunError, match="malformed program: entry 1"):
        Model(bytes(changed), weights)
