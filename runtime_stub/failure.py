"""The one exception of the binding."""

from __future__ import annotations


class RuntimeFailure(Exception):  # noqa: N818 - the name of the interface
    """A fault that the runtime answered with, told in one line.

    Args:
        code: For example `MLC-B004`; `docs/errors.md` explains it.
        message: The fault, without location.
        location: Where: a file, or an entry and an ONNX node.
        remedy: What the user can do, as a clause.
    """

    def __init__(self, code: str, message: str, *, location: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.location = location
        self.remedy = remedy

    def __str__(self) -> str:
        """`location: error: message [code] (remedy)`."""
        where = f"{self.location}: " if self.location else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}error: {self.message} [{self.code}]{remedy}"
