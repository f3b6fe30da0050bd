"""Codes of the area "bundle"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
