"""Every operator of the tfl dialect in LiteRT's plugin for MediaTek: what it takes, and as what.

The plugin is the vendor's own; what it records, at two versions of MediaTek's library, is read back
and run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.tflite.emit import emit
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.neuron.products import SymmPerChannelOp
from mllm_compiler.dialects.tfl import PseudoQconstOp, QuantizeOp
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.passes.host_first import is_taken
from mllm_compiler.passes.lower_to_neuron import LowerToNeuron
from mllm_compiler.passes.lower_to_neuron.table import LEGALISATIONS
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.vendor.neuron_networks import answers, listing, record
from tests.vendor.tflite_ops_test import Case, cases, graph_of

pytestmark = pytest.mark.vendor
VERSIONS = ("8.2.24", "9.0.3")
CHANGED = ("gelu-False",)
"""Operators that the plugin takes and computes otherwise."""
STOPPED = ("fully_connected-NONE-True-block32",)
"""Those that it stops at."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_plugin_takes_what_the_table_says(
    case: Case,
    version: str,
    stand_in: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And records what `lower-to-neuron` expects, whose meaning is that of the operator."""
    store = WeightStore()
    module, inputs = graph_of(case, store)
    (graph,) = graphs(module)
    file = b"".join(bytes(piece) for piece in emit(module, store).stream(store))
    expected = any(isinstance(op, case.op) and is_taken(op) for op in block_of(graph).ops)
    if str(case) in STOPPED or not expected:
        with pytest.raises(CompileError) as caught:
            record(file, stand_in, tmp_path / "recorded", version, monkeypatch)
        assert caught.value.code == "MLC-V002"
        assert ("BlockWise" in caught.value.message) == (str(case) in STOPPED)
        return
    applied, (network,) = record(file, stand_in, tmp_path / "recorded", version, monkeypatch)
    assert (applied.shares[0].taken, applied.shares[0].total) == (1, 1)
    want = run_function(module, "f", inputs, store)
    if str(case) in CHANGED:
        (made,) = run_function(
            network.module, "network", {"x0": inputs["x0"]}, network.store
        ).values()
        assert 1e-5 < np.abs(made - want["y0"]).max() < 1e-3
        return
    run_passes(module, [LowerToNeuron(adapter=version)], make_context(store))
    module.verify()
    assert listing(graph, store) == listing(network.graph, network.store)
    got = answers(module, graph, store, network, inputs)
    assert got.keys() == want.keys()
    for name, array in want.items():
        # LiteRT on a CPU quantises rows that meet codes.
        bound = 2e-6 if case.quantised is None else 0.02 * float(np.abs(array).max())
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=bound)


@pytest.mark.parametrize("version", VERSIONS)
def test_scales_of_channels_are_recorded(
    version: str, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 bits in every version; the numbers themselves are compared by the listing."""
    case = next(c for c in cases() if c.quantised == 0)
    store = WeightStore()
    module, _ = graph_of(case, store)
    file = b"".join(bytes(piece) for piece in emit(module, store).stream(store))
    _, (network,) = record(file, stand_in, tmp_path / "recorded", version, monkeypatch)
    assert any(isinstance(op, SymmPerChannelOp) for op in block_of(network.graph).ops)


def test_every_operator_that_is_legalised_has_a_case() -> None:
    """But for what goes from reals to codes: `neuron_test` has it."""
    others = {PseudoQconstOp, QuantizeOp}
    assert LEGALISATIONS.keys() - {case.op for case in cases()} == others
