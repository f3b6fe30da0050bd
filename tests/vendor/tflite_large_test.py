"""A `.tflite` above 2 GiB: constants behind offsets of 32 bits are found, and mapped.

LiteRT's interpreter reads rows of a table of 2.1 GiB and a weight behind it; what it must give is
NumPy's on the few rows that are no holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32, i8, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from mllm_compiler.backends.tflite.emit import TfliteArtifact, emit
from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, PipelineOp, WeightOp
from mllm_compiler.passes.graphs import named
from mllm_compiler.weights import WeightStore

pytestmark = [pytest.mark.vendor, pytest.mark.slow]
ROWS, WIDTH, WANTED = 135_000_000, 16, (7, 134_999_999)
RNG = np.random.default_rng(8)
TABLE = RNG.integers(-99, 99, (2, WIDTH)).astype(np.int8)
WEIGHT = RNG.standard_normal((8, WIDTH)).astype(np.float32)


def graph(store: WeightStore, file: Path) -> ModuleOp:
    """y = x of the table's rows times the weight."""
    digest = store.add_mapped(file, 0, ROWS * WIDTH)
    table = WeightOp(BlobAttr.of(digest, i8, (ROWS, WIDTH)), "table")
    weight = WeightOp(BlobAttr.of(store.add(WEIGHT), f32, WEIGHT.shape), "weight")
    ids = tensor_of(i32, (2,))
    block = Block(arg_types=[ids])
    rows = tfl.GatherOp.call(
        [table.result, block.args[0]], tensor_of(i8, (2, WIDTH)), axis=0, batch_dims=0
    )
    reals = tfl.CastOp.call([rows.y], tensor_of(f32, (2, WIDTH)))
    y = tfl.FullyConnectedOp.call([reals.y, weight.result, None], tensor_of(f32, (2, 8)))
    block.add_ops([table, weight, rows, reals, y, ReturnOp(y.y)])
    made = FuncOp("f", ([ids], [y.y.type]), Region(block))
    made.properties["arg_attrs"], made.properties["res_attrs"] = named(["ids"]), named(["y"])
    return ModuleOp([made, PipelineOp("pipeline", edges=[], caches=[], bounds=[])])


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """The table as a sparse file: a row near each end, holes between."""
    path = tmp_path / "table.bin"
    with path.open("wb") as file:
        for at, row in zip(WANTED, TABLE, strict=True):
            file.seek(at * WIDTH)
            file.write(row.tobytes())
        file.truncate(ROWS * WIDTH)
    yield path
    path.unlink()


def write_sparse(artifact: TfliteArtifact, store: WeightStore, path: Path) -> None:
    """Pieces of zeros stay holes."""
    with path.open("wb") as file:
        for piece in artifact.stream(store):
            if np.frombuffer(piece, np.uint8).any():
                file.write(piece)
            else:
                file.seek(len(piece), 1)
        file.truncate(artifact.size)


def test_constants_behind_two_gibibytes_are_found(source: Path, tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    store, path = WeightStore(), tmp_path / "large.tflite"
    artifact = emit(graph(store, source), store)
    assert artifact.weights[-1].offset > 1 << 31
    write_sparse(artifact, store, path)
    assert path.stat().st_size == artifact.size
    runner = Interpreter(model_path=str(path)).get_signature_runner("f")
    y = runner(ids=np.array(WANTED, np.int32))["y"]
    np.testing.assert_allclose(y, TABLE.astype(np.float32) @ WEIGHT.T, rtol=1e-5, atol=1e-4)
    path.unlink()
