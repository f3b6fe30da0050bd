"""Names of files as text that a model, a manifest or a protobuf may hold."""

from __future__ import annotations

import os


def utf8_name(name: str) -> str:
    """A file's name; bytes of it that are no UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")
