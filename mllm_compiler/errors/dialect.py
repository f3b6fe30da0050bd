"""Codes of the area "dialect"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
