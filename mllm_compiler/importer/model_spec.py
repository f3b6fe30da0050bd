"""The specification of a model, whatever says it: `model.toml`, an exporter's folder, one file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from mllm_compiler.importer import genai, optimum
from mllm_compiler.importer.folder_text import unknown_layout
from mllm_compiler.importer.model_toml import GraphSpec, ModelSpec, graph_name, read_model_toml
from mllm_compiler.importer.names import utf8_name
from mllm_compiler.importer.ports import language_model, read_ports, step_bounds

READERS = {
    "model.toml": read_model_toml,
    "genai_config.json": genai.read_genai_config,
    "config.json": optimum.read_optimum_folder,
}
"""Who reads a folder, by the file that says what is in it; the first that is there."""


def read_model_spec(path: Path) -> ModelSpec:
    """The specification of a `model.toml`, of a folder, or of a bare ONNX file.

    Raises:
        CompileError: It cannot be read, has a key that cannot be used, or names what is not there.
    """
    if path.is_dir():
        return _of_folder(path)
    if path.name in READERS or path.suffix == ".toml":
        return READERS.get(path.name, read_model_toml)(path)
    return _of_one_file(path)


def _of_folder(folder: Path) -> ModelSpec:
    for name, reader in READERS.items():
        if (folder / name).is_file():
            return reader(folder / name)
    models = sorted(folder.glob("*.onnx"))
    if len(models) == 1:
        return _of_one_file(models[0])
    names = sorted(p.name for p in folder.iterdir() if p.suffix in (".toml", ".json"))
    near = [n for name in READERS for n in get_close_matches(name, names, n=1, cutoff=0.9)]
    if near:
        remedy = f"rename '{near[0]}', or write a model.toml"
    elif models:
        remedy = f"give one of {', '.join(p.name for p in models[:6])}, or write a model.toml"
    else:
        remedy = "give an .onnx file or a model.toml"
    raise unknown_layout(f"the folder has no {', '.join(READERS)}", str(folder), remedy)


def _of_one_file(path: Path) -> ModelSpec:
    """A file that names a cache as exporters do is a language model, else a graph."""
    ports = read_ports(path)
    graph = language_model(path.name, ports)
    return ModelSpec(
        name=utf8_name(path.stem),
        graphs={graph_name(path.stem): graph or GraphSpec(file=path.name)},
        dims={} if graph is None else step_bounds([(graph, ports)]),
        folder=path.parent,
        source=path.name,
    )
