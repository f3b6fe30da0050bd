"""The meanings of the `mllm` dialect."""

from mllm_compiler.reference import (
    mllm_attention,
    mllm_elementwise,
    mllm_fused,
    mllm_linear,
    mllm_quant,
    mllm_scan,
    mllm_shape,
    mllm_vision,
)
from mllm_compiler.reference.executor import Meaning

MEANINGS: dict[str, Meaning] = {
    **mllm_elementwise.MEANINGS,
    **mllm_linear.MEANINGS,
    **mllm_attention.MEANINGS,
    **mllm_fused.MEANINGS,
    **mllm_vision.MEANINGS,
    **mllm_shape.MEANINGS,
    **mllm_quant.MEANINGS,
    **mllm_scan.MEANINGS,
}
"""Op name to meaning."""
