"""The table of vendors: every model in every form, compiled and run by the vendor's own code.

A model runs whole, and in pieces of a block each on the values that the reference has there, beside
the reference of the lowered module; whole and without codes also beside that of mllm, which other
tests hold to ONNX Runtime. The accelerator runs all floating-point operations of the blocks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mllm_compiler.importer import DimSpec
from mllm_compiler.recipes import build_recipe
from tests.vendor.measured import Case, largest_distance, least_cosine, measure
from tests.vendor.rknn_toolkit import NEEDS_TOOLKIT
from tests.vendor.rows import record

Record = Callable[[str, object], None]
Dims = Mapping[str, DimSpec]

DECODER: Dims = {
    "sequence_length": DimSpec(max=32, buckets=(1, 32)),
    "past_sequence_length": DimSpec(max=64),
}
"""Prefill of 32 tokens, decode of one."""

WHISPER: Dims = {
    "decoder_sequence_length": DimSpec(max=4, buckets=(1, 4)),
    "past_decoder_sequence_length": DimSpec(max=16),
}
LAYERS = "smollm2-2-layers"
"""The first two layers of SmolLM2-135M, at their real size."""

SIZES: Mapping[str, Dims] = {
    **dict.fromkeys(("tiny-llama", "tiny-gemma3", "tiny-gpt2", "tiny-vlm"), DECODER),
    **dict.fromkeys(("tiny-bloom", LAYERS), DECODER),
    **{name: {} for name in ("tiny-vit", "tiny-convnext", "tiny-svtr", "tiny-siglip")},
    "tiny-whisper": WHISPER,
    "tiny-wav2vec2": {"sequence_length": DimSpec(min=800, max=800)},
    "tiny-bert": {"sequence_length": DimSpec(max=32)},
    "dinov2-s14": {},
}


HIDES_ALL = ("qnn", "tflite")
"""Targets on which padding that sees no key attends as in mllm, to all keys alike."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of a target; `table.toml` says what its keys mean."""

    target: str
    name: str
    block: float
    whole: float
    recipe: str = ""
    soc: str = ""
    distance: float | None = None
    excess: float | None = None
    everywhere: bool = True
    fast: Sequence[str] = ()
    slow: Sequence[str] = ()


def parameters() -> Iterator[object]:
    """One for each row."""
    table = tomllib.loads((Path(__file__).parent / "table.toml").read_text(encoding="utf-8"))
    for form in (Form(**keys) for keys in table["forms"]):
        for model in (*form.fast, *form.slow):
            marks = [] if model in form.fast else [pytest.mark.slow]
            marks += NEEDS_TOOLKIT if form.target == "rknn" else [pytest.mark.vendor]
            words = (form.target, model, form.name, form.soc)
            yield pytest.param(form, model, marks=marks, id="-".join(filter(None, words)))


@pytest.mark.parametrize(("form", "model"), list(parameters()))
def test_a_row_of_the_table(
    form: Form, model: str, tmp_path: Path, record_property: Record
) -> None:
    recipe = form.recipe
    if "[linears]" in recipe:
        recipe = str(tmp_path / "recipe.toml")
        Path(recipe).write_text(form.recipe)
    path = build_recipe(model, lambda line: None) if model != LAYERS else two_layers(tmp_path)
    case = Case(
        target=form.target,
        model=model,
        path=path,
        form=form.name,
        recipe=recipe,
        soc=form.soc,
        dims=SIZES[model],
    )
    made = measure(case, tmp_path, lambda row: record(record_property, row))
    assert made.row.worst_block is not None
    assert made.row.whole is not None
    assert made.row.worst_block > form.block
    assert made.row.whole > form.whole
    if not recipe and form.target in HIDES_ALL:
        assert least_cosine(made.model) > form.whole
    if form.distance is not None:
        assert largest_distance({**made.pieces, **made.whole}) <= form.distance
    if form.excess is not None:
        assert made.excess() < form.excess
    if form.everywhere:
        assert made.row.block_flops in (1, None)


def two_layers(folder: Path) -> Path:
    """The model of two layers, written to a folder."""
    from models.recipe.gguf_weights import smollm2
    from models.recipe.llama import decoder

    language = smollm2()
    config = replace(language.config, layers=2)
    decoder(config, language.weights).save(folder / "model.onnx", external=True)
    (folder / "model.toml").write_text(MODEL)
    return folder


MODEL = """
name = "layers"

[graphs.decoder]
file = "model.onnx"
role = "language-model"

[graphs.decoder.cache]
key = "past_key_values.{layer}.key"
value = "past_key_values.{layer}.value"
out = "present.{layer}.{kind}"

[dims]
batch_size = { max = 1 }
"""
