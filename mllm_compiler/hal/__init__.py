"""What each target can run: a table a target, and the questions that may be asked of it."""

from mllm_compiler.hal.cost import Cost, cost_of, is_stored, nbytes_of
from mllm_compiler.hal.rates import Rates
from mllm_compiler.hal.rules import Limit, Refusal, Rule
from mllm_compiler.hal.soc import Soc
from mllm_compiler.hal.target import (
    STATIC,
    Answer,
    OpSupport,
    Target,
    target,
    target_names,
    target_of,
)

__all__ = [
    "STATIC",
    "Answer",
    "Cost",
    "Limit",
    "OpSupport",
    "Rates",
    "Refusal",
    "Rule",
    "Soc",
    "Target",
    "cost_of",
    "is_stored",
    "nbytes_of",
    "target",
    "target_names",
    "target_of",
]
