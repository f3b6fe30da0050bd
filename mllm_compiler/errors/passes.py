"""Codes of the area "passes"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-P001": ErrorCode(
        title="A pass does not keep what it promises",
        exit=3,
        cause="With `--validate` each graph is run before and after each pass: on the samples of "
        "`--data`, on an ordinary seeded input, and on adversarial ones (denormal and large "
        "numbers, masks, lengths, an empty past). A result moved further than the pass's "
        "tolerance, or a graph can no longer be run.",
        example="decoder: error: 'lift-attention' changed 'logits' by 3.10e-02 on the input 'mask "
        "left padded', it promises at most 2e-05; the first node that moved is "
        "/model/layers.0/self_attn/MatMul_1 [MLC-P001] (--dump-dir shows the module before and "
        "after; please report it)",
        remedy="This is a fault of the pass: compile with `--dump-dir` and report the dumps "
        "before and after it.",
    ),
    "MLC-P002": ErrorCode(
        title="An operation cannot be padded",
        exit=3,
        cause="A dimension has buckets, so inputs are padded to them. The operation would mix "
        "padding with real elements in a way that no mask takes out again, or its shape depends on "
        "data.",
        example="/head/Resize: error: 'mllm.resize' cannot be padded: nothing is known of its "
        "padding [MLC-P002] (fix the dimension with --dim NAME=8, or leave its buckets out)",
        remedy="Fix the dimension with `--dim NAME=8`, leave its buckets out where the target runs "
        "dynamic shapes, or change the operation in the model.",
    ),
    "MLC-P003": ErrorCode(
        title="Too many graphs of static shapes",
        exit=1,
        cause="A graph is made for each choice of the buckets of its dimensions, and there are too "
        "many choices.",
        example="decoder: error: the buckets make 400 graphs, at most 256 are made [MLC-P003] "
        "(give fewer buckets)",
        remedy="Give fewer buckets: each costs up to twice the work of the one below it when they "
        "double.",
    ),
    "MLC-P020": ErrorCode(
        title="Options of a pass that prunes fit no model",
        exit=2,
        cause="The numbers of stages differ, budgets do not fall, a budget is smaller than the "
        "cover's cells, heads and share are both given or neither, or a word is unknown.",
        example="drop-tokens: error: these options fit no model: the budgets of keep fall "
        "[MLC-P020] (such as drop-tokens{after=2 keep=196 score=attention cover=7})",
        remedy="Correct the option; docs/pruning.md lists them.",
    ),
    "MLC-P021": ErrorCode(
        title="A model cannot be pruned as asked",
        exit=1,
        cause="Its layers or heads are fewer than asked for, its attention is masked, its tokens "
        "are no square image, an operation behind the layer needs all tokens, heads that share "
        "keys go together, or there are no calibration inputs.",
        example="/head/Reshape: error: its tokens cannot be dropped: 'mllm.reshape' needs all of "
        "them [MLC-P021] (drop them behind it, or cut the model before it)",
        remedy="Name another layer, graph or cover, or cut the model where it needs all tokens.",
    ),
}
