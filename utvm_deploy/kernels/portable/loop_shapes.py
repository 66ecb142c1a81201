"""The strategy of portable kernels: every operator, as C whose loops a candidate shapes.

tile=PxC     a register tile of P pixels (or rows) by C channels, if the kernel has tiles
unroll=N     the innermost loop of every loop nest computes N elements in each iteration

Instead of these, a candidate may choose a schedule of the template-free space (``template_free``),
or one with tensor intrinsics (``tensorized``), or have the trace of any schedule (``given_trace``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from utvm_deploy.kernels.contract.call import (
    Kernel,
    KernelCall,
    LibraryKernel,
    OwnKernel,
    is_native,
)
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.strategy import Choices, Layer, Strategy, Wish
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense
from utvm_deploy.kernels.portable.integers.pool import Pool2D
from utvm_deploy.kernels.portable.schedules.given_trace import TRACE, with_trace
from utvm_deploy.kernels.portable.schedules.template_free import has_sketch, traced
from utvm_deploy.kernels.portable.schedules.tensorized import INTRINSICS, tensorized
from utvm_deploy.kernels.portable.schedules.tiling import RegisterTile, tiles
from utvm_deploy.records.candidate import GENERIC, Candidate

#: The factors by which loops are unrolled.
UNROLLS = (2, 4, 8)
# TVM's numbers for a serial loop, and for a block's dimension whose elements are independent.
_SERIAL = _DATA_PARALLEL = 0


@dataclass(frozen=True)
class LoopChoices(Choices):
    """The shape of the loops; a choice that is not given is the kernel's default."""

    tile: str | None = None
    unroll: int | None = None


@dataclass(frozen=True)
class Unrolled:
    """A kernel with its innermost loops unrolled."""

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


def build_portable(layer: Layer, wish: Wish) -> KernelCall | str:
    """Every operator: the portable call, with the loops that the candidate chooses."""
    call, candidate = layer.portable, wish.candidate
    if candidate is None or wish.is_open:
        return call
    assert not isinstance(call.kernel, LibraryKernel)
    kernel = searched(call.kernel, candidate)
    if kernel is None:
        kernel = _looped(call.kernel, candidate)
    return kernel if isinstance(kernel, str) else replace(call, kernel=kernel)


def searched(kernel: OwnKernel, candidate: Candidate) -> OwnKernel | str | None:
    """The kernel with a schedule that a search found, or why there is none.

    None if no search made the candidate.
    """
    if candidate.choice(TRACE) is not None:
        return with_trace(kernel, candidate)
    if candidate.choice(INTRINSICS) is not None:
        return tensorized(kernel, candidate)
    return traced(kernel, candidate) if has_sketch(candidate) else None


def _looped(kernel: OwnKernel, candidate: Candidate) -> OwnKernel | str:
    """The kernel with the candidate's tile and unrolling; a text says why there is none."""
    choices = LoopChoices.read(candidate)
    if isinstance(choices, str):
        return choices
    if choices.tile is not None:
        allowed = {one.label: one for one in _tiles(kernel)}
        if choices.tile not in allowed or not isinstance(kernel, Conv2D | Dense | Pool2D):
            known = f"its tiles are {', '.join(allowed)}" if allowed else "it has no tiles"
            return f"{kernel.name} has no tile {choices.tile}; {known}"
        kernel = replace(kernel, tile=allowed[choices.tile])
    if choices.unroll is None:
        return kernel
    if is_native(kernel):
        return f"{kernel.name} is a C routine, which has no loops to unroll"
    if choices.unroll not in UNROLLS:
        known = ", ".join(map(str, UNROLLS))
        return f"loops are not unrolled by {choices.unroll}, but by {known}"
    return Unrolled(kernel, choices.unroll)


def portable_candidates(layer: Layer) -> Iterator[Candidate]:
    """Every shape of the loops of the portable call; the kernel's own default first."""
    kernel = layer.portable.kernel
    assert not isinstance(kernel, LibraryKernel)
    if is_native(kernel):
        yield Candidate(GENERIC)
        return
    for tile in (None, *(one.label for one in _tiles(kernel))):
        for unroll in (None, *UNROLLS):
            yield LoopChoices(tile, unroll).candidate(GENERIC)


PORTABLE_STRATEGY = Strategy((), build_portable, portable_candidates, unpacks=True)


def _tiles(kernel: OwnKernel) -> list[RegisterTile]:
    return tiles(*kernel.tile_extents) if isinstance(kernel, Conv2D | Dense | Pool2D) else []


def _innermost_loops(sch: Any) -> Iterator[Any]:
    """The last loop of each block whose elements are independent, if that loop is serial.

    Others must not be unrolled. TVM's C generator reads a value once. If straight code writes a
    maximum and reads it again, the generator uses the old value.
    """
    root = sch.get_sblock("root")
    for block in sch.get_child_blocks(root):
        loops = sch.get_loops(block)
        if any(int(one.iter_type) != _DATA_PARALLEL for one in sch.get(block).iter_vars):
            continue
        if loops and int(sch.get(loops[-1]).kind) == _SERIAL:
            yield loops[-1]
