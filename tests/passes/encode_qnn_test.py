"""An HTP without halves refuses them by the op's name."""

from __future__ import annotations

import pytest
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.encode_qnn import EncodeQnn

GRAPH = """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32>
    attributes {{qnn.soc = #qnn.soc<"{soc}", {model}, {arch}>}} {{
  %y = qnn.relu %x : (tensor<4xf32>) -> tensor<4xf32> loc("/relu")
  func.return %y : tensor<4xf32>
}}"""


@pytest.mark.parametrize(("soc", "model", "arch"), [("sm8350", 30, 68), ("sm8450", 36, 69)])
def test_halves_are_for_chips_that_have_them(soc: str, model: int, arch: int) -> None:
    context = make_context()
    text = GRAPH.format(soc=soc, model=model, arch=arch)
    module = Parser(context, text).parse_module()
    if arch >= 69:
        EncodeQnn().apply(context, module)
        module.verify()
        return
    with pytest.raises(CompileError) as caught:
        EncodeQnn().apply(context, module)
    assert caught.value.code == "MLC-R008"
    assert caught.value.exit_code == 3
    assert "from v69 on, this is v68" in caught.value.message
