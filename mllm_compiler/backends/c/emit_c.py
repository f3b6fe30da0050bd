"""Writes a stage table as readable C over the same kernels, for firmware and for reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c import program
from mllm_compiler.backends.c.artifact import MemoryPlan
from mllm_compiler.backends.c.program import Cache
from mllm_compiler.backends.c.table import EntryTable, Stage, Table, Tensor, table_of
from mllm_compiler.dialects.dims import Atom, Dim

C_DTYPES: Final = {
    name: "MLLM_BOOL" if name == "i1" else f"MLLM_{name.upper().replace('UI', 'U')}"
    for name in program.DTYPES
}
"""The runtime's name of each element type."""

FUNCTIONS: Final = {"floordiv": "floordiv", "mod": "mod", "min": "smaller", "max": "larger"}


@dataclass(frozen=True)
class CSource:
    """The same program as C: `model.h` and `model.c`, by what they are called."""

    name: str
    header: str
    source: str


@dataclass(frozen=True)
class _Port:
    identifier: str
    comment: str
    offset: int


@dataclass(frozen=True)
class _Buffer:
    offset: int
    comment: str


@dataclass(frozen=True)
class _Call:
    comment: str
    kernel: str
    inputs: str
    outputs: str
    params: str


@dataclass(frozen=True)
class _Cache:
    identifier: str
    place: int
    info: str
    formats: str
    room: int
    channels: int
    scales: int
    key_scales: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Entry:
    name: str
    role: str
    prototype: str
    inputs: tuple[_Port, ...]
    outputs: tuple[_Port, ...]
    defaults: tuple[_Port, ...]
    unused: tuple[str, ...]
    cache: int
    past: str
    stages: tuple[_Call, ...]


def emit_c(module: ModuleOp, name: str = "model") -> CSource:
    """The C of a lowered and planned module; `name` is that of files, struct and functions."""
    table, prefix = table_of(module), identifier(name)
    caches = _caches(table)
    values = {
        "name": prefix,
        "NAME": prefix.upper(),
        "title": f"{', '.join(e.name for e in table.entries)}: one function an entry",
        "arena_bytes": table.plan.plan,
        "weight_bytes": table.weight_bytes,
        "buffers": _buffers(table.plan),
        "banks": [(identifier(b).upper(), *at) for b, at in table.plan.banks.items()],
        "caches": caches,
        "key_scales": sum(cache.scales for cache in caches),
        "entries": [_entry(entry, table, prefix) for entry in table.entries],
    }
    environment = Environment(
        loader=PackageLoader("mllm_compiler.backends.c"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    header, source = (
        environment.get_template(f"model.{kind}.jinja").render(values) for kind in "hc"
    )
    return CSource(prefix, header, source)


def _buffers(plan: MemoryPlan) -> list[_Buffer]:
    """What lies in the arena, lowest first."""
    placed = zip(plan.offsets, plan.buffers, strict=True)
    return [
        _Buffer(offset, f"{b.size} bytes, stages {b.first} to {b.last}: {_comment(b.name)}")
        for offset, b in sorted(placed, key=lambda at: (at[0], at[1].first))
    ]


def _comment(text: str) -> str:
    """Text that neither starts nor ends a comment, on one line."""
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())


def identifier(text: str) -> str:
    """A name as a C identifier."""
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if name[:1].isdigit() or not name else name


def expression(dim: Dim) -> str:
    """A dim as a C expression over its symbols."""
    parts: list[str] = []
    for monomial, coefficient in dim.terms:
        factors = [_atom(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append(" * ".join(factors))
    return " + ".join(parts) or "0"


def _atom(atom: Atom) -> str:
    if not atom.op:
        return identifier(atom.name)
    assert atom.lhs is not None
    assert atom.rhs is not None
    return f"{FUNCTIONS[atom.op]}({expression(atom.lhs)}, {expression(atom.rhs)})"


def _caches(table: Table) -> list[_Cache]:
    made: list[_Cache] = []
    for cache in table.caches.values():
        room = sum(known.scales for known in made)
        made.append(_cache(cache, table.key_scales.get(cache.name, ()), len(made), room))
    return made


def _cache(cache: Cache, scales: Sequence[Tensor | None], place: int, room: int) -> _Cache:
    name, channels = identifier(cache.name), cache.kv_heads * cache.head_dim
    shape = (cache.layers, cache.kv_heads, cache.head_dim, cache.page_tokens, cache.max_tokens)
    numbers = (*shape, cache.recent, cache.page_bytes)
    formats = f"{name}_formats" if cache.bits else "NULL"
    return _Cache(
        identifier=name,
        place=place,
        info=", ".join([f'"{cache.name}"', *map(str, numbers), formats, "NULL"]),
        formats=", ".join(str(program.KV_FORMATS[bits]) for bits in cache.bits),
        room=room,
        channels=channels,
        scales=cache.layers * channels if any(scales) else 0,
        key_scales=tuple((at, t.offset) for at, t in enumerate(scales) if t is not None),
    )


def _entry(entry: EntryTable, table: Table, prefix: str) -> _Entry:
    names = _identifiers([*entry.inputs, *entry.outputs])
    ports = {t: _port(t, names[t]) for t in (*entry.inputs, *entry.outputs)}
    caches = list(table.caches)
    cache = -1 if entry.cache is None else caches.index(entry.cache)
    past = table.caches[entry.cache].past_symbol if entry.cache is not None else None
    symbols = _bound_symbols(entry.inputs, past)
    used = {s for stage in entry.stages for s in _symbols(stage)}
    arguments = [
        f"const {prefix} *model",
        *(f"int64_t {identifier(s)}" for s in symbols),
        *(f"const void *{names[t]}" for t in entry.inputs),
        *(f"void *{names[t]}" for t in entry.outputs),
        "mllm_error *error",
    ]
    return _Entry(
        name=entry.name,
        role=entry.role,
        prototype=_prototype(f"mllm_status {prefix}_{identifier(entry.name)}", arguments),
        inputs=tuple(ports[t] for t in entry.inputs),
        outputs=tuple(ports[t] for t in entry.outputs),
        defaults=tuple(ports[t] for t in ports if t.offset != program.NO_SLOT),
        unused=tuple(identifier(s) for s in symbols if s not in used),
        cache=cache,
        past=identifier(past) if past is not None and past in used else "",
        stages=tuple(_call(stage, names) for stage in entry.stages),
    )


def _identifiers(tensors: Iterable[Tensor]) -> dict[Tensor, str]:
    """An identifier for each input and output, no two alike and none a word of C or of ours."""
    taken, names = {"model", "error", "c", *C_WORDS}, dict[Tensor, str]()
    for tensor in tensors:
        name = identifier(tensor.name)
        while name in taken:
            name += "_"
        taken.add(name)
        names[tensor] = name
    return names


C_WORDS: Final = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "real",
        "mod",
        "larger",
        "smaller",
        "floordiv",
        "arena",
        "weight",
        "bound",
        "call",
        "calls",
    ]
)


def _prototype(head: str, arguments: list[str]) -> str:
    lines, line = list[str](), f"{head}("
    indent = " " * len(line)
    for i, argument in enumerate(arguments):
        part = argument + (")" if i + 1 == len(arguments) else ", ")
        if len(line) + len(part.rstrip()) > 100:
            lines.append(line.rstrip())
            line = indent if len(indent) < 60 else " " * 4
        line += part
    return "\n".join([*lines, line])


def _port(tensor: Tensor, name: str) -> _Port:
    dims = ", ".join(map(str, tensor.dims))
    place = "" if tensor.offset == program.NO_SLOT else f", in the arena at {tensor.offset}"
    return _Port(name, f"{name}: {tensor.dtype} [{dims}]{place}", tensor.offset)


def _bound_symbols(inputs: Iterable[Tensor], past: str | None) -> list[str]:
    """The symbols that the caller gives: those that stand bare in a dim of an input."""
    bare = [d.as_symbol() for t in inputs for d in t.dims]
    return list(dict.fromkeys(s for s in bare if s is not None and s != past))


def _symbols(stage: Stage) -> set[str]:
    dims = [d for t in (*stage.inputs, *stage.outputs) if t is not None for d in t.dims]
    dims += [value for _, value in stage.params if isinstance(value, Dim)]
    return {symbol for dim in dims for symbol in dim.symbols()}


def _call(stage: Stage, names: Mapping[Tensor, str]) -> _Call:
    shapes = ", ".join(f"[{', '.join(map(str, t.dims))}]" for t in stage.outputs) or "the cache"
    inputs = [_view(t, names) for t in stage.inputs]
    outputs = [_view(t, names) for t in stage.outputs]
    params = [_param(value) for _, value in stage.params]
    return _Call(
        comment=_comment(f"{stage.location}: {shapes}"),
        kernel=stage.kernel,
        inputs=_list("IN", inputs, ",\n          "),
        outputs=_list("OUT", outputs, ",\n           "),
        params=_list("PARAMS", params, ", "),
    )


def _list(macro: str, items: list[str], separator: str) -> str:
    return f"{macro}({len(items)}, {separator.join(items)})" if items else "NOTHING"


def _view(tensor: Tensor | None, names: Mapping[Tensor, str]) -> str:
    if tensor is None:
        return "ABSENT"
    dtype, dims = C_DTYPES[tensor.dtype], ", ".join(expression(d) for d in tensor.dims)
    view = f"VIEW({dtype}, {len(tensor.dims)}, {dims})" if dims else f"SCALAR({dtype})"
    if tensor.storage == program.IO:
        return f"bound({names[tensor]}, {view})"
    where = "weight" if tensor.storage == program.WEIGHT else "arena"
    return f"{where}(&c, {tensor.offset}, {view})"


def _param(value: int | float | str | Dim) -> str:
    assert not isinstance(value, str), "--emit c and --place exclude each other"
    if isinstance(value, Dim):
        return expression(value)
    return f"real({value!r})" if isinstance(value, float) else f"INT64_C({value})"
