"""Folders without a `model.toml`, made of the tiny recipes and of what exporters write beside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from models.build import built
from models.recipe.tiny_text import TEMPLATE

Table = dict[str, object]


def write(path: Path, table: object) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(table, indent=2), encoding="utf-8")


def copied(recipe: str, folder: Path) -> Path:
    """The ONNX files and the tokenizer of a recipe, without its `model.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(built(recipe).iterdir()):
        if file.suffix == ".onnx" or file.name == "tokenizer.json":
            shutil.copy(file, folder / file.name)
    return folder


LLAMA: Table = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "max_position_embeddings": 2048,
    "eos_token_id": [0, 2],
    "pad_token_id": None,
}
TOKENIZER: Table = {
    "bos_token": "<|im_start|>",
    "eos_token": {"content": "<|im_end|>", "special": True},
    "chat_template": [
        {"name": "other", "template": "x"},
        {"name": "default", "template": TEMPLATE},
    ],
}


def optimum_llama(folder: Path) -> Path:
    """What `optimum-cli export onnx --task text-generation-with-past` leaves."""
    copied("tiny-llama", folder)
    write(folder / "config.json", LLAMA)
    write(folder / "generation_config.json", {"eos_token_id": [0, 2], "bos_token_id": 1})
    write(folder / "tokenizer_config.json", TOKENIZER)
    return folder


GENAI: Table = {
    "model": {
        "bos_token_id": 1,
        "context_length": 2048,
        "decoder": {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": "model.onnx",
            "head_size": 8,
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "position_ids": "position_ids",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
        },
        "eos_token_id": [0, 2],
        "type": "llama",
        "vocab_size": 274,
    },
    "search": {"do_sample": False, "max_length": 2048, "num_beams": 1},
}


def genai_llama(folder: Path) -> Path:
    """What the model builder of ONNX Runtime GenAI leaves."""
    copied("tiny-llama", folder)
    write(folder / "genai_config.json", GENAI)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


WHISPER: Table = {
    "model_type": "whisper",
    "is_encoder_decoder": True,
    "max_target_positions": 32,
    "decoder_start_token_id": 1,
    "eos_token_id": 2,
}
SPEECH: Table = {
    "eos_token_id": [0, 2],
    "forced_decoder_ids": [[1, None], [2, 6]],
    "lang_to_id": {"<|en|>": 5, "<|de|>": 7},
    "task_to_id": {"transcribe": 6, "translate": 8},
    "suppress_tokens": [3, 4],
    "begin_suppress_tokens": [35, 2],
}
EXTRACTOR: Table = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "sampling_rate": 16000,
    "n_fft": 400,
    "hop_length": 400,
    "feature_size": 8,
    "chunk_length": 1,
    "nb_max_frames": 40,
}


def optimum_whisper(folder: Path) -> Path:
    """What `optimum-cli export onnx --task automatic-speech-recognition-with-past` leaves."""
    copied("tiny-whisper", folder)
    write(folder / "config.json", WHISPER)
    write(folder / "generation_config.json", SPEECH)
    write(folder / "preprocessor_config.json", EXTRACTOR)
    return folder


def changed(file: Path, *path: str, to: object = None) -> None:
    """Sets a key of a JSON file; removes it without a value."""
    table = json.loads(file.read_text("utf-8"))
    inner = table
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    write(file, table)
