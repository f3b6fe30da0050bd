"""The NumPy meaning of every op of every dialect, and the executor that walks a function."""

from mllm_compiler.reference.executor import (
    Array,
    Frame,
    Listener,
    Meaning,
    argument_names,
    find_function,
    result_names,
    run_function,
)
from mllm_compiler.reference.tables import meaning_of, meanings

__all__ = [
    "Array",
    "Frame",
    "Listener",
    "Meaning",
    "argument_names",
    "find_function",
    "meaning_of",
    "meanings",
    "result_names",
    "run_function",
]
