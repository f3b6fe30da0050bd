"""Codes of the area "quantisation"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-Q001": ErrorCode(
        title="Unknown recipe",
        exit=2,
        cause="`--quant` or `--recipe` names neither a built-in recipe nor a `.toml` file that is "
        "there; or `A+B` is asked for, and B has no `[cache]` to add, or A has one already.",
        example="w4a61: error: no recipe of this name [MLC-Q001] (did you mean w4a16?)",
        remedy="Name a built-in recipe (docs/quantising.md lists them) or a `.toml` file; add "
        "`+kv16`, `+kv8` or `+kv4` to one without a `[cache]`.",
    ),
    "MLC-Q002": ErrorCode(
        title="A recipe without its data",
        exit=2,
        cause="The recipe takes scales from what activations are like, and a graph has no samples.",
        example="decoder: error: the recipe needs calibration data and there is none [MLC-Q002] "
        "(name a folder of samples with --data)",
        remedy="Name a folder of samples with `--data`, or take a recipe without static "
        "activations.",
    ),
    "MLC-Q003": ErrorCode(
        title="Calibration data that cannot be used",
        exit=1,
        cause="A file of the folder is no `.npz` of plain arrays, or lacks an input of the graph.",
        example="decoder: error: a sample lacks the input 'position_ids' [MLC-Q003] (it has: "
        "input_ids, attention_mask)",
        remedy="Give each input of the graph an array of its shape and type.",
    ),
    "MLC-Q004": ErrorCode(
        title="A bundle that says nothing of its quantisation",
        exit=1,
        cause="`mllmc quantize --refresh` takes the recipe and the old scales from the bundle, and "
        "the bundle was not quantised by a recipe.",
        example="m.mllm_bundle: error: the bundle was not quantised by a recipe [MLC-Q004] "
        "(quantise its model with --recipe)",
        remedy="Quantise its model with `mllmc quantize MODEL --recipe RECIPE`.",
    ),
    "MLC-Q005": ErrorCode(
        title="A recipe over its own budget",
        exit=1,
        cause="`mixed.average` of the recipe is less than the products of `[linears]` take with "
        "their scales and zero points.",
        example="decoder: error: the products take more than 4.1 bits a weight as it is [MLC-Q005] "
        "(raise mixed.average, or give the products larger blocks)",
        remedy="Raise `mixed.average`; 4 bits in blocks of 128 take 4.16 with zero points, 4.13 "
        "without.",
    ),
    "MLC-Q006": ErrorCode(
        title="A target without values of codes",
        exit=2,
        cause="The recipe has a section `[values]`, and the ops of the target compute on reals.",
        example="mine: error: the target 'c' has no values of codes, which [values] asks for "
        "[MLC-Q006] (take a recipe without [values], or a target whose ops compute on codes)",
        remedy="Take a target that has them, or a recipe whose products alone read codes, such as "
        "`w8a8` or `w8a8-static`.",
    ),
}
