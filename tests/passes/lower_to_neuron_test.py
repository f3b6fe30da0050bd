"""What `lower-to-neuron` refuses: the plugin would stop there, or change the model in silence."""

from __future__ import annotations

import pytest
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.lower_to_neuron import LowerToNeuron
from mllm_compiler.passes.lower_to_tfl import LowerToTfl

ROWS = """
func.func @f(%x: tensor<2x64xf32>, %q: tensor<3x64x{codes}>) -> tensor<2x3xf32> {{
  %s = mllm.constant dense<1.0> : tensor<3x{blocks}x{scale}>
  %w = tfl.pseudo_qconst %q, %s {{block_size = {size} : i64}}
    : (tensor<3x64x{codes}>, tensor<3x{blocks}x{scale}>) -> tensor<3x64x{codes}>
  %y = tfl.fully_connected %x, %w, none {{fused_activation_function = "NONE",
    keep_num_dims = true, asymmetric_quantize_inputs = false}}
    : (tensor<2x64xf32>, tensor<3x64x{codes}>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}}
"""
BLOCKS = ROWS.format(codes="i4", blocks=2, scale="f16", size=32)
FOUR_BITS = ROWS.format(codes="i4", blocks=1, scale="f32", size=0)
EXACT_GELU = """
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = tfl.gelu %x {approximate = false} : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("text", "adapter", "why"),
    [
        (BLOCKS, "9.0.3", "stops at scales of blocks"),
        (FOUR_BITS, "8.2.24", "loses the scales of 4 bits with MediaTek's library 8.2.24"),
        (EXACT_GELU, "9.0.3", "computes the approximation"),
    ],
)
def test_a_trap_of_the_plugin_is_refused(text: str, adapter: str, why: str) -> None:
    context = make_context()
    module = Parser(context, text).parse_module()
    with pytest.raises(CompileError) as caught:
        run_passes(module, [LowerToNeuron(adapter=adapter)], context)
    assert caught.value.code == "MLC-R001"
    assert why in caught.value.message


def test_four_bits_pass_with_a_newer_library() -> None:
    context = make_context()
    module = Parser(context, FOUR_BITS).parse_module()
    run_passes(module, [LowerToNeuron(adapter="8.2.28")], context)
    assert "neuron.symm_per_channel" in str(module)


def test_a_choice_of_what_no_half_holds_is_refused() -> None:
    """-1e9 is infinite as a half, and 0 times it no number."""
    text = """
    func.func @f(%c: tensor<2xi1>, %x: tensor<2xf32>) -> tensor<2xf32> {
      %h = mllm.constant dense<-1.0e9> : tensor<f32>
      %y = mllm.select %c, %x, %h : (tensor<2xi1>, tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
      func.return %y : tensor<2xf32>
    }
    """
    context = make_context()
    module = Parser(context, text).parse_module()
    with pytest.raises(CompileError, match="a half times 0 must be 0"):
        run_passes(module, [LowerToTfl(target="neuron")], context)
