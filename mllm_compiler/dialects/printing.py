"""The text of a module that parses back to the same module."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.printer import Printer
from xdsl.targets.mlir import MLIRTarget

from mllm_compiler.dialects.types import dtype_of, is_float


class ExactPrinter(Printer):
    """Prints dense floats as bytes where one is infinite or NaN.

    xDSL prints such an element as the hexadecimal number of its bits, and its parser reads this as
    a number of that size: minus infinity comes back as 4286578688.
    """

    def print_attribute(self, attribute: Attribute) -> None:
        """Prints an attribute."""
        if not isinstance(attribute, DenseIntOrFPElementsAttr):
            super().print_attribute(attribute)
            return
        dense = cast("DenseIntOrFPElementsAttr[AnyFloat]", attribute)
        if not is_float(dense.get_element_type()) or _finite(dense):
            super().print_attribute(dense)
            return
        self.print_string(f'dense<"0x{_array(dense).tobytes().hex().upper()}"> : ')
        self.print_attribute(dense.type)


def _array(dense: DenseIntOrFPElementsAttr[AnyFloat]) -> NDArray[np.generic]:
    return np.array(dense.get_values(), dtype_of(dense.get_element_type()))


def _finite(dense: DenseIntOrFPElementsAttr[AnyFloat]) -> bool:
    return bool(np.isfinite(np.array(dense.get_values())).all())


@dataclass(frozen=True)
class ExactTarget(MLIRTarget):
    """What `mllm-opt` prints: text that parses back; in colours, xDSL's."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Writes a module."""
        if self.syntax_highlight:
            super().emit(ctx, module, output)
            return
        printer = ExactPrinter(
            stream=output,
            print_generic_format=self.print_generic_format,
            print_properties_as_attributes=self.print_properties_as_attributes,
            print_debuginfo=self.print_debuginfo,
        )
        printer.print_op(module)
        printer.print_metadata(ctx.loaded_dialects)
        output.write("\n\n")


def text_of(op: Operation) -> str:
    """An op as text that parses back, locations included."""
    stream = io.StringIO()
    ExactPrinter(stream, print_debuginfo=True).print_op(op)
    return stream.getvalue()
