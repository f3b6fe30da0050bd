"""The valid models that are mutated: small ones of many kinds, all made by code."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnx import TensorProto

from tests.conformance.cases import cases
from tests.importer import onnx_models as models
from tests.passes.fused_models import CASES as FUSED
from tests.passes.quantised_models import CASES as QUANTISED

DATA = "model.data"
"""The file of external data beside the model."""

DATA_BYTES = np.arange(4096, dtype=np.uint8).tobytes()
LARGEST = 6000
"""Bytes of a case of the ONNX suite that is taken."""

ARITHMETIC = """
g (float[batch, seq, 8] x, float[2, 8, 3] w) => (float[batch, seq, a, b] y, float[m, n] z) {
  one = Constant<value = int64[1] {1}>()
  four = Constant<value = int64[1] {4}>()
  minus = Constant<value = int64[1] {-1}>()
  zeros = Constant<value = int64[8] {0, 0, 0, 1, 0, 0, 0, 0}>()
  shape = Shape(x)
  b = Gather<axis = 0>(shape, one)
  target = Concat<axis = 0>(minus, b, four, four)
  r = Reshape(x, target)
  t = Transpose<perm = [0, 1, 3, 2]>(r)
  s = Slice(t, one, four, one)
  p = Pad<mode = "constant">(s, zeros)
  y = Softmax<axis = -1>(t)
  c = Conv<kernel_shape = [3], pads = [1, 1], strides = [2]>(x, w)
  f = Flatten<axis = 1>(c)
  e = Expand(f, shape)
  k, i = TopK(f, one)
  z = Gemm<transA = 1>(k, f)
}
"""

CONTROL = """
g (float[n, 4] x, bool c, int64 trips) => (float[k, 4] y, float[2, n, 4] z) {
  [branch] h = If (c) <
    then_branch = a () => (float[n, 4] t) { t = Relu(x) },
    else_branch = b () => (float[n, 4] e) { m = Abs(x) e = Neg(m) }
  >
  [loop] y = Loop (trips, c, h) <
    body = l (int64 i, bool go, float[n, 4] v) => (bool on, float[n, 4] w) {
      on = Identity(go)
      w = Add(v, h)
    }
  >
  both = SequenceConstruct(h, x)
  z = ConcatFromSequence<axis = 0, new_axis = 1>(both)
}
"""

FUNCTIONS = """
g (float[2, 3] x) => (float[2, 3] y) { h = local.twice(x) y = local.scaled<by = 2.0>(h) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
twice (a) => (b) { c = local.scaled<by = 3.0>(a) b = Add(c, c) }
<domain: "local", opset_import: ["" : 17]>
scaled <by> (a) => (b) { k = Constant<value_float: float = @by>() b = Mul(a, k) }
"""
FUNCTIONS_HEADER = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'

ATTENTION = """
g (float[batch, seq, 16] x, float[16, 16] wq, float[16, 16] wk, float[16] gain, float[16] bias)
  => (float[batch, seq, 16] y) {
  heads = Constant<value = int64[4] {0, 0, 4, 4}>()
  flat = Constant<value = int64[3] {0, 0, 16}>()
  scale = Constant<value = float {0.5}>()
  n = LayerNormalization<axis = -1>(x, gain, bias)
  q = MatMul(n, wq)
  k = MatMul(n, wk)
  q4 = Reshape(q, heads)
  k4 = Reshape(k, heads)
  qt = Transpose<perm = [0, 2, 1, 3]>(q4)
  kt = Transpose<perm = [0, 2, 3, 1]>(k4)
  vt = Transpose<perm = [0, 2, 1, 3]>(k4)
  s = MatMul(qt, kt)
  ss = Mul(s, scale)
  p = Softmax<axis = -1>(ss)
  o = MatMul(p, vt)
  ot = Transpose<perm = [0, 2, 1, 3]>(o)
  of = Reshape(ot, flat)
  y = Add(of, x)
}
"""


def external() -> onnx.ModelProto:
    """The linear layer with its bias in the file of external data."""
    model = models.weighted()
    bias = model.graph.initializer[1]
    bias.ClearField("raw_data")
    bias.data_location = TensorProto.EXTERNAL
    for key, value in {"location": DATA, "offset": "128", "length": "128"}.items():
        entry = bias.external_data.add()
        entry.key, entry.value = key, value
    return model


@cache
def own() -> tuple[bytes, ...]:
    """The models of this file and those of fused and of quantised operators."""
    made = [
        models.model_of(ARITHMETIC),
        models.model_of(CONTROL),
        models.model_of(ATTENTION),
        models.model_of(FUNCTIONS, header=FUNCTIONS_HEADER),
        models.weighted(),
        external(),
        *(case.model() for case in (*FUSED, *QUANTISED)),
    ]
    return tuple(model.SerializeToString() for model in made)


@cache
def suite() -> tuple[bytes, ...]:
    """The small models of ONNX's own suite, which has every operator."""
    return tuple(case.model for case in cases().values() if len(case.model) <= LARGEST)
