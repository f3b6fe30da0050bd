"""The accuracy check: a bundle beside its float model on data, gate by gate."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mllm_compiler.bundle.verify import LOOK, Policy
from mllm_compiler.quality.data import read_data
from mllm_compiler.quality.gates import Gate, cosine_gates, quality_gates
from mllm_compiler.quality.layers import SHOWN_TOKENS, NodeError, node_errors
from mllm_compiler.quality.measure import Measurement
from mllm_compiler.quality.sides import Side, opened
from mllm_compiler.quality.suspects import suspects
from mllm_compiler.quality.thresholds import Thresholds
from mllm_compiler.reference import find_function

SUFFIX = ".mllm_bundle"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a check found.

    Attributes:
        bundle: The bundle's file.
        target: Its target.
        fidelity: What its values were compared with.
        gates: In groups; of cosines the worst first.
        nodes: The error of each node, in the order of the model.
        suspects: The quantised nodes, `graph:node`, that which adds the most error first.
    """

    bundle: str
    target: str
    fidelity: str
    gates: tuple[Gate, ...]
    nodes: tuple[NodeError, ...]
    suspects: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """Whether every gate does."""
        return all(gate.passes for gate in self.gates)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to check, and on what.

    Attributes:
        baseline: The float model: a bundle, or what `mllmc compile` takes.
        data: The folder of data.
        reference: A bundle of the target numpy, of the same model and recipe.
        thresholds: What to reach.
        window: Tokens that a text is cut into.
        piece: Tokens that go through the model at a time; the model keeps its past.
        tokens: The most tokens of texts.
    """

    baseline: Path
    data: Path
    reference: Path | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    window: int = 512
    piece: int = 256
    tokens: int = 1536


def check_accuracy(
    bundle: Path, asked: Asked, policy: Policy, *, trust: Path | None = None
) -> Checked:
    """Runs a bundle, its float model and its reference, and holds the bundle to the thresholds.

    Raises:
        CompileError: A bundle is refused, or the data cannot be read or fits no entry.
    """
    data = read_data(asked.data)
    with ExitStack() as stack:
        given = stack.enter_context(opened(bundle, policy, trust))
        plain = stack.enter_context(_baseline(asked.baseline, policy))
        reference = None
        if asked.reference is not None:
            reference = stack.enter_context(opened(asked.reference, policy, trust))
        found = Measurement(
            plain,
            given,
            reference,
            window=asked.window,
            piece=asked.piece,
            tokens=asked.tokens,
        )
        metrics = found.metrics(data)
        nodes = _nodes(found)
        return Checked(
            bundle=str(bundle),
            target=", ".join(given.bundle.manifest.targets),
            fidelity=_fidelity(given, asked.reference),
            gates=(
                *cosine_gates("fidelity", found.fidelity.items(), asked.thresholds),
                *quality_gates(metrics, asked.thresholds),
                *_layer_gates(nodes, asked.thresholds),
            ),
            nodes=tuple(nodes),
            suspects=_suspects(found, nodes),
        )


@contextmanager
def _baseline(path: Path, policy: Policy) -> Generator[Side]:
    """The float model: a bundle as it is; anything else is compiled for numpy, for this once."""
    from mllm_compiler.compiler import Request, compile_model

    if path.suffix == SUFFIX:
        with opened(path, policy) as side:
            yield side
        return
    with tempfile.TemporaryDirectory(prefix="mllmc-check-") as folder:
        made = Path(folder) / f"baseline{SUFFIX}"
        compile_model(Request(model=path, target="numpy", output=made))
        with opened(made, LOOK) as side:
            yield side


def _fidelity(given: Side, reference: Path | None) -> str:
    if reference is not None:
        return f"outputs of entries against {reference}"
    if given.runner is not None:
        return "none: a bundle of the target numpy is the reference itself"
    return "none: no --reference, a bundle of the target numpy of the same model and recipe"


def _nodes(found: Measurement) -> list[NodeError]:
    """The nodes of every entry that ran, where both modules are there to be looked into."""
    inner = found.reference or found.given
    if inner.runner is None or found.plain.runner is None:
        return []
    nodes: list[NodeError] = []
    for entry, inputs in found.seen.items():
        short = {
            name: array[:, :SHOWN_TOKENS] if array.dtype.kind == "i" and array.ndim == 2 else array
            for name, array in inputs.items()
        }
        nodes += node_errors(found.plain, inner, entry, short)
    return nodes


def _suspects(found: Measurement, nodes: list[NodeError]) -> tuple[str, ...]:
    """The quantised nodes of all entries that ran, that which adds the most error first."""
    inner = found.reference or found.given
    if inner.runner is None:
        return ()
    added: dict[str, float] = {}
    for entry in found.seen:
        own = [node for node in nodes if node.name.startswith(f"{entry}/")]
        added |= suspects(find_function(inner.runner.module, entry), own)
    return tuple(sorted(added, key=lambda name: -added[name]))


def _layer_gates(nodes: list[NodeError], thresholds: Thresholds) -> list[Gate]:
    """Gates of nodes where they have a threshold, or where a value is not a number."""
    pairs = [(node.name, node.cosine) for node in nodes]
    gates = cosine_gates("layers", pairs, thresholds)
    return [g for g in gates if g.threshold is not None or not g.passes]
