"""A model whose arena consists of several banks computes what it computes in one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mllm_compiler.compiler import Request, compile_model
from runtime_stub import Model
from tests.bundle.small_bundle import KEY
from tests.passes.memory_table_test import BANKS, OVERLAP, folder_of


def test_a_model_in_several_banks_computes_the_same(tmp_path: Path, trust: Path) -> None:
    """With the stages of an encoder and of a language model apart, and without."""
    image = np.linspace(-2, 2, 3 * 56 * 56, dtype=np.float32).reshape(1, 3, 56, 56)
    ids = np.arange(3, 40, dtype=np.int64)[None]
    answers: list[dict[str, np.ndarray]] = []
    for name, table in (("plain", ""), ("banks", BANKS), ("both", OVERLAP + BANKS)):
        output = tmp_path / f"{name}.mllm_bundle"
        compile_model(Request(model=folder_of(tmp_path / name, table), output=output, key=KEY))
        with Model.open(output, trust=trust, threads=2) as model:
            seen = model.run("vision", {"pixel_values": image})
            seen |= model.run("projector", {"features": seen["last_hidden_state"]})
            said = model.run("embed", {"input_ids": ids})
            answers.append(seen | said | model.run("prefill", said))
    for other in answers[1:]:
        assert set(other) == set(answers[0])
        for name, array in answers[0].items():
            np.testing.assert_array_equal(other[name], array)
