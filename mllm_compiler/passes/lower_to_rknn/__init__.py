"""`lower-to-rknn`: every op of a graph becomes operators of Rockchip's toolkit; exact to rounding.

    %y = mllm.rms_norm %x, %w {epsilon = 1.0e-5 : f64} : (tensor<1x4x8xf32>, ..) -> ..
->
    %a = rknn.Mul %x, %x : ..
    %b = rknn.ReduceMean %a, %axes {keepdims = 1 : i64} : ..
    %c = rknn.Add %b, %epsilon : ..
    %d = rknn.Sqrt %c : ..
    %e = rknn.Div %x, %d : ..
    %y = rknn.Mul %e, %w : ..

which is the spelling that the toolkit makes one operator of its own of. What masks hide gets a
score of -1e4 more (-32 where values have 8 bits): a query that sees no key attends by score, where
mllm attends to all alike. Shapes must be static:
`--dim` fixes a dimension or makes buckets of it. The module is told what to build for whom:
`rknn.build = #rknn.build<"rk3588", "f16", "channel">`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.transforms.common_subexpression_elimination import cse

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.rknn import BuildAttr, RknnOp
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import target
from mllm_compiler.passes.lower_to_rknn.builder import Builder
from mllm_compiler.passes.lower_to_rknn.table import LOWERINGS
from mllm_compiler.passes.lowered_attention import positions_of
from mllm_compiler.passes.lowering import HALF_HIDDEN, lower_graphs
from mllm_compiler.quantisation.recipe import DYNAMIC, HALF, STATIC, read_recipe
from mllm_compiler.weights import WeightStore

BUILD: Final = "rknn.build"
"""The attribute of a module that says what is built."""

FLOAT: Final = "f16"
"""The form of a module without a recipe."""

HIDDEN: Final[Mapping[str, float]] = {"w8a8": -32.0}
"""What masks add to scores, by form: codes of 8 bits have no room for both more and a score."""


@dataclass(frozen=True)
class LowerToRknn(ModulePass):
    """Lowers every graph of a module from mllm to rknn.

    Attributes:
        soc: The chip.
        recipe: The recipe that products were quantised by; without one they are f16.
    """

    name = "lower-to-rknn"
    soc: str = "rk3588"
    recipe: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no operators; MLC-R007, the chip is not known, or
                lacks the form that the recipe asks for.
        """
        form, method = asked_by(self.recipe)
        hidden = HIDDEN.get(form, HALF_HIDDEN)
        target("rknn").soc(self.soc).check_form(form, f"--soc {self.soc}")

        def builder(graph: FuncOp, at: Operation, store: WeightStore) -> Builder:
            return Builder(graph, at, store, hidden=hidden, positions=positions_of(graph))

        lower_graphs(
            op,
            store_of(ctx),
            target="rknn",
            lowerings=LOWERINGS,
            builder=builder,
            own=RknnOp,
        )
        # Buckets leave the mask of each layer to itself; here it is on the CPU.
        cse(op)
        op.attributes[BUILD] = BuildAttr.of(self.soc, form, method)


def asked_by(word: str) -> tuple[str, str]:
    """The toolkit's name of a recipe's form, and which weights share a scale.

    Raises:
        CompileError: MLC-Q001, there is no such recipe; MLC-R001, the toolkit has no such form.
    """
    if not word:
        return FLOAT, "channel"
    recipe = read_recipe(word)
    linears = recipe.linears
    if linears.bits >= HALF:
        return FLOAT, "channel"
    if linears.activations == DYNAMIC:
        raise CompileError(
            "MLC-R001",
            "the toolkit quantises no activations as a model runs",
            location=word,
            remedy='give a recipe with activations = "static", or [values], or 4 bits',
        )
    values = 8 if linears.activations == STATIC else HALF
    if recipe.values is not None:
        values = recipe.values.bits
    method = f"group{linears.block_size}" if linears.block_size else "channel"
    return f"w{linears.bits}a{values}", method


def build_of(module: ModuleOp) -> BuildAttr:
    """What a lowered module says that is built."""
    build = module.attributes[BUILD]
    assert isinstance(build, BuildAttr)
    return build
