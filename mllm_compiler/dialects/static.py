"""What ops of vendors share: each is one operator, on static shapes."""

from __future__ import annotations

from abc import ABC

from mllm_compiler.dialects.calls import CallOp
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.types import ranked, shape_of


class StaticOp(CallOp, ABC):
    """Base of ops whose every shape is static."""

    def verify_(self) -> None:
        """Checks that every shape is static, then the numbered constraints."""
        tensors = [*self.operands, *self.results]
        static = all(d.as_int() is not None for v in tensors if ranked(v) for d in shape_of(v))
        check(self, 0, static, "every shape is static")
        self.check_vendor()
        self.check_contract()

    def check_vendor(self) -> None:
        """What the vendor asks of every operator, as constraint 0."""

    def check_contract(self) -> None:
        """The op's numbered constraints; an op without any keeps this."""
