"""Kernels that are one call of a C function on whole buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.kernels.micro.tensor_ir import Buffers, Operand, extern, prim_func, script


def whole_call(
    function: str,
    parameters: Sequence[Operand | str],
    *numbers: int,
    helpers: Sequence[str],
    outputs: int = 1,
) -> Any:
    """The PrimFunc that calls ``function`` with its parameters, then ``numbers``.

    A str is a parameter of int32; the last ``outputs`` parameters are written.
    """
    operands = [one for one in parameters if isinstance(one, Operand)]

    def body(buffers: Buffers) -> None:
        with script.grid(1, 1) as (i, j), script.sblock("call"):
            script.axis.remap("SS", [i, j])
            script.reads(*(one.region(buffers) for one in operands[:-outputs]))
            script.writes(*(one.region(buffers) for one in operands[-outputs:]))
            given = [
                buffers[one] if isinstance(one, str) else one.start(buffers) for one in parameters
            ]
            script.evaluate(extern(function, *given, *numbers))

    return prim_func(parameters, [], body, helpers=helpers)
