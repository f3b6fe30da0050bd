"""`quantisation.json` of a bundle: the recipe, and what became of each product and cache."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mllm_compiler.bundle.manifest import canonical
from mllm_compiler.bundle.typed_json import ShapeError, decode, encode
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.bundle.writer import Content, content_of_bytes
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.quantised_caches import QuantisedCache
from mllm_compiler.passes.quantised_products import QuantisedProduct, bits_per_weight

MEMBER = "quantisation.json"


@dataclass(frozen=True, kw_only=True)
class QuantisationRecord:
    """How a model was quantised.

    Attributes:
        name: The recipe's name.
        recipe: Its text.
        products: What became of each product.
        caches: What became of each cache.
    """

    name: str = ""
    recipe: str = ""
    products: tuple[QuantisedProduct, ...] = ()
    caches: tuple[QuantisedCache, ...] = ()

    @property
    def extents(self) -> dict[str, float]:
        """How far activations reach, by the product that reads them, and keys, by head."""
        extents = {p.label: p.extent for p in self.products if p.extent is not None}
        keys = {f"{c.name} keys {h}": s for c in self.caches for h, s in enumerate(c.key_scales)}
        return extents | keys

    @property
    def bits_per_weight(self) -> float:
        """The bits of a weight on average, scales and zero points counted."""
        return round(bits_per_weight(self.products), 4)

    @property
    def summary(self) -> str:
        """All of it in a line."""
        products = f"{len(self.products)} products, {self.bits_per_weight:.2f} bits a weight"
        bits = {cache.bits for cache in self.caches}
        return products + "".join(f", {len(self.caches)} caches of {b} bits" for b in bits)

    @property
    def member(self) -> Content:
        """What the bundle holds of it."""
        return content_of_bytes(MEMBER, canonical(encode(self)))

    @contextmanager
    def recipe_file(self, given: str | None) -> Generator[str]:
        """The recipe that is given, else a file of the one that was taken before."""
        if given is not None:
            yield given
            return
        with TemporaryDirectory(prefix="mllm-recipe-") as folder:
            path = Path(folder) / f"{self.name}.toml"
            path.write_text(self.recipe, encoding="utf-8")
            yield str(path)


def read_record(path: Path) -> QuantisationRecord:
    """What a bundle says of its quantisation.

    Raises:
        CompileError: It is no bundle, or was not quantised: `MLC-Q004`.
    """
    bundle = open_bundle(path, LOOK)
    if MEMBER not in bundle.manifest.members:
        raise CompileError(
            "MLC-Q004",
            "the bundle was not quantised by a recipe",
            location=str(path),
            remedy="quantise its model with --recipe",
        )
    try:
        return decode(QuantisationRecord, json.loads(bytes(bundle.member(MEMBER))))
    except (ShapeError, ValueError) as fault:
        raise CompileError(
            "MLC-Q004", f"{MEMBER}: {fault}", location=str(path), remedy="quantise the model again"
        ) from fault
