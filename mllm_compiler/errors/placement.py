"""Codes of the area "placement"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
