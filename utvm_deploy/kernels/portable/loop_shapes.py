"""Kernels in plain C whose loops are shaped by a candidate instead of by their own default.

tile=PxC     a register tile of P pixels (or rows) by C channels, where the kernel has tiles
unroll=N     the innermost loop of every loop nest does N elements before it asks for its end

or, with ``sketch`` and ``decisions``, by a schedule of the template-free space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.kernels.contract.call import Kernel, KernelCall, LibraryKernel, OwnKernel
from utvm_deploy.kernels.contract.driver import is_native
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.fully_connected import Dense
from utvm_deploy.kernels.portable.pool import Pool2D
from utvm_deploy.kernels.portable.template_free import DECISIONS, SKETCH, traced
from utvm_deploy.kernels.portable.tiling import RegisterTile, tiles
from utvm_deploy.records.candidate import GENERIC, Candidate

TILE, UNROLL = "tile", "unroll"
#: Loops that are worth unrolling by hand are unrolled so many times.
UNROLLS = (2, 4, 8)
# TVM's number for a loop that is no more than a loop.
_SERIAL = 0
# And for a block's dimension along which its elements do not depend on each other.
_DATA_PARALLEL = 0


@dataclass(frozen=True)
class Unrolled:
    """Another kernel with its innermost loops unrolled."""

    kernel: Kernel
    unroll: int

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_u{self.unroll}"

    def prim_func(self) -> Any:
        return self.kernel.prim_func()

    def schedule(self, sch: Any, core: str) -> str:
        why = self.kernel.schedule(sch, core)
        for loop in _innermost_loops(sch):
            extent = sch.get(loop).extent
            if isinstance(extent, tirx.IntImm) and int(extent) % self.unroll == 0:
                if int(extent) > self.unroll:
                    _, loop = sch.split(loop, [None, self.unroll])
                sch.unroll(loop)
        return f"{why}, innermost loops {self.unroll} at a time"


def looped_call(call: KernelCall, candidate: Candidate) -> KernelCall:
    """The generic call as the candidate wants it; UnsupportedOperator if it does not fit."""
    kernel = call.kernel
    assert not isinstance(kernel, LibraryKernel)
    if candidate.choice(SKETCH) is not None:
        return replace(call, kernel=_traced(kernel, candidate))
    tile, unroll = candidate.choice(TILE), candidate.choice(UNROLL)
    unknown = sorted({name for name, _ in candidate.choices} - {TILE, UNROLL})
    if unknown:
        raise UnsupportedOperator(f"generic kernel {kernel.name} has no choice {unknown[0]!r}")
    if tile is not None:
        allowed = {one.label: one for one in _tiles(kernel)}
        if tile not in allowed or not isinstance(kernel, Conv2D | Dense | Pool2D):
            raise UnsupportedOperator(f"generic kernel {kernel.name} has no tile {tile}")
        kernel = replace(kernel, tile=allowed[str(tile)])
    if unroll is not None:
        if is_native(kernel):
            raise UnsupportedOperator(f"kernel {kernel.name} has no loops to unroll")
        if type(unroll) is not int or unroll not in UNROLLS:
            raise UnsupportedOperator(f"generic kernel {kernel.name} is not unrolled by {unroll}")
        kernel = Unrolled(kernel, unroll)
    return replace(call, kernel=kernel)


def _traced(kernel: OwnKernel, candidate: Candidate) -> Kernel:
    unknown = sorted({name for name, _ in candidate.choices} - {SKETCH, DECISIONS})
    found = f"{unknown[0]} is no choice beside a sketch" if unknown else traced(kernel, candidate)
    if isinstance(found, str):
        raise UnsupportedOperator(f"no template-free kernel {kernel.name}: {found}")
    return found


def loop_candidates(call: KernelCall) -> tuple[Candidate, ...]:
    """Every shape of the loops of a generic call, its own default first."""
    kernel = call.kernel
    found = [Candidate(GENERIC)]
    if isinstance(kernel, LibraryKernel) or is_native(kernel):
        return tuple(found)
    found += [Candidate.of(GENERIC, unroll=unroll) for unroll in UNROLLS]
    for tile in _tiles(kernel):
        found.append(Candidate.of(GENERIC, tile=tile.label))
        found += [Candidate.of(GENERIC, tile=tile.label, unroll=unroll) for unroll in UNROLLS]
    return tuple(found)


def _tiles(kernel: OwnKernel) -> list[RegisterTile]:
    if isinstance(kernel, Conv2D):
        return tiles(kernel.window.output_width, kernel.output_channels)
    if isinstance(kernel, Dense):
        return tiles(kernel.batch, kernel.outputs)
    if isinstance(kernel, Pool2D):
        return tiles(1, kernel.channels)
    return []


def _innermost_loops(sch: Any) -> Iterator[Any]:
    """The last loop of every block, if it is a plain one and nothing is carried through it.

    TVM's C generator remembers what it has read: of a maximum that is written and read again in
    straight code it takes the old value.
    """
    root = sch.get_sblock("root")
    for block in sch.get_child_blocks(root):
        loops = sch.get_loops(block)
        if any(int(one.iter_type) != _DATA_PARALLEL for one in sch.get(block).iter_vars):
            continue
        if loops and int(sch.get(loops[-1]).kind) == _SERIAL:
            yield loops[-1]
