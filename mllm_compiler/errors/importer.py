"""Codes of the area "importer"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-I001": ErrorCode(
        title="Not an ONNX model",
        exit=1,
        cause="The file is empty, is no protobuf, holds no graph, or is a Git LFS pointer.",
        example="notes.onnx: error: not an ONNX protobuf: byte 0 starts no field [MLC-I001]",
        remedy="Give an `.onnx` file, a `model.toml` or a folder that holds one.",
    ),
    "MLC-I002": ErrorCode(
        title="Truncated model",
        exit=1,
        cause="The file ends inside a field: a download or a copy was cut short.",
        example="model.onnx: error: the file is truncated: 9216 bytes are needed, it has 4096",
        remedy="Copy or download the file again.",
    ),
    "MLC-I003": ErrorCode(
        title="A file cannot be read",
        exit=1,
        cause="A file that was named does not exist, or may not be read.",
        example="model.toml: graphs.decoder.file: error: there is no file 'decoder.onnx'",
        remedy="Check the path; build or copy the model's files into one folder.",
    ),
    "MLC-I004": ErrorCode(
        title="External data are missing",
        exit=1,
        cause="The model keeps weights in a second file, which is not beside it.",
        example="model.onnx: error: external data of 'w' are missing: there is no 'model.data'",
        remedy="Copy the data file beside the model.",
    ),
    "MLC-I005": ErrorCode(
        title="External data lie outside the model's folder",
        exit=1,
        cause="A path to external data is absolute, has `..`, or is a link that leaves the folder. "
        "Such a model could read any file of this machine into what is compiled.",
        example="m.onnx: error: external data of 'w' lie outside the model's folder: '../../x'",
        remedy="Copy the data file beside the model and save the model with its name.",
    ),
    "MLC-I006": ErrorCode(
        title="External data are too short",
        exit=1,
        cause="The data file ends before the bytes of a tensor do.",
        example="m.onnx: error: external data of 'w' end at byte 4096, but 'm.data' has 100",
        remedy="Copy the data file again, and check that it belongs to the model.",
    ),
    "MLC-I007": ErrorCode(
        title="Malformed tensor",
        exit=1,
        cause="A tensor, an input or an output has no dtype, a negative extent, or another number "
        "of bytes than it needs.",
        example="m.onnx: error: tensor 'w' is malformed: 64 bytes are needed, external data have 8",
        remedy="Export the model again.",
    ),
    "MLC-I008": ErrorCode(
        title="Made for a newer ONNX",
        exit=1,
        cause="The model's IR version or opset is newer than the installed `onnx` package knows.",
        example="m.onnx: error: the model has IR version 99, this onnx reads up to 14 [MLC-I008]",
        remedy="Update the onnx package, or export with an older IR version or opset.",
    ),
    "MLC-I009": ErrorCode(
        title="A value is defined twice",
        exit=1,
        cause="Two nodes, inputs, initialisers or outputs of the graph have one name.",
        example="m.onnx: error: value 'h' is defined twice [MLC-I009]",
        remedy="Give each value one name: export the model again.",
    ),
    "MLC-I010": ErrorCode(
        title="A value is used but not defined",
        exit=1,
        cause="A node or an output names a value that no input, weight or node makes.",
        example="m.onnx: error: /mlp/Add uses 'bias', which nothing defines [MLC-I010]",
        remedy="Export the model again; an input or a weight was lost.",
    ),
    "MLC-I011": ErrorCode(
        title="Functions cannot be inlined",
        exit=1,
        cause="The model defines functions that call themselves or that do not fit their calls.",
        example="m.onnx: error: the model's functions cannot be inlined: cyclic call [MLC-I011]",
        remedy="Export without functions, or inline them with `onnx.inliner`.",
    ),
    "MLC-I012": ErrorCode(
        title="The graph has a cycle",
        exit=1,
        cause="A node needs a value that is made from the node's own output.",
        example="m.onnx: error: the graph has a cycle through 'a', 'b' [MLC-I012]",
        remedy="ONNX graphs are acyclic: loops are Loop or Scan operators.",
    ),
    "MLC-I013": ErrorCode(
        title="Malformed model",
        exit=1,
        cause="The protobuf can be read, but what it says is no model: it imports no opset, its "
        "graph has no outputs, a type has no such number.",
        example="m.onnx: error: the model is malformed: unknown dtype 99 [MLC-I013]",
        remedy="Check it with `onnx.checker`, export it again.",
    ),
    "MLC-I014": ErrorCode(
        title="A node breaks the ONNX standard",
        exit=1,
        cause="A node has inputs, outputs, attributes or types that its operator does not have in "
        "the model's opset.",
        example="m.onnx: /fc/Gemm: error: 'onnx.Gemm': at least 2 operands are needed, 1 given",
        remedy="Correct the node or the call that exported it; the standard lists what it takes.",
    ),
    "MLC-I015": ErrorCode(
        title="The shapes of a model contradict each other",
        exit=1,
        cause="A node needs two extents to be equal that are not, for example the inner extents of "
        "a matrix product; an index is outside of its axis; or the model declares another shape of "
        "an output than its nodes make.",
        example="/fc/MatMul: error: 'onnx.MatMul' needs equal dimensions, but they are 8 and 9",
        remedy="Check the shapes that the model's inputs and outputs declare, and export it again.",
    ),
    "MLC-I020": ErrorCode(
        title="Not TOML",
        exit=1,
        cause="A `model.toml` or a recipe breaks the syntax of TOML.",
        example="model.toml: error: not TOML: Expected '=' after a key (at line 3, column 8)",
        remedy="Correct the line that it names.",
    ),
    "MLC-I021": ErrorCode(
        title="Unknown key",
        exit=1,
        cause="A table of `model.toml` or of a recipe has a key that means nothing there.",
        example="model.toml: graphs.vision.fil: error: unknown key 'fil' (did you mean 'file'?)",
        remedy="Take the key that the line proposes; the design lists all of them.",
    ),
    "MLC-I022": ErrorCode(
        title="A key cannot be used",
        exit=1,
        cause="A key of `model.toml`, of a recipe, or of a JSON file that an exporter wrote, is "
        "missing, or its value is another than can be used.",
        example="model.toml: image.size: error: 3 values given, 2 needed [MLC-I022]",
        remedy="Write the value that the line asks for.",
    ),
    "MLC-I023": ErrorCode(
        title="model.toml names what is not there",
        exit=1,
        cause="A reference names a graph, an input or an output that the model does not have.",
        example="model.toml: graphs.projector.inputs.x: error: there is no graph 'visoin'",
        remedy="Take the name that the line proposes.",
    ),
    "MLC-I024": ErrorCode(
        title="Not JSON",
        exit=1,
        cause="A JSON file beside the model, such as `config.json`, breaks the syntax of JSON.",
        example="m/config.json: error: not JSON: Expecting ',' delimiter: line 3 column 1",
        remedy="Correct the line that it names, or copy the file again.",
    ),
    "MLC-I025": ErrorCode(
        title="A folder that says too little",
        exit=1,
        cause="A folder has no `model.toml`, and neither `config.json` nor `genai_config.json` "
        "says which of its ONNX files is what; or it holds the parts of a model that only a "
        "`model.toml` can tie.",
        example="m: error: 'decoder_model_merged.onnx' is two decoders in one, and those apart are "
        "not there [MLC-I025] (export the model again with --no-post-process)",
        remedy="Write a `model.toml`; docs/importing.md lists the layouts that are read.",
    ),
    "MLC-I030": ErrorCode(
        title="onnxsim is missing or failed",
        exit=1,
        cause="`--simplify` needs the package onnxsim, or onnxsim could not simplify the model.",
        example="m.onnx: error: the package onnxsim is not installed [MLC-I030]",
        remedy="Install it with `pip install mllm-compiler[simplify]`, or compile without it.",
    ),
}
