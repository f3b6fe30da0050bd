"""`lower-to-neuron`: operators of TFLite become what LiteRT's plugin for MediaTek makes of them.

    %y = tfl.fully_connected %x, %w, none {fused_activation_function = "NONE", ..} : ..
->
    %b = mllm.constant dense<0.0> : tensor<8xf32>
    %y = neuron.fully_connected %x, %w, %b {fuse = "NONE"} : ..

The plugin does this itself with a `.tflite`: the pass says what it is expected to record, so that a
file which it would refuse, or change in silence, is refused here. What it leaves to LiteRT stays.
Exact, but for weights of codes: LiteRT on a CPU also quantises the rows that they multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.passes.graphs import block_of, graphs, remove_dead
from mllm_compiler.passes.host_first import is_taken
from mllm_compiler.passes.lower_to_neuron.builder import Builder
from mllm_compiler.passes.lower_to_neuron.table import LEGALISATIONS, refused

OLDEST = "8.2.24"
"""The oldest version of MediaTek's library that the plugin was measured with."""


@dataclass(frozen=True)
class LowerToNeuron(ModulePass):
    """Legalises every graph of a module of tfl ops as the plugin does.

    Attributes:
        adapter: The version of MediaTek's library that the plugin will find.
    """

    name = "lower-to-neuron"
    adapter: str = OLDEST

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, the plugin refuses an operator, or loses its scales.
        """
        version = tuple(map(int, self.adapter.split(".")))
        for graph in graphs(op):
            ops = [o for o in block_of(graph).ops if is_taken(o)]
            if not ops:
                continue
            builder = Builder(graph, ops[0], store_of(ctx), adapter=version)
            for one in ops:
                builder.at = one
                legalise = LEGALISATIONS.get(type(one))
                if legalise is None:
                    raise refused(one, "it is no operation of Neuron", "use the target tflite")
                made = legalise(one, builder)
                for old, new in zip(one.results, made, strict=True):
                    old.replace_all_uses_with(new)
                one.detach()
                one.erase()
            remove_dead(graph)
