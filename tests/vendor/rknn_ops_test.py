"""Every op of the rknn dialect, built alone: the toolkit puts it where the support table has it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from mllm_compiler.backends.rknn.compile import write_files
from mllm_compiler.backends.rknn.emit import emit
from mllm_compiler.backends.rknn.placement import check_placement, on_cpu
from mllm_compiler.backends.rknn.read import NPU, RknnFile, read_rknn
from mllm_compiler.backends.rknn.sdk import check, need_toolkit
from mllm_compiler.dialects.rknn import OPERATORS
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import target
from mllm_compiler.weights import WeightStore
from tests.backends.rknn_graphs import Case, cases, module_of
from tests.vendor.rknn_toolkit import NEEDS_TOOLKIT

pytestmark = NEEDS_TOOLKIT
SOCS = ("rk3588", "rk3576")


@lru_cache(maxsize=2)
def built(soc: str) -> dict[str, RknnFile]:
    """The file of each op, by its name; the toolkit makes all of them in one process."""
    store = WeightStore()
    module = module_of(cases(), soc, store)
    module.verify()
    artifact = emit(module, store)
    with TemporaryDirectory(prefix="mllm-rknn-ops-") as scratch:
        folder = Path(scratch)
        write_files(artifact, store, folder)
        need_toolkit().build(folder, artifact.graphs)
        return {g: read_rknn((folder / f"{g}.rknn").read_bytes(), g) for g in artifact.graphs}


def test_every_operator_has_a_case() -> None:
    assert {case.op for case in cases()} == set(OPERATORS)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_table_says_where_the_toolkit_puts_it(case: Case, soc: str) -> None:
    file, chip = built(soc)[case.op], target("rknn").soc(soc)
    assert file.soc == soc
    cpu = {node.type for node in on_cpu(file)}
    if case.op in chip.host:
        assert cpu == {case.op}
    else:
        assert cpu <= set(chip.either)
        assert case.op in chip.either or any(node.unit == NPU for node in file.nodes)
    check_placement(file, chip, case.op)


def test_a_wrong_entry_of_the_table_is_named() -> None:
    chip = target("rknn").soc("rk3588")
    wrong = replace(chip, host=tuple(op for op in chip.host if op != "Exp"))
    with pytest.raises(CompileError) as caught:
        check_placement(built("rk3588")["Exp"], wrong, "Exp")
    assert caught.value.code == "MLC-V004"
    assert caught.value.exit_code == 3
    assert "'Exp'" in caught.value.message


def test_an_operator_that_nobody_runs_is_refused(tmp_path: Path) -> None:
    """The toolkit builds an operator that it does not know, and says so only in what it prints."""
    import onnx
    from onnx import TensorProto, helper

    store = WeightStore()
    artifact = emit(module_of([cases()[0]], "rk3588", store), store)
    write_files(artifact, store, tmp_path)
    node = helper.make_node("MatMulNBits", ["x0", "w", "s"], ["y0"], domain="com.microsoft")
    node.attribute.extend(
        helper.make_attribute(k, v)
        for k, v in {"K": 32, "N": 8, "bits": 4, "block_size": 32}.items()
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 32])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, [1, 8])],
        [
            onnx.numpy_helper.from_array(np.full((8, 1, 16), 17, np.uint8), "w"),
            onnx.numpy_helper.from_array(np.ones(8, np.float32), "s"),
        ],
    )
    sets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=8)
    onnx.save(model, tmp_path / artifact.plan.graphs["Abs"].onnx)
    with pytest.raises(CompileError) as caught:
        need_toolkit().build(tmp_path, ["Abs"])
    assert (caught.value.code, caught.value.location) == ("MLC-V002", "Abs")
    assert "MatMulNBits" in caught.value.message


def test_a_broken_model_is_refused_in_the_vendors_words(tmp_path: Path) -> None:
    store = WeightStore()
    artifact = emit(module_of([cases()[0]], "rk3588", store), store)
    write_files(artifact, store, tmp_path)
    (tmp_path / "Abs.onnx").write_bytes(b"no model")
    with pytest.raises(CompileError) as caught:
        need_toolkit().build(tmp_path, ["Abs"])
    assert caught.value.code == "MLC-V002"
    assert caught.value.exit_code == 4


def test_a_crash_is_a_line_with_the_last_words() -> None:
    printed = "building decoder_1\nI RKNN: one\nD RKNN: start: rknn::RKNNSubgraphManager\n"
    with pytest.raises(CompileError) as caught:
        check(-11, printed)
    assert (caught.value.code, caught.value.location) == ("MLC-V003", "decoder_1")
    assert "SIGSEGV" in caught.value.message
    assert "RKNNSubgraphManager" in caught.value.message
