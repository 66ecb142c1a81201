"""The strict reader of a board file's regions, and which of them images may use for what.

Internal memory answers after reset. Memory from ``Target.external_begin`` on is behind a controller
that somebody must set up first: QSPI flash, SDRAM. So nothing that start-up needs goes there,
unless the file says that the core can start from it, or that it needs no initialization.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from utvm_deploy.base.toml_table import Table, shown
from utvm_deploy.boards.facts import Board, Region
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.table import target_of

REGION_KINDS = ("flash", "ram", "tcm")
# Names of regions appear in generated files of several languages.
_REGION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: The keys of [project] that name a region, and whether start-up needs it.
_PLACES = {"vectors": True, "code": True, "data": True, "weights": False, "workspace": False}
#: Those of them that are flash; the others are RAM.
_IN_FLASH = ("vectors", "code", "weights")


def read_regions(top: Table, core: Core, has_split_ram: bool = False) -> tuple[Region, ...]:
    """The tables ``[[memory]]``; with ``has_split_ram``, code in RAM may have another address."""
    regions: list[Region] = []
    for table in top.tables("memory"):
        region = _read_region(table, core)
        if not _REGION_NAME.fullmatch(region.name):
            raise table.error(
                "name", f"{shown(region.name)} must be letters, digits and underscores"
            )
        if region.end > 1 << 32:
            raise table.error("size", f"{region.name} ends at 0x{region.end:x}, beyond 4 GiB")
        for other in regions:
            if region.name == other.name:
                raise table.error("name", f"{shown(region.name)} is there twice")
            if region.address < other.end and other.address < region.end:
                raise table.error("address", f"{region.name} overlaps {other.name}")
        if region.alias is not None and region.kind != "flash":
            if not has_split_ram:
                raise table.error("alias", f"{region.name} is not flash; only flash has one here")
            if not region.executable:
                raise table.error("alias", f"{region.name} runs no code; write executable = true")
        regions.append(region)
        table.finish()
    if not any(region.kind == "flash" for region in regions):
        raise top.error("memory", "no region of kind flash; add one for code and weights")
    if not any(region.kind != "flash" for region in regions):
        raise top.error("memory", "no region of kind ram or tcm; add one for data")
    return tuple(regions)


def _read_region(table: Table, core: Core) -> Region:
    def optional(key: str) -> int | None:
        return table.integer(key) if table.has(key) else None

    address, kind = table.integer("address"), table.text("kind", REGION_KINDS)
    begin = target_of(core.name).external_begin
    is_flash, is_external = kind == "flash", begin is not None and address >= begin
    boot, needs_init = is_flash and not is_external, is_external
    says = [key for key in ("boot", "needs_init") if table.has(key)]
    if "boot" in says:
        boot = table.boolean("boot")
        if not is_flash:
            raise table.error("boot", "only flash has it: no core starts from RAM; remove it")
        needs_init = not boot
    if "needs_init" in says:
        needs_init = table.boolean("needs_init")
        if "boot" in says and boot and needs_init:
            raise table.error("needs_init", "the core cannot start from what needs it; write false")
        boot = boot and not needs_init
    return Region(
        name=table.text("name"),
        address=address,
        size=table.integer("size", minimum=1),
        kind=kind,
        executable=table.boolean("executable"),
        miss_cycles=optional("miss_cycles"),
        fetch_miss_cycles=optional("fetch_miss_cycles"),
        alias=optional("alias"),
        boot=boot,
        needs_init=needs_init,
        is_assumed=not says,
    )


def read_places(table: Table, memory: tuple[Region, ...]) -> dict[str, str | None]:
    """The keys of ``[project]`` that name a region; those that cannot start are refused."""
    places: dict[str, str | None] = {}
    by_name = {region.name: region for region in memory}
    for key, starts in _PLACES.items():
        places[key] = None
        if not table.has(key):
            continue
        is_flash = key in _IN_FLASH
        # An emulator may have its vectors anywhere.
        fitting = [r.name for r in memory if key == "vectors" or (r.kind == "flash") == is_flash]
        places[key] = name = table.text(key, fitting)
        region = by_name[name]
        why = _cannot_start(region)
        # Files from before there were such regions may know more than their addresses show.
        if starts and why and not (region.is_assumed and key in ("vectors", "data")):
            raise table.error(key, f"{shown(name)} {why}, so the image would not start; {_REMEDY}")
    return places


_REMEDY = "name another region, or say in its [[memory]] how it is"


def _cannot_start(region: Region) -> str | None:
    if region.kind == "flash" and not region.boot:
        return "is flash that the core cannot start from (boot = false)"
    if region.kind != "flash" and region.needs_init:
        return "is RAM that nobody initializes before main (needs_init = true)"
    return None


def dead_places(board: Board, weights_bytes: int = 0) -> Iterator[str]:
    """A sentence for each region that a bare-metal image uses before anybody has set it up."""
    yield from not_starting(board)
    yield from not_initialized(board, weights_bytes)


def not_starting(board: Board) -> Iterator[str]:
    """A sentence for each region that start-up needs, and that does not answer by then."""
    if board.template != "baremetal":
        return
    data = board.data_ram
    for region in dict.fromkeys((board.main_flash, board.vector_flash, data)):
        why = _cannot_start(region)
        if why:
            key = "boot = true" if region.kind == "flash" else "needs_init = false"
            what = "data and stack" if region == data else "code"
            yield (
                f"{board.name} has {what} in {region.name}, which {why}, so the image will not "
                f"start; if that is wrong, write {key} in its [[memory]]"
            )


def not_initialized(board: Board, weights_bytes: int = 0) -> Iterator[str]:
    """A sentence for each region that a model needs, and that only a boot loader can set up.

    An emulator loads the image's bytes wherever they belong.
    """
    if board.template != "baremetal" or board.runs_here:
        return
    starting = (board.main_flash, board.vector_flash, board.data_ram)
    for what, region in (
        ("the weights", board.weights_flash(weights_bytes)),
        ("the workspace", board.main_ram),
    ):
        if region.needs_init and region not in starting:
            yield (
                f"{board.name} has {what} in {region.name}, which the image does not initialize; "
                "your boot loader must (utvm docs reference/boards)"
            )
