"""Text over `.tflite` files: the same tokens as the reference of the same model gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.loop import Answer, Ask, generate
from mllm_compiler.generation.model import open_model
from mllm_compiler.importer import DimSpec
from mllm_compiler.recipes import build_recipe

pytestmark = pytest.mark.vendor
PIECES = {
    "sequence_length": DimSpec(max=8, buckets=(1, 8)),
    "past_sequence_length": DimSpec(max=64),
}
ASK = Ask(prompt="who is muted, and who shares a chart?", max_new_tokens=8)


def answer(name: str, target: str, folder: Path) -> Answer:
    bundle = folder / f"{target}.mllm_bundle"
    dims = PIECES if target == "tflite" else {}
    model = build_recipe(name, lambda line: None)
    compile_model(Request(model=model, target=target, dims=dims, output=bundle))
    opened = open_model(open_bundle(bundle, Policy(allow_unsigned=True)))
    return generate(opened, ASK, lambda text: None)


def test_inputs_that_do_not_fit_are_named(tmp_path: Path) -> None:
    bundle = tmp_path / "vit.mllm_bundle"
    model = build_recipe("tiny-vit", lambda line: None)
    compile_model(Request(model=model, target="tflite", output=bundle))
    runner = open_model(open_bundle(bundle, Policy(allow_unsigned=True))).runner
    for pixels in (np.zeros((1,) * 9, np.float32), np.zeros((1, 3, 2, 2), np.float32)):
        with pytest.raises(CompileError) as caught:
            runner.run("vision", {"pixel_values": pixels})
        assert caught.value.code == "MLC-D001"
        assert "pixel_values" in caught.value.location


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3"])
def test_a_prompt_in_pieces_is_answered_as_the_whole_is(name: str, tmp_path: Path) -> None:
    """The prompt is longer than the largest signature; buckets pad the rest."""
    litert, reference = (answer(name, target, tmp_path) for target in ("tflite", "numpy"))
    assert litert.prompt_tokens > 3 * 8
    assert litert.tokens == reference.tokens
    assert len(litert.tokens) == 8
