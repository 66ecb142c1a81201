"""PrimFuncs that are written block by block, for kernels that te cannot express."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.lazy_tvm import ir_builder, s_tir, script, tvm

Buffers = Mapping[str, Any]


def prim_func(parameters: Sequence[Operand], body: Callable[[Buffers], None]) -> Any:
    """The PrimFunc with these parameters; ``body`` writes its blocks, given the buffers by name."""
    with ir_builder.IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        buffers = {
            one.name: script.arg(one.name, script.Buffer(one.shape, one.dtype))
            for one in parameters
        }
        script.func_attr({"tirx.noalias": True})
        with script.sblock("root"):
            body(buffers)
    made = tvm.IRModule({"main": builder.get()})
    return s_tir.transform.StmtSimplify()(made)["main"]


def block(name: str, axes: Sequence[tuple[str, int, str]], body: Callable[..., None]) -> None:
    """Loops around one block: of each axis the name, the extent, and S(patial) or R(educed).

    There are at least two axes. ``body`` gets the value of each axis.
    """
    names, extents, kinds = zip(*axes, strict=True)
    with script.grid(*extents) as loops:
        for axis, loop in zip(names, loops, strict=True):
            ir_builder.IRBuilder.name(axis, loop)
        with script.sblock(name):
            values = script.axis.remap("".join(kinds), list(loops))
            for axis, value in zip(names, values, strict=True):
                ir_builder.IRBuilder.name(f"v{axis}", value)
            body(*values)
