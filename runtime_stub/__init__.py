"""The mllm runtime from Python: open a bundle, run its entries, generate text.

A thin binding (cffi, ABI mode) over `libmllm`; it never imports the compiler.

    with Model.open(path, trust=None, allow_unsigned=False, threads=0) as model:
        for piece in model.generate("Describe the picture.", image=pixels):
            print(piece.text, end="")
"""

from runtime_stub.devices import Device
from runtime_stub.failure import RuntimeFailure
from runtime_stub.frames import Frame
from runtime_stub.generation import Piece, Statistics
from runtime_stub.library import library_path, library_version
from runtime_stub.model import Counters, Entry, Model, TensorInfo

__all__ = [
    "Counters",
    "Device",
    "Entry",
    "Frame",
    "Model",
    "Piece",
    "RuntimeFailure",
    "Statistics",
    "TensorInfo",
    "library_path",
    "library_version",
]
