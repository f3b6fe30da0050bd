"""Codes of the area "passes"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
