"""Codes of the area "vendor"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-V001": ErrorCode(
        title="A vendor's library is not installed",
        exit=4,
        cause="A bundle is compiled without the vendor's library, but this one runs in it.",
        example="tflite: error: LiteRT is not installed [MLC-V001] (pip install "
        "'mllm-compiler[tflite]')",
        remedy="Install the extra that the line names; `mllmc doctor` lists them all.",
    ),
    "MLC-V002": ErrorCode(
        title="A vendor's library refuses what was made for it",
        exit=4,
        cause="The library read the artifact and found something that it does not run. The line "
        "has its own words.",
        example="tflite: error: LiteRT refuses it: Didn't find op for builtin opcode 'GELU' "
        "version '1' [MLC-V002] (mllmc explain MODEL --target tflite; the file may need a newer "
        "LiteRT)",
        remedy="Update the library. Where it is new enough, the support table is wrong: please "
        "report it, with the model's `mllmc explain`.",
    ),
    "MLC-V003": ErrorCode(
        title="A vendor's compiler crashed",
        exit=4,
        cause="The vendor's compiler runs in a process of its own, which ended by a signal. The "
        "line has the last that it printed.",
        example="decoder_1: error: Rockchip's toolkit crashed (SIGSEGV) after: D RKNN: start: "
        "rknn::RKNNSubgraphManager [MLC-V003] (change the model where the toolkit stopped, or use "
        "another --soc or recipe)",
        remedy="Report it to the vendor, with the files for the toolkit that the bundle has; "
        "change the model where the compiler stopped.",
    ),
    "MLC-V004": ErrorCode(
        title="A vendor's compiler places an operator against the table",
        exit=3,
        cause="What the compiler wrote was read back: an operator that the support table has on "
        "the accelerator runs on the CPU.",
        example="decoder_1: MatMul:/lm_head/MatMul: error: the toolkit gives 'MatMul' to the CPU "
        "of the rk3588, where the support table has the NPU [MLC-V004] (change the op in the "
        "model, or correct hal/targets/rknn/support.toml)",
        remedy="Change the op in the model, its sizes above all. The support table is wrong for "
        "them: please report it.",
    ),
    "MLC-V005": ErrorCode(
        title="A vendor's library has another version than is needed",
        exit=4,
        cause="Layouts, support tables and artifacts are those of one build of the library.",
        example="qnn: error: QNN v2.50.0 is installed, v2.51.0 is needed [MLC-V005] (pip install "
        "onnxruntime-qnn==2.7.0)",
        remedy="Install the version that the line names, or compile the model again with this one.",
    ),
}
"""The codes, by name."""
