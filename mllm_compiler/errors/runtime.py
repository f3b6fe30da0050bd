"""Codes of the area "runtime"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
