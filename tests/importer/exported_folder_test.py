"""Folders of optimum and of ONNX Runtime GenAI are read as the recipe's `model.toml` is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.importer import (
    CacheSpec,
    DimSpec,
    ImageSpec,
    chat_template,
    import_model,
    read_model_spec,
)
from models.build import built
from models.recipe.tiny_text import TEMPLATE
from tests.importer import exported_folders as folders
from tests.importer import onnx_models

CACHE = CacheSpec(
    key="past_key_values.{layer}.key",
    value="past_key_values.{layer}.value",
    out="present.{layer}.{kind}",
)


@pytest.mark.parametrize("make", [folders.optimum_llama, folders.genai_llama])
def test_a_language_model(make: Callable[[Path], Path], tmp_path: Path) -> None:
    spec, toml = read_model_spec(make(tmp_path)), read_model_spec(built("tiny-llama"))
    assert spec.graphs == toml.graphs
    assert spec.dims == toml.dims
    assert spec.text is not None
    assert toml.text is not None
    assert spec.text.stop == toml.text.stop
    assert chat_template(spec.folder, spec.text) == TEMPLATE


def test_a_template_knows_the_special_tokens(tmp_path: Path) -> None:
    text = read_model_spec(folders.optimum_llama(tmp_path)).text
    assert text is not None
    assert text.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_a_trio_over_sound(tmp_path: Path) -> None:
    spec, toml = (
        read_model_spec(f) for f in (folders.optimum_whisper(tmp_path), built("tiny-whisper"))
    )
    assert replace(spec, name=toml.name, folder=toml.folder, source=toml.source) == replace(
        toml, licence=""
    )


def test_the_files_may_lie_in_a_folder_of_their_own(tmp_path: Path) -> None:
    folders.optimum_llama(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "model.onnx").rename(tmp_path / "onnx" / "model.onnx")
    assert read_model_spec(tmp_path).graphs["decoder"].file == "onnx/model.onnx"
    import_model(tmp_path).module.verify()


def test_a_bare_file_with_a_cache_is_a_language_model(tmp_path: Path) -> None:
    folders.copied("tiny-llama", tmp_path)
    spec = read_model_spec(tmp_path / "model.onnx")
    assert spec.graphs["model"].role == "language-model"
    assert spec.graphs["model"].cache == CACHE
    assert spec.dims["past_sequence_length"] == DimSpec(max=2048)
    assert read_model_spec(tmp_path) == spec


def test_a_past_of_fixed_length_is_no_cache(tmp_path: Path) -> None:
    file = folders.copied("tiny-llama", tmp_path) / "model.onnx"
    model = onnx.load(file)
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[2].dim_param = "max_length"
    onnx.save(model, file)
    assert read_model_spec(file).graphs["model"].role == "graph"


def test_other_models_are_one_graph(tmp_path: Path) -> None:
    text = "g (float[b, 3, 8, 8] pixel_values) => (float[b, 3, 8, 8] y) { y = Relu(pixel_values) }"
    onnx_models.write(tmp_path, text, name="model_quantized.onnx")
    folders.write(tmp_path / "config.json", {"model_type": "vit", "image_size": 8})
    pixels = {
        "size": {"shortest_edge": 8},
        "do_center_crop": True,
        "crop_size": {"height": 8, "width": 8},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [1, 1, 1],
    }
    folders.write(tmp_path / "preprocessor_config.json", pixels)
    spec = read_model_spec(tmp_path)
    assert spec.graphs["model"].role == "encoder"
    half, one = (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)
    assert spec.image == ImageSpec(size=(8, 8), mean=half, std=one, fit="crop")
    pixels["size"] = {"shortest_edge": 12}
    folders.write(tmp_path / "preprocessor_config.json", pixels)
    assert read_model_spec(tmp_path).image is None


def rename(folder: Path, before: str, after: str) -> None:
    (folder / before).rename(folder / after)


def merged_only(folder: Path) -> None:
    rename(folder, "decoder_model.onnx", "decoder_model_merged.onnx")


def change(file: str, *path: str, to: object = None) -> Callable[[Path], None]:
    return lambda folder: folders.changed(folder / file, *path, to=to)


LLAMA, GENAI, WHISPER = folders.optimum_llama, folders.genai_llama, folders.optimum_whisper
ENDS = ("config.json", "generation_config.json")
CASES: list[tuple[Callable[[Path], Path], list[Callable[[Path], None]], str, str]] = [
    (
        LLAMA,
        [change(f, "eos_token_id") for f in ENDS],
        "MLC-I022",
        "json: eos_token_id: error: the key is missing",
    ),
    (
        LLAMA,
        [*[change(f, "eos_token_id") for f in ENDS], change(ENDS[0], "eos_token_ids", to=[2])],
        "MLC-I022",
        "rename 'eos_token_ids'",
    ),
    (LLAMA, [change(ENDS[0], "eos_token_id", to="</s>")], "MLC-I022", "an integer is expected"),
    (LLAMA, [lambda f: (f / "config.json").write_text("{")], "MLC-I024", "not JSON"),
    (LLAMA, [lambda f: (f / "config.json").write_text("[]")], "MLC-I022", "an object is expected"),
    (
        LLAMA,
        [
            lambda f: rename(f, "config.json", "confg.json"),
            lambda f: shutil.copy(f / "model.onnx", f / "b.onnx"),
        ],
        "MLC-I025",
        "rename 'confg.json'",
    ),
    (LLAMA, [lambda f: (f / "model.onnx").unlink()], "MLC-I025", "the folder has no ONNX file"),
    (WHISPER, [merged_only], "MLC-I025", "export the model again with --no-post-process"),
    (
        WHISPER,
        [lambda f: rename(f, "decoder_model.onnx", "dec.onnx")],
        "MLC-I025",
        "there is no encoder_model, decoder_model",
    ),
    (
        WHISPER,
        [change("config.json", "decoder_start_token_id")],
        "MLC-I022",
        "decoder_start_token_id",
    ),
    (
        WHISPER,
        [change("preprocessor_config.json", "hop_length")],
        "MLC-I022",
        "preprocessor_config.json: hop_length",
    ),
    (
        GENAI,
        [change("genai_config.json", "model", "decoder", "filename", to="m.onnx")],
        "MLC-I003",
        "model.decoder.filename: error: there is no file 'm.onnx'",
    ),
    (
        GENAI,
        [
            change(
                "genai_config.json", "model", "decoder", "inputs", "past_key_names", to="past.key"
            )
        ],
        "MLC-I022",
        "inputs.past_key_names: error: the name lacks %d",
    ),
    (
        GENAI,
        [
            change(
                "genai_config.json",
                "model",
                "decoder",
                "outputs",
                "present_key_names",
                to="now.%d.key",
            )
        ],
        "MLC-I022",
        "write now.%d.value",
    ),
    (
        GENAI,
        [change("genai_config.json", "model", "decoder", "inputs", "input_ids", to="ids")],
        "MLC-I022",
        "'ids' must be called 'input_ids'",
    ),
    (
        GENAI,
        [
            change(
                "genai_config.json",
                "model",
                "decoder",
                "inputs",
                "past_key_names",
                to="past_key.%d",
            )
        ],
        "MLC-I023",
        "did you mean 'past_key_values.0.key'?",
    ),
    (
        GENAI,
        [change("genai_config.json", "model", "context_length")],
        "MLC-I022",
        "model.context_length: error: the key is missing",
    ),
    (
        GENAI,
        [change("genai_config.json", "model", "vision", to={"filename": "v.onnx"})],
        "MLC-I025",
        "the part 'vision'",
    ),
]


@pytest.mark.parametrize(("make", "breaks", "code", "words"), CASES)
def test_an_error_names_file_and_key(
    make: Callable[[Path], Path],
    breaks: list[Callable[[Path], None]],
    code: str,
    words: str,
    tmp_path: Path,
) -> None:
    folder = make(tmp_path)
    for broken in breaks:
        broken(folder)
    with pytest.raises(CompileError) as caught:
        import_model(folder)
    assert caught.value.code == code, str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
