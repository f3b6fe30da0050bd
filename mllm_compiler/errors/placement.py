"""Codes of the area "placement"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-R001": ErrorCode(
        title="An op has no home on the target",
        exit=3,
        cause="The target's support table has no entry for the op, its element type, its rank or "
        "one of its attributes, and no fallback target was allowed.",
        example="/decoder/Add: error: 'mllm.alibi' has no home on 'c': no kernel "
        "[MLC-R001] (compile with --target numpy, or change the op in the model)",
        remedy="Take a target that runs the op, allow a fallback, or change the op in the model; "
        "`mllmc explain MODEL --target c` lists every op with its reason.",
    ),
    "MLC-R002": ErrorCode(
        title="A cache is used in a way that no kernel has",
        exit=3,
        cause="The past keys or values of a layer must be appended to and then read by attention "
        "only. Here they are read by something else, or attention was not recognised.",
        example="decoder: error: past_key_values.3.key is read by 'mllm.matmul' and not only by "
        "attention [MLC-R002] (export the model with plain softmax attention)",
        remedy="Export the model with softmax attention that the lifting recognises, or take "
        "the graph's cache out of model.toml.",
    ),
    "MLC-R003": ErrorCode(
        title="A size is known only when the model runs",
        exit=3,
        cause="Memory is planned before the model runs, so each dimension must be an expression "
        "over the symbols of the inputs.",
        example="/nms/NonZero: error: the shape [?, 4] depends on data, memory cannot be planned "
        "[MLC-R003] (place the graph on numpy)",
        remedy="Use the target numpy for this model, or cut the graph before the op.",
    ),
    "MLC-R004": ErrorCode(
        title="A language model without the inputs and outputs of one",
        exit=1,
        cause="A graph with the role language-model takes `input_ids` or `inputs_embeds` "
        "[batch, sequence, ...] and returns `logits` [batch, sequence, vocabulary].",
        example="decoder: error: no result named 'logits' of rank 3 [MLC-R004] (set the graph's "
        "role in model.toml)",
        remedy="Correct the graph's role in model.toml, or rename its inputs and outputs.",
    ),
    "MLC-R005": ErrorCode(
        title="The token embedding is no weight of the graph",
        exit=1,
        cause="`[text].embedding` is `graph:weight`, and the graph has no weight of this name.",
        example="model.toml: error: decoder has no weight 'model.embed.weight'; the nearest is "
        "'model.embed_tokens.weight' [MLC-R005] (correct [text].embedding)",
        remedy="Name the weight as the ONNX file does.",
    ),
    "MLC-R006": ErrorCode(
        title="A tensor is larger than memory can be",
        exit=1,
        cause="With every dimension at its bound a tensor takes more bytes than a process can "
        "address: a shape of the model or a bound is wrong.",
        example="/Relu: error: a tensor of shape [1099511627776, 4096] takes 18014398509481984 "
        "bytes at its bound [MLC-R006] (lower the bounds in [dims] of model.toml)",
        remedy="Lower the bounds in `[dims]` of model.toml, or correct the model's shapes.",
    ),
    "MLC-R007": ErrorCode(
        title="A chip is not known, or lacks what a recipe asks for",
        exit=3,
        cause="A target's table lists its chips, and the forms of quantisation that each has.",
        example="--soc: error: the target 'rknn' has no chip 'rk3589' [MLC-R007] (did you mean "
        "rk3588?)",
        remedy="Name a chip that [docs/hal.md](hal.md) lists, or take a recipe of another form.",
    ),
    "MLC-R008": ErrorCode(
        title="A chip lacks an operator on the values that it would have",
        exit=3,
        cause="A vendor's processor has each operator on some element types, and a newer one on "
        "more.",
        example="/encoder/Add: error: 'qnn.element_wise_add' C0: HTP has halves from v69 on, this "
        "is v68 [MLC-R008] (give another recipe, or another --soc)",
        remedy="Give a recipe whose `[values]` are what the chip has, or compile for another chip.",
    ),
    "MLC-R009": ErrorCode(
        title="The memory plan is larger than the memory for it",
        exit=3,
        cause="`[[memory.banks]]` of model.toml, or `plan-memory{capacity=..}`, says how many "
        "bytes there are for all that lives while the model runs. More than that lives at one "
        "stage, or no plan was found that needs no more; the buffers that live then are named, the "
        "largest first. Or a tensor is smaller than every bank takes, or a device reads it and no "
        "bank that is contiguous takes it.",
        example="prefill: /mlp/down_proj/MatMul: error: the plan takes 4327424 bytes of 'arena', "
        "327424 more than there are; the peak is held by this with 1572864, prefill: "
        "/mlp/up_proj/MatMul with 1572864 "
        "[MLC-R009] (lower the bounds in [dims] of model.toml, or give more)",
        remedy="Lower the bounds in `[dims]` of model.toml, for a shorter prompt in one piece "
        "above all, or give the plan more memory.",
    ),
}
