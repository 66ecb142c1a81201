"""ADD, SUB and MUL of int8 and int16 in Helium, broadcast or not: ``elementwise_code.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.dsp.pairs import DspPairs
from utvm_deploy.kernels.native.mve import elementwise_code as code
from utvm_deploy.kernels.portable.elementwise import HEADROOM_BITS, BroadcastAdd, BroadcastMultiply

#: The multiplier and shift of one half.
_HALF = (1 << 30, 0)
# Of shorter runs plain C is no slower.
_LEAST_RUN = 4
_HOW = "Helium assembly, 4 elements in a vector"
_KINDS = {code.ADD: "add", code.MULTIPLY: "multiply"}


@dataclass(frozen=True)
class MveElementwise(RoutineKernel):
    """``count`` elements; ``function`` is the loop over them."""

    function: str
    count: int

    @property
    def name(self) -> str:
        return f"{_KINDS[self.function]}_{self.count}_mve"

    why: ClassVar[str] = _HOW

    @property
    def routine(self) -> RoutineCall:
        sides = (Operand(side, (self.count,), "int8") for side in ("first", "second"))
        numbers = Operand("numbers", (len(code.NUMBERS[self.function]),), "int32")
        output = Operand("output", (self.count,), "int8")
        return RoutineCall(self.function, (*sides, numbers, output), (self.count,))

    def texts(self, core: str) -> tuple[str, ...]:
        return (code.text(self.function),)


@dataclass(frozen=True)
class MvePairs(DspPairs):
    """The same of runs in which a side may repeat, and of int16; ``operation`` as in ``_KINDS``."""

    dtype: str = "int8"

    @property
    def name(self) -> str:
        dtype = "" if self.dtype == "int8" else f"_{self.dtype}"
        return f"{super().name.removesuffix('_dsp')}{dtype}_mve"

    @property
    def why(self) -> str:
        return _HOW

    @property
    def _dtype(self) -> str:
        return self.dtype

    @property
    def _numbers(self) -> int:
        return len(code.NUMBERS[self._loop])

    @property
    def _function(self) -> str:
        return f"{code.function_of(self._loop, self.dtype)}_runs"

    def texts(self, core: str) -> tuple[str, ...]:
        loop = code.function_of(self._loop, self.dtype)
        names = ("int8_t", f"{self.dtype}_t", 5), ("LOOP", loop, 3)
        return code.text(self._loop, self.dtype), replaced(shared_text("utvm_runs"), *names)

    @property
    def _loop(self) -> str:
        return {kind: function for function, kind in _KINDS.items()}[self.operation]


def mve_elementwise_call(call: KernelCall, scalars: Mapping[str, int]) -> KernelCall | str:
    """The call instead of the generic one, whose scalar arguments are ``scalars``."""
    kernel = call.kernel
    if not isinstance(kernel, BroadcastAdd | BroadcastMultiply):
        return ""
    if scalars["output_shift"] >= 0:
        return "the output's scale is one half or more"
    sides, follows = call.arguments[:2], (kernel.left_follows, kernel.right_follows)
    numbers = {
        "output_multiplier": scalars["output_multiplier"],
        "output_shift": scalars["output_shift"],
        "zero_point": scalars.get("output_zero_point", 0),
        "low": scalars["low"],
        "high": scalars["high"],
    }
    if isinstance(kernel, BroadcastMultiply):
        function = code.MULTIPLY
        numbers["first_offset"] = -scalars.get("left_zero_point", 0)
        numbers["second_offset"] = -scalars.get("right_zero_point", 0)
    else:
        function = code.ADD
        names = ("left", "right")
        if (scalars["right_multiplier"], scalars["right_shift"]) != _HALF:
            names, sides, follows = names[::-1], sides[::-1], follows[::-1]
        first, other = names
        if (scalars[f"{other}_multiplier"], scalars[f"{other}_shift"]) != _HALF:
            return "no side has the scale one half"
        shift = scalars[f"{first}_shift"]
        # Twice as much, and a right shift more, where there would be none.
        headroom = HEADROOM_BITS[kernel.dtype]
        factor = 1 << (headroom + (shift == 0))
        # What is subtracted is the right side.
        signs = {"left": 1, "right": -1 if kernel.subtracts else 1}
        other_factor = signs[other] << (headroom - 1)
        numbers |= {
            "start": -scalars.get(f"{first}_zero_point", 0) * factor,
            "multiplier": scalars[f"{first}_multiplier"],
            "shift": shift - (shift == 0),
            "factor": factor,
            "sign": signs[first],
            "other_factor": other_factor,
            "offset": -scalars.get(f"{other}_zero_point", 0) * other_factor,
        }
    table = np.array([numbers[name] for name in code.NUMBERS[function]], dtype=np.int32)
    arguments = (*sides, ConstantArgument("numbers", table), call.arguments[-1])
    made: MveElementwise | MvePairs = MveElementwise(function, math.prod(kernel.extents))
    if kernel.dtype != "int8" or not all((*follows[0], *follows[1])):
        made = MvePairs(_KINDS[function], kernel.extents, *follows, dtype=kernel.dtype)
        if made.run[1] < _LEAST_RUN:
            return f"runs of {made.run[1]} elements"
    return replace(call, kernel=made, arguments=arguments)
