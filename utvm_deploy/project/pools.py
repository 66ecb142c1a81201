"""Where an image has the pools of a model: at the ends of their memory regions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel


@dataclass(frozen=True)
class PlacedPool:
    """A pool in an image: whole eighths of a power of two, which an MPU can give to tasks."""

    name: str  # of the region
    address: int
    end: int


def placed_pools(compiled: CompiledModel | None, board: Board) -> tuple[PlacedPool, ...]:
    """The pools of a model in a bare-metal image, in the order of ``CompiledModel.pools``.

    Raises CompileError if a region is too small.
    """
    if compiled is None or not compiled.pools:
        return ()
    placed = []
    for pool in compiled.pools:
        region = board.region(pool.name)
        grain = 32
        while True:
            start = (region.end - pool.size_bytes) // grain * grain
            # The smallest power of two around it, as the MPU's window has it.
            window = 1 << ((region.end - 1) ^ start).bit_length()
            if grain >= window // 8:
                break
            grain = window // 8
        if start < region.address:
            raise CompileError(
                f"the pool {pool.name} needs {region.end - start:,} bytes with its alignment, and "
                f"{board.name}'s region {pool.name} has {region.size:,}; give a smaller limit"
            )
        placed.append(PlacedPool(pool.name, start, region.end))
    return tuple(placed)


def without_pools(board: Board, pools: Iterable[PlacedPool]) -> Board:
    """The board with regions that end where the pools begin."""
    starts = {pool.name: pool.address for pool in pools}
    regions = tuple(
        replace(region, size=starts[region.name] - region.address)
        if region.name in starts
        else region
        for region in board.memory
    )
    return replace(board, memory=regions)
