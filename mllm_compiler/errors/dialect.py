"""Codes of the area "dialect"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-D001": ErrorCode(
        title="an input does not fit the graph's argument",
        exit=1,
        cause="A graph was run with an array whose rank, dtype or extents contradict the "
        "argument's type or the other inputs, or an input is missing.",
        example="input 'attention_mask': error: 'total_sequence_length' is 12 elsewhere and 11 "
        "here [MLC-D001]",
        remedy="Give every input its declared dtype and rank, and equal extents to dims of one "
        "name; `mllmc bundle inspect` lists the inputs.",
    ),
    "MLC-D002": ErrorCode(
        title="an op has no meaning in the reference",
        exit=1,
        cause="The module has an op that the reference executor cannot compute: an operator of a "
        "custom domain, or one that ONNX's own reference lacks.",
        example="/model/Custom: error: 'onnx.custom' has no meaning in the reference [MLC-D002]",
        remedy="Replace the node by standard operators before export.",
    ),
    "MLC-D003": ErrorCode(
        title="a result contradicts its type",
        exit=1,
        cause="An op made a tensor of another shape than its type promises: the model's declared "
        "shapes (value_info) are wrong, or its input breaks an assumption of the model.",
        example="/model/Reshape: error: 'mllm.reshape' made a tensor of shape [2, 7] where "
        "tensor<2x8xf32> is promised [MLC-D003]",
        remedy="Remove the model's value_info or run shape inference on it again.",
    ),
    "MLC-D004": ErrorCode(
        title="no graph of that name",
        exit=2,
        cause="A graph was asked for that the module does not have.",
        example="error: the module has no graph 'decode' (it has: vision, decoder) [MLC-D004]",
        remedy="Use one of the names that the message lists.",
    ),
    "MLC-D005": ErrorCode(
        title="an op violates its contract",
        exit=1,
        cause="An op of the IR breaks a constraint that its documentation numbers.",
        example="/model/norm: error: 'mllm.rms_norm' C1: weight must be [D] [MLC-D005]",
        remedy="Read the constraint in docs/dialects.md; a dump that was edited by hand is at "
        "fault, or the pass that ran last.",
    ),
}
