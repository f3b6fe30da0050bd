"""What a bundle holds, as plain values for a table or JSON."""

from __future__ import annotations

from mllm_compiler.bundle.manifest import EntryRecord, Manifest, TensorRecord
from mllm_compiler.bundle.typed_json import Json, encode
from mllm_compiler.bundle.verify import Bundle


def summary(bundle: Bundle) -> dict[str, Json]:
    """Name, signer, targets, entries, members, weights and plan of an open bundle."""
    manifest = bundle.manifest
    return {
        "name": manifest.name,
        "format": manifest.format,
        "producer": f"{manifest.producer.name} {manifest.producer.version}",
        "signer": bundle.signer,
        "compatibility": encode(manifest.compatibility),
        "targets": list(manifest.targets),
        "entries": {name: _entry(entry) for name, entry in manifest.entries.items()},
        "operations": {name: dict(item.ops) for name, item in manifest.topology.items()},
        "members": {name: manifest.members[name].size for name in bundle.names()},
        "weights": {
            "count": len(manifest.weights),
            "bytes": sum(weight.size for weight in manifest.weights),
            "types": dict(bytes_by_type(manifest)),
        },
        "plan": encode(manifest.plan),
        "size": bundle.size,
    }


def lines(bundle: Bundle) -> list[str]:
    """The summary as text, a fact a line."""
    manifest = bundle.manifest
    signer = bundle.signer or "nobody"
    text = [
        f"name        {manifest.name}",
        f"format      {manifest.format}, {manifest.producer.name} {manifest.producer.version}",
        f"signed by   {signer}",
        f"targets     {', '.join(manifest.targets)}",
        f"size        {bundle.size:,} bytes",
        f"plan        {manifest.plan.plan:,} bytes, bound {manifest.plan.bound:,}, "
        f"gap {manifest.plan.gap:.1%}",
    ]
    for name, entry in manifest.entries.items():
        text.append(f"entry       {name} ({entry.role})")
        text += [f"  input     {_tensor(tensor)}" for tensor in _few(entry.inputs)]
        text += [f"  output    {_tensor(tensor)}" for tensor in _few(entry.outputs)]
        stages = manifest.topology.get(name)
        if stages is not None:
            text.append(f"  stages    {sum(stages.ops.values())}, {len(stages.ops)} kinds")
    for name, stages in manifest.topology.items():
        if name not in manifest.entries:
            count = sum(stages.ops.values())
            text.append(f"graph       {name}: {count} stages, {len(stages.ops)} kinds")
    for name in bundle.names():
        text.append(f"member      {name}  {manifest.members[name].size:,} bytes")
    total = sum(weight.size for weight in manifest.weights)
    text.append(f"weights     {len(manifest.weights)}, {total:,} bytes")
    text += [f"  {dtype:10}{size:,} bytes" for dtype, size in bytes_by_type(manifest).items()]
    return text


def bytes_by_type(manifest: Manifest) -> dict[str, int]:
    """Bytes of weights by element type, most first: weights of 4 bits are 4 bits here."""
    sizes: dict[str, int] = {}
    for weight in manifest.weights:
        sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.size
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def _entry(entry: EntryRecord) -> Json:
    return {
        "role": entry.role,
        "inputs": {tensor.name: _type(tensor) for tensor in entry.inputs},
        "outputs": {tensor.name: _type(tensor) for tensor in entry.outputs},
    }


def _few(tensors: tuple[TensorRecord, ...]) -> list[TensorRecord]:
    """The tensors without the caches of later layers."""
    return [tensor for tensor in tensors if not _is_later_cache(tensor.name)]


def _is_later_cache(name: str) -> bool:
    parts = name.split(".")
    return parts[0] in ("past_key_values", "present") and len(parts) > 2 and parts[1] != "0"


def _tensor(tensor: TensorRecord) -> str:
    return f"{tensor.name}: {_type(tensor)}"


def _type(tensor: TensorRecord) -> str:
    return f"{tensor.dtype}[{', '.join(str(dim) for dim in tensor.shape)}]"
