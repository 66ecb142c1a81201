"""The parameters of a cycle model, taken from a board file, and QEMU's arguments for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import Board
from utvm_deploy.targets.emulator.plugin import plugin_argument
from utvm_deploy.targets.table import TIMINGS

#: Configuration ``ref``: what a data cache miss costs, from flash or RAM. A fit to published
#: figures of the STM32F746 (docs/reference/cycle-model.md), not a data sheet's number.
REF_MISS_CYCLES = 22
#: Rich model: a line of instructions from flash or RAM comes over the same bus as one of data.
#: Assumed.
FETCH_MISS_CYCLES = 22

#: Ways of the Cortex-M7's caches, for any size (Arm DDI 0489; the same in Microchip's SAM E70 data
#: sheet, "Arm Cortex-M7 Configuration").
DCACHE_WAYS = 4
ICACHE_WAYS = 2


@dataclass(frozen=True)
class Cache:
    """Sizes of a set-associative cache."""

    size_bytes: int
    ways: int
    line_bytes: int


@dataclass(frozen=True)
class CachedRange:
    """Memory that the caches serve."""

    address: int
    size: int
    kind: str  # flash, ram: how its misses are counted, and what they cost


@dataclass(frozen=True)
class CycleModel:
    """All facts about a chip that the plugin gets."""

    core: str
    dcache: Cache | None
    icache: Cache | None
    cached: tuple[CachedRange, ...]
    # (address, size) of memory that answers in one cycle and is used much; all that is neither
    # here nor in ``cached`` is as fast.
    tightly_coupled: tuple[int, int] | None = None
    flash_miss_cycles: int = REF_MISS_CYCLES
    ram_miss_cycles: int = REF_MISS_CYCLES
    flash_fetch_miss_cycles: int = FETCH_MISS_CYCLES
    ram_fetch_miss_cycles: int = FETCH_MISS_CYCLES

    @classmethod
    def for_board(cls, board: Board) -> CycleModel:
        """The model of a board's chip, in configuration ``ref``.

        It knows one cost for all flash, and one for all RAM. Data that is read from flash are
        weights, so their region says what that costs. The code's region says what fetches cost,
        and the workspace's what RAM costs.

        Raises BoardError for a core whose timing is not known.
        """
        cpu = board.cpu
        if cpu.core not in TIMINGS:
            raise BoardError(
                f"there is no cycle model for the core {cpu.core} of {board.name}; known are "
                f"{', '.join(TIMINGS)}. Instruction counts need none"
            )
        line = cpu.facts.cache_line_bytes
        tightly = [(r.address, r.size) for r in board.memory if r.kind == "tcm"]
        return cls(
            core=cpu.core,
            dcache=_cache(board, cpu.dcache_bytes, cpu.dcache_ways or DCACHE_WAYS, line),
            icache=_cache(board, cpu.icache_bytes, cpu.icache_ways or ICACHE_WAYS, line),
            cached=tuple(
                CachedRange(r.address, r.size, r.kind) for r in board.memory if r.kind != "tcm"
            ),
            tightly_coupled=max(tightly, key=lambda one: one[1]) if tightly else None,
            flash_miss_cycles=_or(board.weights_flash(0).miss_cycles, REF_MISS_CYCLES),
            ram_miss_cycles=_or(board.main_ram.miss_cycles, REF_MISS_CYCLES),
            flash_fetch_miss_cycles=_or(board.main_flash.fetch_miss_cycles, FETCH_MISS_CYCLES),
            ram_fetch_miss_cycles=_or(board.main_ram.fetch_miss_cycles, FETCH_MISS_CYCLES),
        )

    def without_caches(self) -> CycleModel:
        """The core alone: what every memory access in one cycle would give."""
        return replace(self, dcache=None, icache=None)


def _cache(board: Board, size_bytes: int, ways: int, line_bytes: int) -> Cache | None:
    """None for size 0; BoardError for one that cannot be divided into sets."""
    if not size_bytes:
        return None
    sets, rest = divmod(size_bytes, ways * line_bytes)
    if rest or sets & (sets - 1) or ways & (ways - 1):
        raise BoardError(
            f"{board.name}: a cache of {size_bytes} bytes cannot have {ways} ways of "
            f"{line_bytes}-byte lines; ways and sets are powers of two"
        )
    return Cache(size_bytes, ways, line_bytes)


def _or(cost: int | None, default: int) -> int:
    return default if cost is None else cost


@dataclass(frozen=True)
class CounterBlock:
    """Where the guest reads the counters: an address, and the memory region around it.

    Code must run from that region before the first reading, because the plugin finds the block
    through it. It is ``counters.BLOCK_BYTES`` long and aligned to 8.
    """

    address: int
    region_address: int
    region_size: int


def counter_block(board: Board, address: int) -> CounterBlock:
    """The block at this address of a board; BoardError if no memory region holds it."""
    for region in board.memory:
        if region.address <= address < region.address + region.size:
            return CounterBlock(address, region.address, region.size)
    raise BoardError(
        f"the cycle model's counters at {address:#010x} are in no memory of {board.name}; build "
        "the image again"
    )


def arguments(
    plugin: Path,
    model: CycleModel,
    *,
    counters: CounterBlock | None = None,
    snapshots: Path | None = None,
    report: Path | None = None,
    hot: int = 0,
) -> list[str]:
    """Arguments for QEMU's command line that load the plugin with this model."""
    settings = [f"core={model.core}"]
    for name, cache in (("dcache", model.dcache), ("icache", model.icache)):
        if cache is not None:
            settings.append(f"{name}={_numbers((cache.size_bytes, cache.ways, cache.line_bytes))}")
    settings += [f"{one.kind}={_numbers((one.address, one.size))}" for one in model.cached]
    if model.tightly_coupled is not None:
        settings.append(f"free={_numbers(model.tightly_coupled)}")
    settings.append(f"miss={_numbers((model.flash_miss_cycles, model.ram_miss_cycles))}")
    fetch = (model.flash_fetch_miss_cycles, model.ram_fetch_miss_cycles)
    settings.append(f"fetch_miss={_numbers(fetch)}")
    if counters is not None:
        block = (counters.address, counters.region_address, counters.region_size)
        settings.append(f"counters={_numbers(block)}")
    if snapshots is not None:
        settings.append(f"snapshots={snapshots}")
    if report is not None:
        settings += [f"report={report}", f"hot={hot}"]
    return plugin_argument(plugin, settings)


def _numbers(values: Sequence[int]) -> str:
    return ":".join(f"{value:#x}" for value in values)
