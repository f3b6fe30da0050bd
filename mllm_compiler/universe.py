"""What plain `xdsl-opt` learns of this package through the entry point group `xdsl.universe`."""

from functools import partial

from xdsl.universe import Universe

from mllm_compiler.dialects import DIALECTS, dialect_factory
from mllm_compiler.pipelines import PASSES, pass_class

OURS = tuple(name for name in DIALECTS if name not in ("builtin", "func"))

MLLM_UNIVERSE = Universe(
    all_dialects={name: dialect_factory(name) for name in OURS},
    all_passes={name: partial(pass_class, name) for name in PASSES},
)
"""Our dialects and passes, each imported when it is met."""
