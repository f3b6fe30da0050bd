"""The call of a function that another device runs."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, TensorType
from xdsl.irdl import irdl_op_definition, prop_def, var_operand_def, var_result_def

from mllm_compiler.dialects.cpu.base import CpuOp, Param
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.types import shape_of


@irdl_op_definition
class DeviceCallOp(CpuOp):
    """What a function of another device makes of tensors: the host's device `device` runs `callee`.

    Operands and results are the arguments and results of the function, in order. Its operators are
    those of the device, whose rounding is its own.

    C1  device is a name, and so is callee.
    C2  every shape is static, as the device compiled it.
    """

    name = "cpu.device_call"
    inputs = var_operand_def(TensorType)
    device = prop_def(StringAttr)
    callee = prop_def(SymbolRefAttr)
    outputs = var_result_def(TensorType)

    def params(self) -> list[Param]:
        """The names of the device and of the function."""
        return [("string", self.device.data), ("string", self.callee.string_value())]

    def check_contract(self) -> None:
        """C1 and C2."""
        named = bool(self.device.data and self.callee.string_value())
        check(self, 1, named, "device and callee are names")
        values = (*self.inputs, *self.outputs)
        static = all(dim.as_int() is not None for value in values for dim in shape_of(value))
        check(self, 2, static, "every shape is static")
