"""A target for the fuzzer atheris: `mllmc compile` of hostile models, led by the lines they reach.

    .venv/bin/pip install -e '.[fuzz]'
    .venv/bin/python tests/fuzz/fuzz_compile.py -max_total_time=600
    .venv/bin/python tests/fuzz/fuzz_compile.py build/fuzz/crash-...     # one again

The corpus, `build/fuzz/corpus`, starts with the models of `seeds.py` and grows. Options are those
of libFuzzer.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# An editable install has a finder of its own, whose modules atheris cannot watch.
sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
# Commands and passes import late what they need; here it is all watched from the start.
with atheris.instrument_imports(include=["mllm_compiler"]):
    import mllm_compiler

    for module in walk_packages(mllm_compiler.__path__, "mllm_compiler."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    from tests.conformance.cases import ROOT
    from tests.fuzz.attempt import Sandbox
    from tests.fuzz.mutations import changed
    from tests.fuzz.seeds import own

KEPT = ROOT / "build" / "fuzz"
CORPUS = KEPT / "corpus"
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", f"-artifact_prefix={KEPT}/"]


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """One more change of a model; of its bytes where it would become too large."""
    made = changed(data, random.Random(seed), 1)
    return made if len(made) <= most else atheris.Mutate(data, most)


def write_corpus() -> None:
    """Writes the models to start from, each by its digest."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for data in own():
        (CORPUS / hashlib.sha256(data).hexdigest()).write_bytes(data)


def main() -> None:
    """Fuzzes until libFuzzer's options end it or something is found."""
    write_corpus()
    given = sys.argv[1:]
    places = [] if any(not word.startswith("-") for word in given) else [str(CORPUS)]
    with tempfile.TemporaryDirectory(prefix="mllm-fuzz-") as folder:
        os.environ["MLLM_CACHE"] = f"{folder}/tmp"
        os.environ["MLLM_TRACEBACK"] = "1"
        sandbox = Sandbox(Path(folder).resolve())
        words = [sys.argv[0], *LIMITS, *given, *places]
        atheris.Setup(words, sandbox.attempt, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
