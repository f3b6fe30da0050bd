"""The runtime's inner functions for tests: every symbol visible, undefined behaviour traps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cffi import FFI

from runtime_stub.library import CData, declarations

ROOT = Path(__file__).parents[2] / "runtime_stub"
FILES = (
    "status",
    "json",
    "frame",
    "image",
    "image_file",
    "audio",
    "fft",
    "wav",
    "sampling",
    "utf8",
)
KV_FILES = ("layout", "page_rows", "row_codes", "demote")
HEADERS = (
    *("include/mllm_frame.h", "include/mllm.h", "src/json.h", "src/image.h"),
    *("src/audio.h", "src/sampling.h"),
    *("kv/row_codes.h", "kv/layout.h"),
)
UTF8 = """
typedef struct mllm_utf8_stream { uint8_t held[4]; uint32_t n_held; } mllm_utf8_stream;
size_t mllm_utf8_push(mllm_utf8_stream *stream, const char *bytes, size_t size, bool last,
                      char *out);
"""


class Internals:
    """The library and its types.

    Attributes:
        ffi: Makes C values.
        lib: The functions.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        assert compiler is not None, "the tests of the runtime need a C compiler"
        path = folder / "libinternals.so"
        sources = [str(ROOT / "src" / f"{name}.c") for name in FILES]
        sources += [str(ROOT / "kv" / f"{name}.c") for name in KV_FILES]
        flags = [
            "-std=c11",
            "-O1",
            "-ffp-contract=off",
            "-g",
            "-fPIC",
            "-shared",
            "-D_POSIX_C_SOURCE=200809L",
        ]
        sanitizer = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
        include = f"-I{ROOT / 'include'}"
        command = [compiler, *flags, *sanitizer, include, "-o", str(path), *sources, "-lm"]
        subprocess.run(command, check=True)
        self.ffi: CData = FFI()
        for header in HEADERS:
            self.ffi.cdef(declarations((ROOT / header).read_text()))
        self.ffi.cdef(UTF8)
        self.lib: CData = self.ffi.dlopen(str(path))
