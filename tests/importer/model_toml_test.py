"""`model.toml`: what it says, and what its errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.importer import CrossSpec, import_model, read_dims, read_model_spec
from tests.importer import onnx_models as models

WHOLE = """
name = "pair"
licence = "MIT"
[graphs.first]
file = "first.onnx"
role = "encoder"
[graphs.second]
file = "second.onnx"
role = "decoder"
inputs.features = "first.y"
cross = { in = "a.{layer}.{kind}", out = "b.{layer}.{kind}" }
[dims]
batch_size = { max = 4 }
[text]
tokenizer = "tokenizer.json"
embedding = "second:w"
stop = [0, 2]
[image]
size = [56, 28]
mean = [0.5, 0.5, 1]
std = [0.5, 0.5, 1.0]
[audio]
rate = 16000
n_fft = 400
hop = 160
mels = 80
window_s = 30
[generation]
forced_prompt = [1, 2]
[memory]
overlap = [["first", "second"]]
[[memory.banks]]
name = "fast"
bytes = 4096
least = 1024
contiguous = true
[[memory.banks]]
name = "rest"
alignment = 262144
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.save(models.weighted(), tmp_path, "first.onnx")
    text = "g (float[batch_size, 32] features) => (float[batch_size, 32] z) { z = Relu(features) }"
    models.write(tmp_path, text, name="second.onnx")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / "model.toml").write_text(text)
    return folder


def test_everything_is_read(folder: Path) -> None:
    spec = read_model_spec(write(folder, WHOLE))
    assert spec.folder == folder
    assert spec.graphs["second"].inputs == {"features": "first.y"}
    assert spec.graphs["second"].cross == CrossSpec(
        input="a.{layer}.{kind}", out="b.{layer}.{kind}"
    )
    assert spec.image is not None
    assert spec.image.mean == (0.5, 0.5, 1.0)
    assert spec.image.size == (56, 28)
    assert spec.text is not None
    assert spec.text.stop == (0, 2)
    assert spec.generation is not None
    assert spec.generation.forced_prompt == (1, 2)


def test_the_pipeline_has_edges_and_bounds(folder: Path) -> None:
    imported = import_model(write(folder, WHOLE) / "model.toml")
    imported.module.verify()
    text = str(imported.module)
    assert 'overlaps = [["first", "second"]]' in text
    fast = '#mllm.bank<"fast", bytes 4096, alignment 64 from 1048576, least 1024, contiguous>'
    assert f'banks = [{fast}, #mllm.bank<"rest", alignment 262144 from 1048576>]' in text
    assert '#mllm.edge<"second" "features" from "first" "y">' in text
    assert '#mllm.bound<"batch_size" <= 4>' in text
    assert 'mllm.role = "encoder"' in text


@pytest.mark.parametrize(
    ("written", "bound"),
    [
        ("{}", '"batch_size" <= 1'),
        ("{ min = 2 }", '2 <= "batch_size" <= 2'),
        ("{ max = 8, buckets = [1, 4] }", '"batch_size" <= 8 in [1, 4, 8]'),
        ("{ buckets = [1, 4] }", '"batch_size" <= 4 in [1, 4]'),
    ],
)
def test_a_bound_is_what_the_table_says(written: str, bound: str, folder: Path) -> None:
    text = WHOLE.replace("{ max = 4 }", written)
    text = text.replace('cross = { in = "a.{layer}.{kind}", out = "b.{layer}.{kind}" }\n', "")
    assert f"#mllm.bound<{bound}>" in str(import_model(write(folder, text)).module)


def test_the_command_line_goes_before_the_file(folder: Path) -> None:
    dims = read_dims(["batch_size=3"])
    imported = import_model(write(folder, WHOLE) / "model.toml", dims=dims)
    assert '#mllm.bound<3 <= "batch_size" <= 3>' in str(imported.module)


def test_a_bare_file_is_a_model_of_one_graph(folder: Path) -> None:
    spec = read_model_spec(folder / "first.onnx")
    assert spec.name == "first"
    assert list(spec.graphs) == ["first"]


CASES = [
    ("name = ", "name = = ", "MLC-I020", "model.toml: error: not TOML"),
    ('file = "first.onnx"', 'fil = "first.onnx"', "MLC-I021", "graphs.first.fil: error"),
    ('file = "first.onnx"', 'fil = "first.onnx"', "MLC-I021", "did you mean 'file'?"),
    ("window_s", "windows", "MLC-I021", "did you mean 'window_s'?"),
    ("[audio]", "[adio]", "MLC-I021", "did you mean 'audio'?"),
    ("size = [56, 28]", "size = [56]", "MLC-I022", "image.size: error: 1 values given, 2 needed"),
    ("size = [56, 28]", 'size = "big"', "MLC-I022", "image.size: error: a list is expected"),
    ("rate = 16000", "rate = true", "MLC-I022", "audio.rate: error: an integer is expected"),
    ("rate = 16000", "", "MLC-I022", "audio.rate: error: the key is missing"),
    ("max = 4", "max = 4.5", "MLC-I022", "dims.batch_size.max"),
    ("max = 4", "max = 4, min = 5", "MLC-I022", "dims.batch_size: error: no size is from 5 to 4"),
    ("max = 4", "max = 4, buckets = [2, 1]", "MLC-I022", "[2, 1] do not ascend"),
    ("max = 4", "max = 4, buckets = [2, 5]", "MLC-I022", "[2, 5] are not from 1 to 4"),
    ("batch_size =", "batch_sise =", "MLC-I023", "dims.batch_sise: error: no input has"),
    ("batch_size =", "batch_sise =", "MLC-I023", "did you mean 'batch_size'?"),
    ('role = "encoder"', 'role = "encodr"', "MLC-I022", "did you mean 'encoder'?"),
    ("graphs.first", 'graphs."a b"', "MLC-I022", "'a b' is no name"),
    ("first.y", "frist.y", "MLC-I023", "graphs.second.inputs.features"),
    ("first.y", "frist.y", "MLC-I023", "did you mean 'first'?"),
    ("first.y", "first.x", "MLC-I023", "graph 'first' has no output 'x'"),
    ("inputs.features", "inputs.feature", "MLC-I023", "did you mean 'features'?"),
    ("second:w", "third:w", "MLC-I023", "text.embedding"),
    ('file = "first.onnx"', 'file = "fist.onnx"', "MLC-I003", "graphs.first.file: error"),
    ("overlap =", "overlaps =", "MLC-I021", "memory.overlaps: error: unknown key"),
    ("overlap =", "overlaps =", "MLC-I021", "did you mean 'overlap'?"),
    ("bytes =", "byte =", "MLC-I021", "memory.banks[0].byte: error: unknown key"),
    ("bytes =", "byte =", "MLC-I021", "did you mean 'bytes'?"),
    ("bytes = 4096", "bytes = 0", "MLC-I022", "memory.banks[0].bytes: error: a bank of 0 bytes"),
    ("least = 1024", "least = -1", "MLC-I022", "memory.banks[0].least: error: -1 bytes"),
    ("= 262144", "= 100", "MLC-I022", "memory.banks[1].alignment: error: an alignment of 100"),
    ('name = "rest"', 'name = "a-b"', "MLC-I022", "memory.banks[1].name: error: 'a-b' is no name"),
    ('name = "rest"', 'name = "Fast"', "MLC-I022", "two banks are named 'Fast'"),
    ('name = "rest"', 'name = "fast"', "MLC-I022", "two banks are named 'fast'"),
    ('name = "rest"', 'name = ""', "MLC-I022", "memory.banks[1].name: error: '' is no name"),
    ('[["first", "second"]]', '[["first", "secnd"]]', "MLC-I023", "did you mean 'second'?"),
    ('[["first", "second"]]', '[["first"]]', "MLC-I022", "memory.overlap[0]: error: two graphs"),
    ('[["first", "second"]]', '[["first", "first"]]', "MLC-I022", "each named once"),
    ('"tokenizer.json"', '"tokeniser.json"', "MLC-I003", "text.tokenizer: error"),
]


@pytest.mark.parametrize(("old", "new", "code", "words"), CASES)
def test_an_error_names_the_key(old: str, new: str, code: str, words: str, folder: Path) -> None:
    assert old in WHOLE
    plain = WHOLE.replace('cross = { in = "a.{layer}.{kind}", out = "b.{layer}.{kind}" }\n', "")
    with pytest.raises(CompileError) as caught:
        import_model(write(folder, plain.replace(old, new)))
    assert caught.value.code == code, str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


CACHED = """
name = "cached"
[graphs.d]
file = "d.onnx"
role = "language-model"
cache = { key = "past.{layer}.key", value = "past.{layer}.value", out = "now.{layer}.{kind}" }
"""

DECODER = """
g (float[b, 1, past, 4] past_0_key, float[b, 1, past, 4] past_0_value, float[b, 1, t, 4] x)
  => (float[b, 1, total, 4] now_0_key, float[b, 1, total, 4] now_0_value)
{
  now_0_key = Concat<axis = 2>(past_0_key, x)
  now_0_value = Concat<axis = 2>(past_0_value, x)
}
"""


def decoder(folder: Path, *, without: str = "") -> Path:
    model = models.model_of(DECODER)
    for place in (model.graph.input, model.graph.output):
        for value in place:
            value.name = value.name.replace("_", ".")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [n.replace("_", ".") for n in names]
    if without:
        for output in model.graph.output:
            output.name = output.name.replace(without, f"{without}x")
        for node in model.graph.node:
            node.output[:] = [n.replace(without, f"{without}x") for n in node.output]
    return models.save(model, folder, "d.onnx")


def test_a_cache_counts_its_layers(tmp_path: Path) -> None:
    decoder(tmp_path)
    module = import_model(write(tmp_path, CACHED)).module
    assert 'value "past.{layer}.value", out "now.{layer}.{kind}", layers 1>' in str(module)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("past.{layer}.value", "past.{layer}.val", "cache.value: error: the graph has no input"),
        ("now.{layer}.{kind}", "new.{layer}.{kind}", "cache.out: error: the graph has no output"),
        ("past.{layer}.key", "past.key", "cache.key: error: the name lacks {layer}"),
    ],
)
def test_a_cache_that_is_not_there(old: str, new: str, words: str, tmp_path: Path) -> None:
    decoder(tmp_path)
    with pytest.raises(CompileError, match="MLC-I02") as caught:
        import_model(write(tmp_path, CACHED.replace(old, new)))
    assert words in str(caught.value)
