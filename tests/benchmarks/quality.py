"""What quantisation and pruning cost the real models, in one table.

    python tests/benchmarks/quality.py --json docs/figures/quality.json
    python tests/benchmarks/quality.py --only smollm2 vlm --json docs/figures/quality.json

Each model, or way of making one smaller, has a file beside this one, `quality_NAME.py`. With
`--only`, figures of the others stay in the file as they were; `measured` says at which commit each
was. The file is written after each model.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.figures import commit, show, write

MODELS = ("cache", "dinov2", "dinov2_w8a8", "heads", "smollm2", "vlm", "whisper")


def main() -> int:
    """Measure everything that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=MODELS, nargs="+", help="measure some models alone")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    asked = parser.parse_args()
    target: Path | None = asked.json
    found: dict[str, float] = {}
    measured: dict[str, str] = {}
    if asked.only is not None and target is not None and target.exists():
        before = json.loads(target.read_text(encoding="utf-8"))
        found, measured = before["figures"], before.get("measured", {})
    now = commit()  # Before the file of figures changes the tree.
    for name in asked.only or MODELS:
        found |= import_module(f"tests.benchmarks.quality_{name}").figures()
        measured[name] = now
        write(found, target, measured=measured)
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
