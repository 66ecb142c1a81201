"""Kernels that are one call of a C function on whole buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    prim_func,
    script,
)


def whole_call(
    function: str,
    parameters: Sequence[Operand | str],
    *numbers: int,
    helpers: Sequence[str],
    outputs: int = 1,
    scratch: Sequence[Operand] = (),
) -> Any:
    """The PrimFunc that calls ``function`` with its parameters, scratch, and then ``numbers``.

    A str is a parameter of int32; the last ``outputs`` parameters are written.
    """
    operands = [one for one in parameters if isinstance(one, Operand)]

    def body(buffers: Buffers) -> None:
        for one in scratch:
            claim(one, buffers)
        with script.grid(1, 1) as (i, j), script.sblock("call"):
            script.axis.remap("SS", [i, j])
            script.reads(*(one.region(buffers) for one in operands[:-outputs]))
            script.writes(*(one.region(buffers) for one in (*operands[-outputs:], *scratch)))
            given = [
                buffers[one] if isinstance(one, str) else one.start(buffers)
                for one in (*parameters, *scratch)
            ]
            script.evaluate(extern(function, *given, *numbers))

    return prim_func(parameters, scratch, body, helpers=helpers)


def claim(scratch: Operand, buffers: Buffers) -> None:
    """Use the last element of scratch: TVM would keep no more of it than it sees used."""

    def store() -> None:
        zero = tirx.const(0, scratch.dtype)
        script.buffer_store(buffers[scratch.name], zero, [scratch.shape[0] - 1])

    block(f"claim_{scratch.name}", [], store)
