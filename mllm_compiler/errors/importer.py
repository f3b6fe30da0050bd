"""Codes of the area "importer"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {}
