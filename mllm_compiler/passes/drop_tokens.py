"""`drop-tokens`: an image encoder keeps its best tokens from a layer on; approximate.

    drop-tokens{after=2 keep=196 score=attention cover=7}

    %q, %k, %v = ... : [1, 2305, 384]                  // the second layer
    %a = mllm.attention %q, %k, %v
    %x1 = mllm.binary add %x0, (mllm.linear %a, ..)
    %y = ... %x1 ...

becomes

    %i = ... the class token and the 196 best of 2,304, by the attention of %q's first row to %k
    %x = mllm.token_gather %x0, %i : [1, 197, 384]
    %q = mllm.linear (mllm.token_gather .., %i), ..
    %a = mllm.attention %q, %k, %v                     // kept tokens still look at all of them
    %x1 = mllm.binary add %x, (mllm.linear %a, ..) : [1, 197, 384]
    %y = ... %x1 ...

The layers of `after` choose, each down to its budget of `keep` patches; the first `prefix` tokens,
class token and registers, stay. The score is the class token's attention (EViT, Liang et al. 2022)
or the norm of the features that the layer reads; `uniform` takes an even grid, which looks at
nothing: what a score must beat. A cover of `cover` x `cover` cells keeps the best token of each.
With `budget=NAME` the last budget is chosen at each run: it is the length of an input of that name,
whose elements are not read; at most `keep`, at least a token a cell. An attention mask, or an op
behind the layer that needs all tokens, is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isqrt

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, f32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BlobAttr,
    BoundAttr,
    BroadcastOp,
    ConstantOp,
    TokenGatherOp,
    WeightOp,
)
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    graphs,
    location_of,
    named,
    pipeline_of,
    remove_dead,
    role_of,
)
from mllm_compiler.passes.kept_rows import (
    ROWS,
    followers,
    hoist,
    put_before,
    retype,
    retype_readers,
)
from mllm_compiler.passes.token_choice import (
    Cover,
    Put,
    by_attention,
    by_norm,
    cells_of,
    choose,
    even_grid,
)
from mllm_compiler.weights import WeightStore

SCORES = ("attention", "norm", "uniform")


@dataclass(frozen=True)
class DropTokens(ModulePass):
    """Keeps the best tokens of the encoder `graph`; without a name, of all graphs of that role."""

    name = "drop-tokens"

    after: tuple[int, ...]
    keep: tuple[int, ...]
    score: str = "attention"
    cover: int = 7
    prefix: int = 1
    budget: str | None = None
    graph: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Drops the tokens.

        Raises:
            CompileError: MLC-P020, the options fit no model; MLC-P021, they do not fit this one.
        """
        self._check()
        wanted = [
            g
            for g in graphs(op)
            if self.graph == g.sym_name.data or (self.graph is None and role_of(g) == "encoder")
        ]
        if not wanted:
            raise _misfit(self.graph or "the model", "no graph is an encoder of images")
        for graph in wanted:
            self._drop(op, graph, store_of(ctx))

    def _check(self) -> None:
        falling = list(self.keep) == sorted(set(self.keep), reverse=True)
        rising = list(self.after) == sorted(set(self.after)) and min(self.after, default=0) > 0
        faults = [
            (len(self.after) == len(self.keep) > 0, "after and keep have one number a stage"),
            (rising, "the layers of after count from 1 and rise"),
            (falling, "the budgets of keep fall"),
            (self.score in SCORES, "score is attention, norm or uniform"),
            (self.score != "uniform" or len(self.keep) == 1, "an even grid is taken once"),
            (self.prefix >= (self.score == "attention"), "the first token pays the attention"),
            (self.cover >= 0, "cover is no negative number"),
            (min(self.keep, default=0) >= max(1, self.cover**2), "keep has a token for each cell"),
        ]
        for holds, rule in faults:
            if not holds:
                raise CompileError(
                    "MLC-P020",
                    f"these options fit no model: {rule}",
                    location=self.name,
                    remedy="such as drop-tokens{after=2 keep=196 score=attention cover=7}",
                )

    def _drop(self, module: ModuleOp, graph: FuncOp, store: WeightStore) -> None:
        layers = [op for op in block_of(graph).ops if isinstance(op, AttentionOp)]
        if len(layers) < self.after[-1]:
            raise _misfit(graph.sym_name.data, f"it has {len(layers)} layers of attention")
        stages = [(layers[number - 1], _cut(graph, layers[number - 1])) for number in self.after]
        cover = self._first_cover(stages[0][0], store)
        for (attention, cut), keep in zip(stages, self.keep, strict=True):
            budget = Dim.const(keep)
            if self.budget is not None and keep == self.keep[-1]:
                budget = self._argument(module, graph)
            cover = self._stage(attention, cut, budget, cover, store)
        remove_dead(graph)
        graph.update_function_type()
        retype_readers(module, graph)

    def _stage(
        self,
        attention: AttentionOp,
        cut: Operation,
        keep: Dim,
        cover: Cover | None,
        store: WeightStore,
    ) -> Cover | None:
        """One layer keeps its best; the answer is the cover of what is left."""
        after = cut.next_op
        assert after is not None

        def put(op: Operation) -> SSAValue:
            return put_before(after, op).results[0]

        behind = followers(cut.results[0], self.prefix)
        scores = self._scores(attention, store, put)
        patches, tokens = choose(scores, keep, self.prefix, cover, put)
        taker = put_before(after, TokenGatherOp(cut.results[0], tokens))
        kept = taker.results[0]
        cut.results[0].replace_uses_with_if(kept, lambda use: use.operation is not taker)
        if cover is not None:
            batch, count = shape_of(patches)[0], shape_of(cover.cells)[1]
            cells = put(BroadcastOp(cover.cells, (batch, count, 1)))
            cover = Cover(put(TokenGatherOp(cells, patches)), cover.count)
        for op in behind:
            retype(op, shape_of(kept)[ROWS])
        hoist(taker, partial(_gather, tokens))
        return cover

    def _scores(self, attention: AttentionOp, store: WeightStore, put: Put) -> SSAValue:
        """The score of each token, [B, tokens]."""
        if self.score == "norm":
            return by_norm(read_by(attention), put)
        if self.score == "attention":
            return by_attention(attention, put)
        batch, tokens, _ = shape_of(attention.q)
        patches = self._patches(attention)
        grid = even_grid(patches, self.keep[0]).reshape(1, patches)
        grid = np.pad(grid, ((0, 0), (self.prefix, 0)))
        weight = WeightOp(BlobAttr.of(store.add(grid), f32, grid.shape), "token_grid")
        return put(BroadcastOp(put(weight), (batch, tokens)))

    def _patches(self, attention: AttentionOp) -> int:
        """The patches of the square image that a layer reads."""
        rows = shape_of(attention.q)[ROWS].as_int()
        patches = 0 if rows is None else rows - self.prefix
        if patches < 1 or isqrt(patches) ** 2 != patches or isqrt(patches) < self.cover:
            raise _misfit(
                location_of(attention),
                f"{shape_of(attention.q)[ROWS]} tokens, {self.prefix} of them before the patches, "
                f"are no square image of {self.cover} x {self.cover} cells or more",
            )
        return patches

    def _first_cover(self, attention: AttentionOp, store: WeightStore) -> Cover | None:
        """The cells of all patches, before the first op that reads tokens."""
        if self.cover == 0:
            return None
        patches = self._patches(attention)
        cells = cells_of(patches, self.cover).reshape(1, patches, 1)
        weight = WeightOp(BlobAttr.of(store.add(cells), i64, cells.shape), "token_cells")
        return Cover(put_before(attention, weight).results[0], self.cover**2)

    def _argument(self, module: ModuleOp, graph: FuncOp) -> Dim:
        """The input whose length is the budget of each run."""
        assert self.budget is not None
        symbol, pipeline = Dim.symbol(self.budget), pipeline_of(module)
        if self.budget in (*argument_names(graph), *pipeline.bound_of):
            raise _misfit(graph.sym_name.data, f"it has an input or symbol {self.budget} already")
        block, names = block_of(graph), argument_names(graph)
        block.insert_arg(tensor_of(i64, (symbol,)), len(block.args))
        graph.properties["arg_attrs"] = named([*names, self.budget])
        least = max(1, self.cover**2)
        bound = BoundAttr.of(self.budget, self.keep[-1], least=least)
        pipeline.properties["bounds"] = ArrayAttr([*pipeline.bounds, bound])
        return symbol


def _gather(tokens: SSAValue, x: SSAValue) -> Operation:
    return TokenGatherOp(x, tokens)


def _cut(graph: FuncOp, attention: AttentionOp) -> Operation:
    """The first op behind a layer's attention that alone is needed further on."""
    ops = list(block_of(graph).ops)
    needed = _needed(graph)
    if attention.key_mask is not None or attention.bias is not None or attention.causal.value.data:
        raise _misfit(location_of(attention), "its attention is masked")
    for op in ops[ops.index(attention) + 1 :]:
        if len(op.results) == 1 and needed[op] == {op.results[0]} and rank_of(op.results[0]) == 3:
            return op
    raise _misfit(location_of(attention), "no value behind it is all that later layers read")


def read_by(attention: AttentionOp) -> SSAValue:
    """The last value before a layer's attention that alone is needed further on."""
    graph = attention.parent_op()
    assert isinstance(graph, FuncOp)
    needed, op = _needed(graph), attention.prev_op
    while op is not None:
        if len(needed[op]) == 1 and rank_of(value := next(iter(needed[op]))) == 3:
            return value
        op = op.prev_op
    if len(graph.args) == 1 and rank_of(graph.args[0]) == 3:
        return graph.args[0]
    raise _misfit(location_of(attention), "its layer reads more than one value")


def _needed(graph: FuncOp) -> dict[Operation, set[SSAValue]]:
    """Behind each op, the values so far that later ops read; those of weights alone are not."""
    varying: set[SSAValue] = set(block_of(graph).args)
    for op in block_of(graph).ops:
        if not isinstance(op, WeightOp | ConstantOp) and any(v in varying for v in op.operands):
            varying.update(op.results)
    needed: dict[Operation, set[SSAValue]] = {}
    live: set[SSAValue] = set()
    for op in reversed(list(block_of(graph).ops)):
        needed[op] = set(live)
        live -= set(op.results)
        if not isinstance(op, ReturnOp):
            live |= {v for v in op.operands if v in varying}
    return needed


def _misfit(where: str, why: str) -> CompileError:
    return CompileError(
        "MLC-P021",
        f"its tokens cannot be dropped: {why}",
        location=where,
        remedy="name another layer, graph or cover (docs/pruning.md)",
    )
