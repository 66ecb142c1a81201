"""TensorIR from text: PrimFuncs and tensor intrinsics of the DSP kernels.

A tile's meaning (start at the bias, accumulate, requantize) stands twice: in the kernel and in the
intrinsic's description; both come from the same lines.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as script
from tvm.script.parser import parse


@dataclass(frozen=True)
class Operand:
    """A buffer of a tile: its name, shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def region(self) -> str:
        """All of it."""
        return f"{self.name}[{', '.join(f'0:{extent}' for extent in self.shape)}]"

    @property
    def start(self) -> str:
        """The address of its first element."""
        return f"T.address_of({self.name}[{', '.join('0' for _ in self.shape)}])"

    @property
    def parameter(self) -> str:
        """Its declaration as a parameter of a PrimFunc."""
        return f'{self.name}: T.Buffer({self.shape}, "{self.dtype}")'

    @property
    def allocation(self) -> str:
        """Its declaration as memory of the function's own."""
        return f'{self.name} = T.sblock_alloc_buffer({self.shape}, "{self.dtype}")'


def prim_func(parameters: Sequence[str], body: str) -> Any:
    """The PrimFunc with this body, which stands in the root block.

    Simplified, because TVM simplifies descriptions of intrinsics before it compares.
    """
    made = parse(
        "@T.prim_func(s_tir=True)\n"
        f"def main({', '.join(parameters)}):\n"
        '    T.func_attr({"tirx.noalias": True})\n'
        '    with T.sblock("root"):\n' + textwrap.indent(body, " " * 8),
        {"T": script},
    )
    return s_tir.transform.StmtSimplify()(tvm.IRModule({"main": made}))["main"]


def nest(block: str, axes: Sequence[tuple[str, int, str]], statement: str) -> str:
    """Loops around one block; of each axis the name, the extent, and S(patial) or R(educed).

    In ``statement`` axis ``x`` is ``vx``. An axis of extent 1 becomes 0 and has no loop: TVM folds
    such loops in descriptions, but not in what is compared with them.
    """
    for name, extent, _ in axes:
        if extent == 1:
            statement = re.sub(rf"\bv{name}\b", "0", statement)
    kept = [axis for axis in axes if axis[1] > 1]
    lines = []
    indent = ""
    if kept:
        names = ", ".join(name for name, _, _ in kept)
        extents = ", ".join(str(extent) for _, extent, _ in kept)
        loop = f"T.grid({extents})" if len(kept) > 1 else f"range({extents})"
        lines.append(f"for {names} in {loop}:")
        indent = " " * 4
    lines.append(f'{indent}with T.sblock("{block}"):')
    if kept:
        kinds = "".join(kind for _, _, kind in kept)
        values = ", ".join(f"v{name}" for name, _, _ in kept)
        lines.append(f'{indent}    {values} = T.axis.remap("{kinds}", [{names}])')
    lines.append(f"{indent}    {statement}")
    return "\n".join(lines) + "\n"


def tensorize(
    schedule: Any,
    block: str,
    reads: Sequence[Operand],
    writes: Sequence[Operand],
    body: str,
    call: str,
) -> None:
    """Replace a block by a call, after comparing what it does with ``body``."""
    name = f"utvm_{block}"
    description = _intrinsic(reads, writes, body)
    implementation = _intrinsic(reads, writes, f"T.evaluate({call})")
    TensorIntrin.register(name, description, implementation, override=True)
    schedule.tensorize(schedule.get_sblock(block), name)


def _intrinsic(reads: Sequence[Operand], writes: Sequence[Operand], body: str) -> Any:
    operands = [*reads, *writes]
    parameters = ", ".join(f"p_{o.name}: T.handle" for o in operands)
    buffers = "".join(
        f'    {o.name} = T.match_buffer(p_{o.name}, {o.shape}, "{o.dtype}", offset_factor=1)\n'
        for o in operands
    )
    return parse(
        f"@T.prim_func(s_tir=True)\ndef intrinsic({parameters}):\n{buffers}"
        '    with T.sblock("root"):\n'
        f"        T.reads({', '.join(o.region for o in reads)})\n"
        f"        T.writes({', '.join(o.region for o in writes)})\n"
        + textwrap.indent(body, " " * 8),
        {"T": script},
    )


def import_c(schedule: Any, *texts: str) -> None:
    """Have the C function preceded by helpers; of equal ones a file needs one."""
    root = schedule.get_sblock("root")
    schedule.annotate(root, "pragma_import_c", "\f".join(texts))
