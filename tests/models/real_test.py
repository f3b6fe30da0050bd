"""The real recipes, through ONNX Runtime: they are what they say."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tokenizers import Tokenizer

from models.build import built
from models.recipe.onnx_weights import shipped_dinov2
from models.recipe.session import Session, empty_cache, generate_step
from models.recipe.speech import clips, log_mel, samples

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("smollm2-135m", "model"),
        ("dinov2-s14", "vision_encoder"),
        ("whisper-base", "encoder_model"),
        ("whisper-base", "decoder_model"),
        ("whisper-base", "decoder_with_past_model"),
        ("meeting-vlm", "vision_encoder"),
        ("meeting-vlm", "projector"),
        ("meeting-vlm", "decoder"),
    ],
)
def test_graphs_are_valid_and_their_weights_start_on_pages(name: str, graph: str) -> None:
    path = built(name) / f"{graph}.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        facts = {entry.key: entry.value for entry in tensor.external_data}
        assert int(facts["offset"]) % 4096 == 0
        assert facts["location"] == f"{path.name}.data"


def test_smollm2_knows_the_capital_of_france() -> None:
    folder = built("smollm2-135m")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = Session(folder / "model.onnx")
    ids = tokenizer.encode("The capital of France is", add_special_tokens=False).ids
    none = empty_cache(session, 1, 3, 64)
    logits, cache = generate_step(session, "input_ids", np.array([ids]), none)
    assert tokenizer.decode([int(logits.argmax())]) == " Paris"
    _, before = generate_step(session, "input_ids", np.array([ids[:3]]), none)
    split, grown = generate_step(session, "input_ids", np.array([ids[3:]]), before)
    np.testing.assert_allclose(split, logits, atol=1e-3)
    np.testing.assert_allclose(*(c["past_key_values.29.key"] for c in (cache, grown)), atol=1e-3)


def test_dinov2_equals_the_graph_that_its_package_ships(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shipped = shipped_dinov2()
    hidden = [
        node.output[0]
        for node in shipped.graph.node
        if node.op_type == "Add" and node.name.startswith("/backbone/layernorm")
    ][-1]
    shipped.graph.output.append(helper.make_tensor_value_info(hidden, TensorProto.FLOAT, None))
    path = tmp_path_factory.mktemp("shipped") / "shipped.onnx"
    onnx.save(shipped, str(path))
    pixels = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    wanted = Session(path).run({"input_image": pixels})[hidden]
    ours = Session(built("dinov2-s14") / "vision_encoder.onnx").run({"pixel_values": pixels})
    np.testing.assert_allclose(ours["last_hidden_state"], wanted, atol=1e-3)


def test_whisper_writes_down_what_is_said() -> None:
    folder = built("whisper-base")
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    ears, first, later = (Session(folder / f"{name}.onnx") for name in names)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    table = tomllib.loads((folder / "model.toml").read_text())
    prompt = np.array([table["generation"]["forced_prompt"]], np.int64)
    never, not_first = (table["generation"][k] for k in ("suppress", "begin_suppress"))
    clip = clips()[0]
    heard = ears.run({"input_features": log_mel(samples(clip.path))})["last_hidden_state"]
    made = first.run({"input_ids": prompt, "encoder_hidden_states": heard})
    cache: dict[str, np.ndarray] = {}
    said: list[int] = []
    while len(said) < 100:
        logits = made.pop("logits")[0, -1].astype(np.float64)
        logits[never if said else [*never, *not_first]] = -np.inf
        token = int(logits.argmax())
        if token in table["text"]["stop"]:
            break
        said.append(token)
        cache |= {name.replace("present", "past_key_values"): made[name] for name in made}
        made = later.run({"input_ids": np.array([[token]], np.int64)} | cache)
    words = re.sub(r"[^a-z ]", "", tokenizer.decode(said).lower().replace("mr.", "mister")).split()
    assert words == clip.transcript.split()
    # The tokens that the model says are those that its text is trained to be cut into.
    assert tokenizer.encode(tokenizer.decode(said), add_special_tokens=False).ids == said
