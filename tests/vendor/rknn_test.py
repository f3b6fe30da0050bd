"""Models in Rockchip's toolkit: the NPU has all that computes; `table_test.py` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.backends.rknn.placement import on_cpu
from mllm_compiler.backends.rknn.read import NPU
from mllm_compiler.recipes import build_recipe
from tests.vendor.measured import Case, lowered, placed
from tests.vendor.rknn_toolkit import NEEDS_TOOLKIT
from tests.vendor.rknn_vendor import RknnVendor
from tests.vendor.table_test import SIZES

pytestmark = NEEDS_TOOLKIT

MOVES = {"Cast", "Gather", "Less", "Equal", "Not", "Reshape", "Transpose"}
"""Operators without arithmetic on reals, which the CPU may run: look-ups, masks, layouts."""


@pytest.mark.parametrize("soc", ["rk3588", "rk3576"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-vit"])
def test_a_block_attends_in_one_operator_of_the_npu(name: str, soc: str, tmp_path: Path) -> None:
    case = Case("rknn", name, build_recipe(name, lambda line: None), "f16", "", soc, SIZES[name])
    vendor = lowered(case, *placed(case), {}, tmp_path)
    assert isinstance(vendor, RknnVendor)
    for file in vendor.compiled[0].values():
        assert file.soc == soc
        assert {n.type for n in on_cpu(file) if not n.counts} <= MOVES
        attending = [n for n in file.nodes if n.type == "exSDPAttention" and n.unit == NPU]
        assert len(attending) == 2
