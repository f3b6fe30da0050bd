"""A folder of ONNX Runtime GenAI's model builder, as it is, on the target c against ONNX Runtime.

`tests/passes/exports/genai/` holds a Llama of one layer with random weights, as the model builder
of onnxruntime-genai 0.18 wrote it for the processor in float32. Its attention is one operator with
packed queries, keys and values, whose keys are counted by a sum of the mask.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.pipelines import pass_class, pass_names

FOLDER = Path(__file__).parents[1] / "passes" / "exports" / "genai"


@pytest.mark.parametrize("past", [0, 4])
def test_the_model_builder_s_folder(past: int) -> None:
    imported = import_model(FOLDER)
    context, module = make_context(imported.store), imported.module
    names = pass_names("c")
    lower = names.index("lower-to-cpu")
    run_passes(module, [pass_class(p)() for p in names[:lower]], context)
    counts = Counter(op.name for op in module.walk())
    assert (counts["mllm.cached_attention"], counts["mllm.softmax"]) == (3, 0)
    run_passes(module, [pass_class(p)() for p in names[lower:]], context)
    rng = np.random.default_rng(6)
    given = {
        "input_ids": rng.integers(0, 274, (1, 3)),
        "attention_mask": np.ones((1, past + 3), np.int64),
    }
    for kind in ("key", "value"):
        cache = rng.standard_normal((1, 2, past, 16)).astype(np.float32)
        given[f"past_key_values.0.{kind}"] = cache
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx")
    results = [output.name for output in session.get_outputs()]
    want = dict(zip(results, session.run(results, given), strict=True))
    with CRunner(emit(module), imported.store, threads=2) as runner:
        got = runner.run("decoder", given)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, atol=1e-5 * np.abs(array).max(), err_msg=name)
