"""TensorIR of the kernels: PrimFuncs, and the intrinsics that their tiles are tensorized with.

A tile's meaning (start at the bias, accumulate, requantize) is needed twice: in the kernel and in
the intrinsic's description; one function builds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract import driver
from utvm_deploy.kernels.contract.lazy_tvm import ir_builder, s_tir, script, tirx, tvm

Buffers = Mapping[str, Any]
#: Whose code unscheduled functions get where they call any: all have a form in C.
ANY_CORE = "cortex-m7"
_IMPORT_KEY = "pragma_import_c"
_IMPORT_SEPARATOR = "\f"

__all__ = [
    "ANY_CORE", "Buffers", "Operand", "block", "extern", "half_of", "import_c", "prim_func", "pure",
    "script", "tensorize",
]  # fmt: skip


@dataclass(frozen=True)
class Operand(driver.Operand):
    """A buffer of TensorIR."""

    def region(self, buffers: Buffers) -> Any:
        """All of it."""
        return buffers[self.name][tuple(slice(0, extent) for extent in self.shape)]

    def start(self, buffers: Buffers) -> Any:
        """The address of its first element."""
        return script.address_of(buffers[self.name][(0,) * len(self.shape)])


def prim_func(
    parameters: Sequence[driver.Operand | str],
    temporaries: Sequence[driver.Operand],
    body: Callable[[Buffers], None],
    *,
    helpers: Sequence[str] = (),
) -> Any:
    """The PrimFunc with this body, which stands in the root block; a str is an int32 parameter.

    ``helpers`` are the C texts of what it calls as it is, before it is scheduled. Simplified,
    because TVM simplifies descriptions of intrinsics before it compares.
    """
    with ir_builder.IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        buffers: dict[str, Any] = {}
        for one in parameters:
            if isinstance(one, str):
                buffers[one] = script.arg(one, script.int32())
            else:
                buffers[one.name] = script.arg(one.name, script.Buffer(one.shape, one.dtype))
        script.func_attr({"tirx.noalias": True})
        with script.sblock("root"):
            if helpers:
                script.sblock_attr({_IMPORT_KEY: _IMPORT_SEPARATOR.join(helpers)})
            for one in temporaries:
                buffer = script.sblock_alloc_buffer(one.shape, one.dtype)
                ir_builder.IRBuilder.name(one.name, buffer)
                buffers[one.name] = buffer
            body(buffers)
    made = tvm.IRModule({"main": builder.get()})
    return s_tir.transform.StmtSimplify()(made)["main"]


def block(name: str, axes: Sequence[tuple[str, int, str]], body: Callable[..., None]) -> None:
    """Loops around one block: of each axis the name, the extent, and S(patial) or R(educed).

    ``body`` gets the axes' values. An axis of extent 1 is 0 and has no loop: TVM folds such loops
    in descriptions, but not in what is compared with them.
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


def tensorize(
    schedule: Any,
    name: str,
    reads: Sequence[Operand],
    writes: Sequence[Operand],
    meaning: Callable[[Buffers], None],
    call: Callable[[Buffers], Any],
) -> None:
    """Replace a block by a call, after comparing what it does with its meaning."""
    intrinsic = f"utvm_{name}"
    description = _intrinsic(reads, writes, meaning)
    # A tile may be part of a larger buffer: only the call's buffers may have strides.
    implementation = _intrinsic(reads, writes, lambda b: script.evaluate(call(b)), is_strided=True)
    s_tir.TensorIntrin.register(intrinsic, description, implementation, override=True)
    schedule.tensorize(schedule.get_sblock(name), intrinsic)


def extern(function: str, *arguments: Any) -> Any:
    """A call for its effects."""
    return tirx.call_extern("int32", function, *arguments)


def pure(function: str, *arguments: Any) -> Any:
    """A call for its int32 result."""
    return tirx.call_pure_extern("int32", function, *arguments)


def half_of(word: Any, half: Any) -> Any:
    """The lower (0) or upper (1) half of a word, as a signed number."""
    lower = tirx.bitwise_xor(tirx.bitwise_and(word, 0xFFFF), 0x8000) - 0x8000
    return tirx.Select(half == 1, word >> 16, lower)


def _intrinsic(
    reads: Sequence[Operand],
    writes: Sequence[Operand],
    body: Callable[[Buffers], None],
    *,
    is_strided: bool = False,
) -> Any:
    operands = [*reads, *writes]
    with ir_builder.IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("intrinsic")
        handles = [script.arg(f"p_{one.name}", script.handle()) for one in operands]
        buffers: dict[str, Any] = {}
        for one, handle in zip(operands, handles, strict=True):
            outer = len(one.shape) - 1
            strides = [tirx.Var(f"{one.name}_s{n}", "int32") for n in range(outer)]
            buffer = script.match_buffer(
                *(handle, one.shape, one.dtype),
                offset_factor=1,
                strides=[*strides, 1] if is_strided and outer else None,
            )
            ir_builder.IRBuilder.name(one.name, buffer)
            buffers[one.name] = buffer
        with script.sblock("root"):
            script.reads(*(one.region(buffers) for one in reads))
            script.writes(*(one.region(buffers) for one in writes))
            body(buffers)
    return builder.get()


def import_c(schedule: Any, *texts: str) -> None:
    """Have the C function preceded by these helpers and no others; a file needs each once."""
    root = schedule.get_sblock("root")
    if _IMPORT_KEY in schedule.get(root).annotations:
        schedule.unannotate(root, _IMPORT_KEY)
    schedule.annotate(root, _IMPORT_KEY, _IMPORT_SEPARATOR.join(texts))
