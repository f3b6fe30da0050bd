"""Writes all kernel cases to one file, for the C program that runs them under the sanitizers.

    python -m tests.runtime.write_cases FILE

The file is a row of cases, little endian: name, program and weights (u64 length, bytes each), then
u64 count of inputs and the inputs, one output, f64 rtol, f64 atol. A tensor is its name, u64 dtype,
rank and dims, u64 bytes and data; every piece of bytes is padded to 8.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

from tests.runtime.cases import all_cases
from tests.runtime.cases_device import device_calls
from tests.runtime.program_writer import DTYPES, Array, dtype_of


def piece(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data + b"\0" * (-len(data) % 8)


def tensor(name: str, value: Array) -> bytes:
    head = struct.pack("<2Q", DTYPES[dtype_of(value)], value.ndim)
    dims = struct.pack(f"<{value.ndim}q", *value.shape)
    return piece(name.encode() + b"\0") + head + dims + piece(np.ascontiguousarray(value).tobytes())


def main(path: Path) -> None:
    with path.open("wb") as file:
        for case in (*all_cases(), *device_calls()):
            program, weights = case.program()
            file.write(piece(case.name.encode() + b"\0") + piece(program) + piece(weights))
            inputs = case.inputs()
            file.write(struct.pack("<Q", len(inputs)))
            for name, value in inputs.items():
                file.write(tensor(name, value))
            file.write(tensor("y", case.expected))
            file.write(struct.pack("<2d", case.rtol, case.atol))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
