"""`mllmc doctor`: what is installed, what is missing and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from mllm_compiler import __version__
from mllm_compiler.cli.console import table, write_json, write_line

REQUIRED = (
    "xdsl",
    "onnx",
    "onnx-ir",
    "numpy",
    "ml-dtypes",
    "jinja2",
    "click",
    "rich",
    "cffi",
    "cryptography",
    "flatbuffers",
    "rfc8785",
    "tokenizers",
    "pillow",
)
"""Packages without which the compiler does not work."""

OPTIONAL = {
    "onnxruntime-qnn": (
        "compiling and running for the target qnn",
        "pip install 'mllm-compiler[qnn]'",
    ),
    "ai-edge-litert": (
        "running bundles of the targets tflite and neuron",
        "pip install 'mllm-compiler[tflite]'",
    ),
    "onnxsim": ("mllmc compile --simplify", "pip install 'mllm-compiler[simplify]'"),
    "onnxruntime": ("comparison with onnxruntime in the tests", "make test"),
    "jiwer": ("word errors in mllmc check", "pip install 'mllm-compiler[check]'"),
    "matplotlib": ("the picture in mllmc check --html", "pip install 'mllm-compiler[check]'"),
    "rouge-score": ("ROUGE in mllmc check", "pip install 'mllm-compiler[check]'"),
    "sacrebleu": ("BLEU in mllmc check", "pip install 'mllm-compiler[check]'"),
    "gguf": ("the recipe smollm2-135m", "make test"),
    "torch": ("training the projector", "pip install 'mllm-compiler[train]'"),
    "transformers": ("exporting models anew", "pip install 'mllm-compiler[export]'"),
}
"""Packages that add something: what, and how to get it."""

FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512vnni",
    "amx",
    "asimd",
    "asimddp",
    "i8mm",
    "sve",
)
"""Instruction sets that matter to kernels, as Linux spells them."""


@dataclass(frozen=True)
class Finding:
    """One line of the answer.

    Attributes:
        part: What was looked at.
        found: Version, value, or `missing`.
        state: `ok`, `optional` (missing, and only adds something) or `missing`.
        remedy: How to get it, where it is not there.
    """

    part: str
    found: str
    state: str
    remedy: str = ""


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor_command(context: click.Context, as_json: bool) -> None:
    """Say what is installed and what is missing."""
    found = list(findings())
    broken = any(finding.state == "missing" for finding in found)
    if as_json:
        write_json({"healthy": not broken, "findings": [asdict(finding) for finding in found]})
    else:
        rows = [(f.part, f.state, ": ".join(filter(None, (f.found, f.remedy)))) for f in found]
        table("mllmc doctor", ("part", "state", "what was found: how to get it"), rows)
        write_line("something that is needed is missing" if broken else "everything needed is here")
    context.exit(3 if broken else 0)


def findings() -> Iterator[Finding]:
    """Everything that is looked at."""
    yield Finding("mllm-compiler", __version__, "ok")
    yield Finding("python", platform.python_version(), "ok")
    yield Finding("system", f"{platform.system()} {platform.release()} {platform.machine()}", "ok")
    yield Finding("cpu", f"{os.cpu_count()} cores: {' '.join(cpu_features()) or 'unknown'}", "ok")
    yield Finding("memory", memory(), "ok")
    for name in REQUIRED:
        version = installed(name)
        state = "ok" if version else "missing"
        yield Finding(name, version or "missing", state, "" if version else f"pip install {name}")
    yield _runtime()
    yield from _tools()
    for name, (purpose, how) in OPTIONAL.items():
        version = installed(name)
        state = "ok" if version else "optional"
        yield Finding(name, version or "missing", state, "" if version else f"{how} ({purpose})")
    yield _rknn()
    yield _neuron()
    yield from _folders()


def installed(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_features() -> list[str]:
    """The instruction sets of `FEATURES` that this processor has; empty where it is not said."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if line.startswith(("flags", "Features"))]
    flags = set(lines[0].partition(":")[2].split()) if lines else set[str]()
    flags |= {"amx"} if any(flag.startswith("amx_") for flag in flags) else set()
    flags |= {"avx512vnni"} if "avx512_vnni" in flags else set()
    return [feature for feature in FEATURES if feature in flags]


def memory() -> str:
    """The machine's memory."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{total / (1 << 30):.1f} GiB"


def _runtime() -> Finding:
    """The C runtime: whether its library loads, and which version it is."""
    try:
        from runtime_stub import library_version

        return Finding("C runtime", library_version(), "ok")
    except (ImportError, OSError) as fault:
        return Finding(
            "C runtime", f"missing: {fault}", "missing", "pip install -e . (or make test)"
        )


def _rknn() -> Finding:
    """Rockchip's toolkit, which has an environment of its own."""
    from mllm_compiler.backends.rknn.sdk import FOLDER, PACKAGE, VARIABLE, VERSION, find_toolkit

    toolkit = find_toolkit()
    if toolkit is None:
        how = f"make {FOLDER}, or name its environment in {VARIABLE} (.rknn files, their simulator)"
        return Finding(PACKAGE, "missing", "optional", how)
    known = toolkit.version == VERSION
    remedy = "" if known else f"the support table is that of {VERSION}"
    state = "ok" if known else "optional"
    return Finding(PACKAGE, f"{toolkit.version} in {toolkit.folder}", state, remedy)


def _neuron() -> Finding:
    """MediaTek's library, which comes with NeuroPilot."""
    from mllm_compiler.backends.neuron.sdk import LIBRARY, VARIABLE, adapter_folder
    from mllm_compiler.errors import CompileError

    how = f"name NeuroPilot's folder of it in {VARIABLE} (compiling for MediaTek ahead of time)"
    try:
        folder = adapter_folder()
    except CompileError as fault:
        return Finding(LIBRARY, str(fault), "optional", how)
    if folder is None:
        return Finding(LIBRARY, "missing", "optional", how)
    return Finding(LIBRARY, str(folder), "ok")


def _tools() -> Iterator[Finding]:
    runner = _runner()
    how = "pip install -e . with a C compiler at hand"
    yield Finding(
        "mllm-run", runner or "missing", "ok" if runner else "optional", "" if runner else how
    )
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    how = "install a C compiler (only --emit c and the build of the runtime want it)"
    yield Finding(
        "C compiler",
        compiler or "missing",
        "ok" if compiler else "optional",
        "" if compiler else how,
    )


def _runner() -> str | None:
    """The plain C runner: in the path, or where the package was installed."""
    import runtime_stub

    beside = [Path(folder) / "mllm-run" for folder in runtime_stub.__path__]
    found = [str(path) for path in beside if path.exists()]
    return shutil.which("mllm-run") or next(iter(found), None)


def _folders() -> Iterator[Finding]:
    from mllm_compiler.bundle.trust import key_file, read_trust, trust_file
    from mllm_compiler.cli.faults import cache_folder
    from mllm_compiler.errors import CompileError
    from mllm_compiler.recipes import recipe_names

    key = key_file()
    made = str(key) if key.exists() else "not made yet"
    yield Finding("signing key", made, "ok" if key.exists() else "optional", "made on first use")
    try:
        yield Finding("trusted keys", f"{len(read_trust())} in {trust_file()}", "ok")
    except CompileError as error:
        yield Finding("trusted keys", str(error), "missing", error.remedy)
    yield Finding("cache", str(cache_folder()), "ok")
    yield Finding("recipes", ", ".join(recipe_names()) or "none in this installation", "ok")
