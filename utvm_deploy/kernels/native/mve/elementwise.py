"""ADD, SUB and MUL of int8 and int16 in Helium, broadcast or not: ``elementwise_code.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.native.dsp.pairs import DspPairs
from utvm_deploy.kernels.native.mve import elementwise_code as code
from utvm_deploy.kernels.portable.elementwise import HEADROOM_BITS, BroadcastAdd, BroadcastMultiply
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)

#: The multiplier and shift of one half.
_HALF = (1 << 30, 0)
# Of shorter runs plain C is no slower.
_LEAST_RUN = 4
_KINDS = {code.ADD: "add", code.MULTIPLY: "multiply"}


@dataclass(frozen=True)
class MveElementwise:
    """``count`` elements; ``function`` is the loop over them."""

    function: str
    count: int

    @property
    def name(self) -> str:
        return f"{_KINDS[self.function]}_{self.count}_mve"

    def prim_func(self) -> Any:
        *reads, output = self._operands

        def body(buffers: Buffers) -> None:
            with script.grid(1, 1) as (i, j), script.sblock("elements"):
                script.axis.remap("SS", [i, j])
                script.reads(*(one.region(buffers) for one in reads))
                script.writes(output.region(buffers))
                self._meaning(buffers)

        return prim_func(self._operands, [], body)

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, code.text(self.function))
        *reads, output = self._operands

        def call(buffers: Buffers) -> Any:
            starts = (one.start(buffers) for one in self._operands)
            return extern(self.function, *starts, self.count)

        tensorize(sch, "elements", reads, [output], self._meaning, call)
        return "Helium assembly, 4 elements in a vector"

    @property
    def _operands(self) -> list[Operand]:
        return [
            Operand("first", (self.count,), "int8"),
            Operand("second", (self.count,), "int8"),
            Operand("numbers", (len(code.NUMBERS[self.function]),), "int32"),
            Operand("output", (self.count,), "int8"),
        ]

    def _meaning(self, buffers: Buffers) -> None:
        names = code.NUMBERS[self.function]
        n = {name: buffers["numbers"][place] for place, name in enumerate(names)}

        def element(i: Any) -> None:
            first, second = (buffers[side][i].astype("int32") for side in ("first", "second"))
            if self.function == code.ADD:
                raised = first * n["factor"] + n["start"]
                total = pure("utvm_requantize", raised, n["multiplier"], n["shift"])
                total = total * n["sign"] + second * n["other_factor"] + n["offset"]
            else:
                total = (first + n["first_offset"]) * (second + n["second_offset"])
            value = pure("utvm_requantize", total, n["output_multiplier"], n["output_shift"])
            value = pure("utvm_clamp", value + n["zero_point"], n["low"], n["high"])
            script.buffer_store(buffers["output"], value.astype("int8"), [i])

        block("element", [("i", self.count, "S")], element)


@dataclass(frozen=True)
class MvePairs(DspPairs):
    """The same of runs in which a side may repeat, and of int16; ``operation`` as in ``_KINDS``."""

    dtype: str = "int8"

    @property
    def name(self) -> str:
        dtype = "" if self.dtype == "int8" else f"_{self.dtype}"
        return f"{super().name.removesuffix('_dsp')}{dtype}_mve"

    def schedule(self, sch: Any, core: str) -> str:
        super().schedule(sch, core)
        return "Helium assembly, 4 elements in a vector"

    @property
    def _dtype(self) -> str:
        return self.dtype

    @property
    def _numbers(self) -> int:
        return len(code.NUMBERS[self._loop])

    @property
    def _function(self) -> str:
        return f"{code.function_of(self._loop, self.dtype)}_runs"

    def _texts(self, core: str) -> Sequence[str]:
        runs = shared_text("utvm_runs").replace("int8_t", f"{self.dtype}_t")
        loop = code.function_of(self._loop, self.dtype)
        return code.text(self._loop, self.dtype), runs.replace("LOOP", loop)

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
