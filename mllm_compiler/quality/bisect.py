"""From a gate that fails to the layers to keep: the fewest of the most suspect, found by halving.

Each try compiles the model with a recipe that keeps the first of the suspects as the model has
them, and runs the whole check on it, so what is written has passed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mllm_compiler.bundle.verify import LOOK
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.quality.check import SUFFIX, Asked, Checked, check_accuracy
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.quantisation.recipe_text import keeping, recipe_text

Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """What came of it.

    Attributes:
        kept: The layers that the recipe keeps.
        text: The recipe.
        checked: The check that the model passes with it.
        tries: How many recipes were tried.
    """

    kept: tuple[str, ...]
    text: str
    checked: Checked
    tries: int


@dataclass
class _Search:
    """The tries so far, by the number of layers that they keep."""

    model: Path
    recipe: str
    calibration: Path | None
    asked: Asked
    order: Sequence[str]
    folder: Path
    step: Step
    tried: dict[int, Checked]

    def passes(self, count: int) -> bool:
        """Whether the model passes where so many of the suspects are kept."""
        if count not in self.tried:
            self.step(f"keeping {count} of {len(self.order)} layers")
            recipe, bundle = self.folder / "recipe.toml", self.folder / f"tried{SUFFIX}"
            recipe.write_text(self.text(count), encoding="utf-8")
            request = Request(
                model=self.model,
                target="numpy",
                quant=str(recipe),
                data=self.calibration,
                output=bundle,
            )
            compile_model(request)
            self.tried[count] = check_accuracy(bundle, self.asked, LOOK)
        return self.tried[count].passes

    def text(self, count: int) -> str:
        """The recipe that keeps so many."""
        return recipe_text(keeping(read_recipe(self.recipe), self.order[:count]))


def bisect(
    model: Path,
    recipe: str,
    asked: Asked,
    order: Sequence[str],
    *,
    calibration: Path | None = None,
    step: Step = lambda text: None,
) -> Bisected | None:
    """The fewest of some layers to keep; None where keeping all of them does not help.

    More kept layers are taken to be no worse: what is between two tries is not tried.

    Args:
        model: What `mllmc compile` takes.
        recipe: The recipe that a gate fails with.
        asked: What to check, and on what.
        order: The layers, `graph:node`, the most suspect first.
        calibration: Samples for the recipe.
        step: Is told what is tried next.

    Raises:
        CompileError: The recipe or the model cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="mllmc-bisect-") as name:
        folder = Path(name)
        if asked.baseline.suffix != SUFFIX:
            plain = folder / f"float{SUFFIX}"
            compile_model(Request(model=asked.baseline, target="numpy", output=plain))
            asked = replace(asked, baseline=plain)
        asked = replace(asked, reference=None)
        search = _Search(model, recipe, calibration, asked, order, folder, step, {})
        count = fewest(search.passes, len(order))
        if count is None:
            return None
        return Bisected(
            kept=tuple(order[:count]),
            text=search.text(count),
            checked=search.tried[count],
            tries=len(search.tried),
        )


def fewest(passes: Callable[[int], bool], most: int) -> int | None:
    """The least count that passes, by doubling and then halving."""
    low, high = 0, 1
    while high < most and not passes(high):
        low, high = high, 2 * high
    high = min(high, most)
    if not most or not passes(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high
