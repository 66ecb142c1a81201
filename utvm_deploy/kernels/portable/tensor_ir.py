"""PrimFuncs that are written block by block, for kernels that te cannot express; helpers in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.lazy_tvm import ir_builder, s_tir, script, tirx, tvm

Buffers = Mapping[str, Any]
_IMPORT_KEY = "pragma_import_c"
_IMPORT_SEPARATOR = "\f"

__all__ = ["Buffers", "block", "import_c", "prim_func", "script"]


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

    ``body`` gets the value of each axis. An axis of extent 1 has the value 0 and no loop.
    """
    kept = [axis for axis in axes if axis[1] > 1]

    def fill(loops: Sequence[Any]) -> None:
        with script.sblock(name):
            values: Iterator[Any] = iter(())
            if kept:
                kinds = "".join(kind for _, _, kind in kept)
                made = script.axis.remap(kinds, list(loops))
                made = [made] if len(kept) == 1 else list(made)
                for (axis, _, _), value in zip(kept, made, strict=True):
                    ir_builder.IRBuilder.name(f"v{axis}", value)
                values = iter(made)
            zero = tirx.const(0, "int32")
            body(*(next(values) if extent > 1 else zero for _, extent, _ in axes))

    if not kept:
        fill([])
        return
    with script.grid(*(extent for _, extent, _ in kept)) as loops:
        loops = [loops] if len(kept) == 1 else list(loops)
        for (axis, _, _), loop in zip(kept, loops, strict=True):
            ir_builder.IRBuilder.name(axis, loop)
        fill(loops)


def import_c(schedule: Any, *texts: str) -> None:
    """Put these helper functions, and no others, before the C function."""
    root = schedule.get_sblock("root")
    if _IMPORT_KEY in schedule.get(root).annotations:
        schedule.unannotate(root, _IMPORT_KEY)
    schedule.annotate(root, _IMPORT_KEY, _IMPORT_SEPARATOR.join(texts))
