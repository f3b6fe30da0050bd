"""Codes of the area "passes"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-P001": ErrorCode(
        title="A pass does not keep what it promises",
        exit=3,
        cause="With `--validate` each graph is run before and after each pass on seeded inputs. A "
        "result moved further than the pass's tolerance.",
        example="decoder: error: 'lift-attention' changed 'logits' by 3.10e-02, it promises at "
        "most 2e-05 [MLC-P001] (--dump-dir shows the module before and after; please report it)",
        remedy="This is a fault of the pass: compile with `--dump-dir` and report the dumps "
        "before and after it.",
    ),
}
