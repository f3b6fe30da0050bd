"""Codes of the area "usage"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
