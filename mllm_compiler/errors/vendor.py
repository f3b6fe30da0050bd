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
}
"""The codes, by name."""
