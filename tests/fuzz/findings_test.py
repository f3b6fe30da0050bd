"""What mutants once ended in, each as the smallest model that did: a line with a code now."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.mllm.constants import constant_array
from mllm_compiler.dialects.onnx_attributes import tensor_attribute
from tests.fuzz.attempt import COMPILED, Sandbox
from tests.fuzz.seeds import FUNCTIONS, FUNCTIONS_HEADER
from tests.importer import onnx_models as models

DEEP = "(" * 3000 + "n" + ")" * 3000
WIDE = "(a+b+c+d+e)*" * 24 + "(a+b)"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("findings").resolve())


def relu(extent: str) -> onnx.ModelProto:
    """y = Relu(x), where an extent of x is spelled as given."""
    model = models.model_of("g (float[n, 2] x) => (float[m, 2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = extent
    return model


def heads(count: int) -> onnx.ModelProto:
    """An attention of so many heads."""
    return models.model_of(
        f"""
        g (float[2, 3, 8] x, float[8, 24] w, float[24] b) => (float[2, 3, 8] y) {{
          y = com.microsoft.Attention<num_heads = {count}>(x, w, b)
        }}
        """
    )


def packed(scales: int, *, rows: str = "(float[2, 32] a)", constant: str = "") -> onnx.ModelProto:
    """A product with 32 codes of 4 bits and so many scales."""
    codes, numbers = ", ".join(["7"] * 16), ", ".join(["1.0"] * scales)
    return models.model_of(
        f"""
        g {rows} => (float[2, 1] y)
        <uint8[1, 1, 16] b = {{{codes}}}, float[{scales}] s = {{{numbers}}}{constant}> {{
          y = com.microsoft.MatMulNBits<K = 32, N = 1, bits = 4, block_size = 32>(a, b, s)
        }}
        """
    )


def long_name() -> onnx.ModelProto:
    model = relu("n")
    model.graph.node[0].input[0] = "x" * 50_000
    return model


FINDINGS = {
    "brackets in brackets": (relu(DEEP), COMPILED),
    "a product of many sums": (relu(WIDE), COMPILED),
    "a product of many factors": (relu("n*" * 200 + "n"), COMPILED),
    "a number of many digits": (relu("9" * 5000), COMPILED),
    "a large number": (relu("9" * 40), "MLC-R006"),
    "a name of many characters": (long_name(), "MLC-I010"),
    "no heads": (heads(0), "MLC-I015"),
    "heads below zero": (heads(-2), "MLC-I014"),
    "three scales for one block": (packed(3), "MLC-I014"),
    "constant rows that are too short": (
        packed(1, rows="()", constant=", float[2, 1] a = {1.0, 2.0}"),
        "MLC-D005",
    ),
    "a filter of a size that varies": (
        models.model_of(
            "g (float[1, 1, 5, 5] x, float[n, 1, 3, 3] w) => (float[1, n, 3, 3] y) "
            "{ y = Conv(x, w) }"
        ),
        "MLC-R003",
    ),
    "an extent below zero": (relu("-1"), COMPILED),
    "text that nothing computes": (
        models.model_of("g (string[2] x) => (string[2] x) { y = StringNormalizer(x) }"),
        "MLC-R001",
    ),
    "a tensor of nine dims": (
        models.model_of(f"g (float[{'1,' * 8}2] x) => (float[{'1,' * 8}2] y) {{ y = Relu(x) }}"),
        "MLC-R001",
    ),
    "an input of a type that the runtime lacks": (
        models.model_of("g (float[2] x, float8e5m2fnuz[5] z) => (float[2] y) { y = Relu(x) }"),
        "MLC-R001",
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_compiled_or_refused(name: str, sandbox: Sandbox) -> None:
    model, outcome = FINDINGS[name]
    assert sandbox.attempt(model.SerializeToString()) == outcome


def test_a_dimension_that_is_no_utf8_is_refused(sandbox: Sandbox) -> None:
    whole = relu("name").SerializeToString()
    assert sandbox.attempt(whole.replace(b"name", b"n\xff\xfee", 1)) == "MLC-I013"


def test_the_name_of_a_node_that_is_no_utf8_is_refused(sandbox: Sandbox) -> None:
    model = relu("n")
    model.graph.node[0].name = "name"
    whole = model.SerializeToString()
    assert sandbox.attempt(whole.replace(b"name", b"na\xdfe", 1)) == "MLC-I013"


def test_numbers_in_a_field_of_another_dtype_are_refused(sandbox: Sandbox) -> None:
    model = models.weighted()
    bias = model.graph.initializer[1]
    bias.ClearField("raw_data")
    bias.data_type = onnx.TensorProto.COMPLEX128
    bias.int64_data.extend(range(64))
    assert sandbox.attempt(model.SerializeToString()) == "MLC-I007"


def test_a_weight_of_no_known_dtype_is_refused(sandbox: Sandbox) -> None:
    model = models.weighted()
    model.graph.initializer.add(name="x", data_type=29, dims=[3], raw_data=bytes(24))
    assert sandbox.attempt(model.SerializeToString()) == "MLC-I007"


def test_a_constant_of_less_than_a_byte_is_no_array() -> None:
    numbers = tensor_attribute(np.zeros(3, ml_dtypes.float4_e2m1fn))
    assert constant_array(ConstantOp(numbers).results[0]) is None


def test_functions_that_stand_for_very_many_nodes_are_refused(sandbox: Sandbox) -> None:
    model = models.model_of("g (float[2] x) => (float[2] y) { y = many.f0(x) }")
    for at in range(24):
        function = model.functions.add(name=f"f{at}", domain="many", input=["a"], output=["c"])
        for domain, version in (("", 17), ("many", 1)):
            function.opset_import.add(domain=domain, version=version)
        name, domain = (f"f{at + 1}", "many") if at < 23 else ("Relu", "")
        function.node.add(op_type=name, domain=domain, input=["a"], output=["b"])
        function.node.add(op_type=name, domain=domain, input=["b"], output=["c"])
    model.opset_import.add(domain="many", version=1)
    assert sandbox.attempt(model.SerializeToString()) == "MLC-I011"


def test_a_function_whose_input_is_no_utf8_is_refused(sandbox: Sandbox) -> None:
    model = models.model_of(FUNCTIONS, header=FUNCTIONS_HEADER)
    model.functions[0].input[0] = "name"
    whole = model.SerializeToString()
    assert sandbox.attempt(whole.replace(b"name", b"na\xdfe", 1)) == "MLC-I013"


def test_a_gradient_of_nothing_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    model = models.model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.opset_import.add(domain="ai.onnx.preview.training", version=1)
    gradient = model.graph.node.add(op_type="Gradient", input=["x"], output=["dx"])
    gradient.domain = "ai.onnx.preview.training"
    gradient.attribute.add(name="xs", type=onnx.AttributeProto.STRINGS, strings=[b"x"])
    assert sandbox.attempt(model.SerializeToString()) == "MLC-I014"


def test_an_external_file_whose_name_is_no_utf8_is_refused(sandbox: Sandbox) -> None:
    model = models.model_of("g () => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Relu(w) }")
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="name.bin")
    whole = model.SerializeToString()
    assert sandbox.attempt(whole.replace(b"name", b"na\xdfe", 1)) == "MLC-I004"


def test_codes_without_a_scale_are_refused(sandbox: Sandbox) -> None:
    model = models.model_of(
        """
        g (uint8[4] a, float s, uint8 z) => (uint8[4] y) {
          y = com.microsoft.QLinearConcat<axis = 0>(s, z, a, "", z)
        }
        """.replace('""', "")
    )
    assert sandbox.attempt(model.SerializeToString()) == "MLC-I014"
