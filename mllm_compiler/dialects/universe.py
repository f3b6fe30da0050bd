"""What plain `xdsl-opt` learns from this package: our dialects."""

from xdsl.universe import Universe

from mllm_compiler.dialects import dialect_factory

MLLM_UNIVERSE = Universe(all_dialects={n: dialect_factory(n) for n in ("mllm", "onnx", "cpu")})
"""Found through the entry point group `xdsl.universe`."""
