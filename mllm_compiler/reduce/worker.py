"""A process that compiles one model after the other: a path a line in, `[code, line]` a line out.

    python -m mllm_compiler.reduce.worker TARGET MEBIBYTES

Its memory is limited, and whoever started it ends it when it takes too long.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from mllm_compiler.cli.faults import fault_line
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import OWN_FAULT, CompileError


def answer(model: Path, target: str) -> tuple[str, str]:
    """The code that compiling a model ends with, and the error's line; empty where it compiles."""
    try:
        with tempfile.TemporaryDirectory(prefix="mllm-reduce-") as folder:
            compile_model(Request(model=model, target=target, output=Path(folder) / "out"))
    except CompileError as error:
        return error.code, str(error)
    except MemoryError:
        raise
    except Exception as fault:
        return OWN_FAULT, fault_line(fault)
    return "", "it compiles"


def main() -> None:
    """Serves until its input ends."""
    target, limit = sys.argv[1], int(sys.argv[2]) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for line in sys.stdin:
            out.write(json.dumps(answer(Path(json.loads(line)), target)) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
