"""Answers by ONNX Runtime, the tokenizers library and Jinja: what bundles are compared with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import jinja2
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper
from tokenizers import Tokenizer

from mllm_compiler.generation.sampling import Sampler

Array = NDArray[np.generic]


class Graph:
    """An ONNX file; what it does not take is left out, and what is not given is an empty cache."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self.path = path
        self.session = onnxruntime.InferenceSession(str(path), options)
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        given = dict[str, Array]()
        for value in self.session.get_inputs():
            if value.name in feeds:
                given[value.name] = feeds[value.name]
            else:
                _, heads, _, size = value.shape
                given[value.name] = np.zeros((1, heads, 0, size), np.float32)
        return dict(zip(self.outputs, self.session.run(None, given), strict=True))

    def weight(self, name: str) -> Array:
        model = onnx.load(str(self.path), load_external_data=False)
        tensor = next(t for t in model.graph.initializer if t.name == name)
        return numpy_helper.to_array(tensor, str(self.path.parent))


class OnnxModel:
    """A folder that a recipe made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = tomllib.loads((folder / "model.toml").read_text())
        self.graphs = {n: Graph(folder / g["file"]) for n, g in self.spec["graphs"].items()}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.template = folder / "chat_template.jinja"
        generation = self.spec.get("generation", {})
        self.forced = generation.get("forced_prompt", [])
        self.suppress = frozenset(generation.get("suppress", []))
        self.begin = frozenset(generation.get("begin_suppress", []))

    def sampler(self, temperature: float, seed: int) -> Sampler:
        return Sampler(
            temperature=temperature, seed=seed, suppress=self.suppress, begin_suppress=self.begin
        )

    def rendered(self, prompt: str) -> str:
        made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        messages = [{"role": "user", "content": prompt}]
        source = self.template.read_text()
        return made.from_string(source).render(messages=messages, add_generation_prompt=True)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, prompt: str, count: int, sampler: Sampler) -> list[int]:
        """The answer of a language model."""
        ids = np.array([self.ids(self.rendered(prompt))], np.int64)
        return list(self._speak("input_ids", ids, count, sampler))

    def picture(
        self, pixels: NDArray[np.uint8], prompt: str, count: int, sampler: Sampler
    ) -> list[int]:
        """The answer of a vision-language model; the image has its size already."""
        values = self._pixels(pixels)
        hidden = self.graphs["vision"].run({"pixel_values": values})["last_hidden_state"]
        (features,) = self.graphs["projector"].run({"features": hidden}).values()
        table = self.graphs["decoder"].weight(self.spec["text"]["embedding"].split(":")[1])
        text = self.rendered(prompt)
        text = text if "<image>" in text else self.rendered(f"<image>\n{prompt}")
        before, after = (table[self.ids(part)] for part in text.split("<image>"))
        rows = np.concatenate([before, features[0], after])[None]
        return list(self._speak("inputs_embeds", rows, count, sampler, table))

    def attending(
        self, pixels: NDArray[np.uint8], prompt: str, count: int, sampler: Sampler
    ) -> list[int]:
        """The answer of a language model that attends to an image in each step."""
        hidden = self.graphs["vision"].run({"pixel_values": self._pixels(pixels)})
        ids = np.array([self.ids(self.rendered(prompt))], np.int64)
        seen = {"image_features": hidden["last_hidden_state"]}
        return list(self._speak("input_ids", ids, count, sampler, seen=seen))

    def _pixels(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        settings = self.spec["image"]
        mean, std = (np.float32(settings[key]) for key in ("mean", "std"))
        return ((pixels.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]

    def sound(self, mel: NDArray[np.float32], count: int, sampler: Sampler) -> list[int]:
        """The answer of a model that listens."""
        heard = self.graphs["encoder"].run({"input_features": mel})["last_hidden_state"]
        ids = np.array([self.forced], np.int64)
        made = self.graphs["decoder"].run({"input_ids": ids, "encoder_hidden_states": heard})
        said: list[int] = []
        cache: dict[str, Array] = {}
        while len(said) < count:
            token = sampler.choose(made.pop("logits")[0, -1], first=not said)  # type: ignore[arg-type]
            if token in self.spec["text"]["stop"]:
                break
            said.append(token)
            cache |= past_of(made)
            ids = np.array([[token]], np.int64)
            made = self.graphs["decoder_with_past"].run({"input_ids": ids, **cache})
        return said

    def _speak(
        self,
        name: str,
        value: Array,
        count: int,
        sampler: Sampler,
        table: Array | None = None,
        seen: Mapping[str, Array] | None = None,
    ) -> Iterable[int]:
        decoder, cache, past = self.graphs["decoder"], dict[str, Array](), 0
        for step in range(count):
            tokens = value.shape[1]
            positions = np.arange(past, past + tokens, dtype=np.int64)[None]
            mask = np.ones((1, past + tokens), np.int64)
            feeds = {name: value, "attention_mask": mask, "position_ids": positions}
            feeds |= seen or {}
            made = decoder.run({**feeds, **cache})
            token = sampler.choose(made.pop("logits")[0, -1], first=step == 0)  # type: ignore[arg-type]
            if token in self.spec["text"]["stop"]:
                return
            yield token
            cache, past = past_of(made), past + tokens
            row = np.array([token], np.int64) if table is None else table[[token]]
            value = row[None]


def past_of(present: dict[str, Array]) -> dict[str, Array]:
    return {name.replace("present", "past_key_values"): a for name, a in present.items()}
