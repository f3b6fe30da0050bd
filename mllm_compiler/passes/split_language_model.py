"""`split-language-model`: a decoder becomes the entries that generation calls; exact.

    @decoder(ids, mask, positions, past..) -> logits of all tokens, present..
->
    @decoder    as it is
    @prefill    logits of the last token only: the last row is taken before the head, the last norm
                and the last feed-forward block, and before every op that works row by row
    @decode     the same for one token
    @embed      ids -> embeddings, where the decoder takes embeddings

In prefill and decode every token attends to all that came before it, so that the mask of ones and
the positions past, past + 1, .. are no inputs any more. Where padded graphs serve a decoder, it
only gets embed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.locations import named as named_location
from mllm_compiler.dialects.mllm import CacheAttr, EdgeAttr, VariantAttr, array_of
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes import kept_rows
from mllm_compiler.passes.attention_operands import with_operands
from mllm_compiler.passes.graphs import (
    ROLE,
    SOURCE,
    VARIANT,
    argument,
    block_of,
    callees,
    erase_arguments,
    functions,
    graphs,
    located_clone,
    named,
    pipeline_of,
    real_dims,
    remove_dead,
    result_names,
    role_of,
    users,
)
from mllm_compiler.passes.quantised_weights import looked_up
from mllm_compiler.passes.symbols import substitute

IDS = "input_ids"
EMBEDDINGS = "inputs_embeds"
MASK = "attention_mask"
POSITIONS = "position_ids"
LOGITS = "logits"


@dataclass(frozen=True)
class SplitLanguageModel(ModulePass):
    """Makes prefill and decode from each graph whose role is language-model.

    Attributes:
        embedding: `graph:weight`, the table that `embed` looks tokens up in.
    """

    name = "split-language-model"
    embedding: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Adds the entries behind each language model.

        Raises:
            CompileError: MLC-R004, the graph is no language model; MLC-R005, no such embedding.
        """
        for graph in graphs(op):
            if role_of(graph) == "language-model" and VARIANT not in graph.attributes:
                split(op, graph, self.embedding)
        _embed_padded(op, self.embedding)


def split(module: ModuleOp, graph: FuncOp, embedding: str) -> None:
    """Adds prefill, decode and embed of one language model."""
    tokens = token_input(graph)
    sequence = shape_of(tokens)[1].as_symbol()
    if sequence is None:
        return
    prefix = _prefix(module, graph)
    prefill = derive(module, graph, f"{prefix}prefill", "prefill")
    caches = {c.graph.data: c for c in pipeline_of(module).caches}
    past = _past(prefill, caches.get(graph.sym_name.data))
    _drop_mask(prefill, past + Dim.symbol(sequence))
    _number_positions(prefill, past)
    remove_dead(prefill)
    decode = derive(module, prefill, f"{prefix}decode", "decode")
    substitute(decode, {sequence: Dim.const(1)})
    kept_rows.keep_last_row(prefill, LOGITS)
    where, _, weight = embedding.partition(":")
    embeddings = argument(graph, EMBEDDINGS)
    if where == graph.sym_name.data and embeddings is not None:
        _embed(module, graph, f"{prefix}embed", weight, shape_of(embeddings)[:-1])


def token_input(graph: FuncOp) -> SSAValue:
    """The ids or embeddings that a language model takes.

    Raises:
        CompileError: MLC-R004, it takes neither, or returns no logits.
    """
    found = [v for name in (IDS, EMBEDDINGS) if (v := argument(graph, name)) is not None]
    name = graph.sym_name.data
    remedy = "set the graph's role in model.toml"
    if not found or len(shape_of(found[0])) < 2:
        raise CompileError(
            "MLC-R004",
            "no input named 'input_ids' or 'inputs_embeds'",
            location=name,
            remedy=remedy,
        )
    if LOGITS not in result_names(graph):
        raise CompileError("MLC-R004", "no result named 'logits'", location=name, remedy=remedy)
    return found[0]


def derive(module: ModuleOp, graph: FuncOp, name: str, role: str) -> FuncOp:
    """A copy of a graph under another name, with its edges, caches and source."""
    made = located_clone(graph)
    made.properties["sym_name"] = StringAttr(name)
    made.attributes[ROLE] = StringAttr(role)
    made.attributes.setdefault(SOURCE, StringAttr(graph.sym_name.data))
    module.body.block.insert_op_after(made, graph)
    pipeline = pipeline_of(module)
    edges = [e for e in pipeline.edges if e.consumer.data == graph.sym_name.data]
    copies = [EdgeAttr.of(name, e.input.data, e.producer.data, e.output.data) for e in edges]
    pipeline.properties["edges"] = ArrayAttr([*pipeline.edges, *copies])
    caches = [c for c in pipeline.caches if c.graph.data == graph.sym_name.data]
    named_caches = [
        CacheAttr.of(name, c.key.data, c.value.data, c.out.data, c.layers.data) for c in caches
    ]
    pipeline.properties["caches"] = ArrayAttr([*pipeline.caches, *named_caches])
    return made


def _prefix(module: ModuleOp, graph: FuncOp) -> str:
    """Nothing for the only language model of a module, else its name."""
    models = [g for g in graphs(module) if role_of(g) == "language-model"]
    return "" if len(models) == 1 else f"{graph.sym_name.data}_"


def _past(graph: FuncOp, cache: CacheAttr | None) -> Dim:
    key = None if cache is None else argument(graph, cache.key_name(0))
    return Dim.const(0) if key is None else shape_of(key)[2]


def _drop_mask(graph: FuncOp, total: Dim) -> None:
    """The mask is all ones: attention does without it, anything else reads ones."""
    mask = argument(graph, MASK)
    if mask is None:
        return
    symbol = shape_of(mask)[-1].as_symbol()
    if symbol is not None:
        substitute(graph, {symbol: total})
        mask = argument(graph, MASK)
        assert mask is not None
    one = mllm.ConstantOp.of(np.ones((), dtype_of(element_of(mask))))
    ones = mllm.BroadcastOp(one.result, shape_of(mask))
    _replace_argument(graph, MASK, mask, [one, ones])
    for op in list(block_of(graph).ops):
        attends = isinstance(op, mllm.AttentionOp | mllm.CachedAttentionOp)
        if attends and op.key_mask and _all_ones(op.key_mask):
            Rewriter.replace_op(op, with_operands(op, key_mask=None))


def _all_ones(value: SSAValue) -> bool:
    """Whether no element of a mask is zero."""
    owner = value.owner
    if isinstance(owner, mllm.ConstantOp):
        return bool(array_of(owner.value).all())
    passes = (mllm.BroadcastOp, mllm.CastOp, mllm.ReshapeOp, mllm.SliceOp)
    return isinstance(owner, passes) and _all_ones(owner.x)


def _number_positions(graph: FuncOp, past: Dim) -> None:
    """The tokens stand at past, past + 1, and so on."""
    positions = argument(graph, POSITIONS)
    if positions is None or len(shape_of(positions)) != 2:
        return
    batch, tokens = shape_of(positions)
    count = mllm.IotaOp(tokens, past)
    row = mllm.ReshapeOp(count.result, (Dim.const(1), tokens))
    made = [count, row, mllm.BroadcastOp(row.result, (batch, tokens))]
    _replace_argument(graph, POSITIONS, positions, made)


def _replace_argument(graph: FuncOp, name: str, value: SSAValue, ops: Sequence[Operation]) -> None:
    first = block_of(graph).first_op
    assert first is not None
    for op in ops:
        op.location = named_location(name)
    block_of(graph).insert_ops_before(ops, first)
    value.replace_all_uses_with(ops[-1].results[0])
    erase_arguments(graph, {name})


def _embed_padded(module: ModuleOp, embedding: str) -> None:
    """Where padded graphs serve a language model: one look-up, of any number of ids."""
    where, _, weight = embedding.partition(":")
    for graph in graphs(module):
        variant = graph.attributes.get(VARIANT)
        if not isinstance(variant, VariantAttr) or variant.entry.data != where:
            continue
        dims = real_dims(graph.arg_attrs).get(EMBEDDINGS)
        if dims is not None:
            _embed(module, graph, "embed", weight, dims[:-1])
        return


def _embed(module: ModuleOp, graph: FuncOp, name: str, weight: str, dims: Sequence[Dim]) -> None:
    ids = tensor_of(i64, dims)
    made = FuncOp(name, ([ids], []))
    embeddings = argument(graph, EMBEDDINGS)
    assert embeddings is not None
    table = _weight_of(module, graph, weight)
    ops = _looked_up(table, block_of(made).args[0], element_of(embeddings))
    for op in ops:
        op.location = named_location(weight)
    block_of(made).add_ops([*ops, ReturnOp(ops[-1].results[0])])
    made.properties |= {"arg_attrs": named([IDS]), "res_attrs": named([EMBEDDINGS])}
    made.attributes |= {ROLE: StringAttr("embedding")}
    made.update_function_type()
    module.body.block.insert_op_before(made, graph)


def _looked_up(table: mllm.WeightOp, ids: SSAValue, element: Attribute) -> list[Operation]:
    """A look-up in a weight, or in its codes, as numbers, which the last op gives."""
    tables, size = [table.clone()], None
    for user in users(table.result):
        sides: Sequence[SSAValue | None] = ()
        if isinstance(user, mllm.QuantizedLinearOp):
            sides, size = (user.weight_scale, user.weight_zero), value_of(user.block_size)
        elif isinstance(user, mllm.DequantizeOp):
            sides, size = (user.scale, user.zero_point), value_of(user.block_size)
        found = [v.owner for v in sides if v is not None]
        tables += [owner.clone() for owner in found if isinstance(owner, mllm.WeightOp)]
        if found:
            break
    return [*tables, *looked_up(tables, ids, size, element)]


def _weight_of(module: ModuleOp, graph: FuncOp, name: str) -> mllm.WeightOp:
    """The weight of a name in a graph, or in a function of a device that it calls."""
    called = [f for f in functions(module) if f.sym_name.data in callees(graph)]
    found = {
        op.weight_name.data: op
        for function in (graph, *called)
        for op in block_of(function).ops
        if isinstance(op, mllm.WeightOp) and op.weight_name
    }
    if name in found:
        return found[name]
    near = get_close_matches(name, found, n=1, cutoff=0.0)
    remedy = f"the nearest is '{near[0]}'" if near else "it has no weights"
    message = f"{graph.sym_name.data} has no weight '{name}'"
    raise CompileError("MLC-R005", message, location="[text].embedding", remedy=remedy)
