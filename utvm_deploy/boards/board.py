"""Boards by name, and the strict reader of their TOML files.

A board file describes a piece of hardware or an emulated machine as data. boards/desk_file.py reads
where a board is connected (serial port, probe). The result is a Board of boards/facts.py.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.toml_table import Table, did_you_mean, read_toml_text, shown
from utvm_deploy.boards.drivers import TICK_UNITS, read_driver, read_timer
from utvm_deploy.boards.facts import (
    CHILD_PROBE,
    DEFAULT_STACK_BYTES,
    EMULATOR_PROBE,
    ESP_IDF,
    LINK_KINDS,
    MONITOR_LINK,
    ZEPHYR,
    Board,
    Cpu,
    Driver,
    Emulator,
    EspIdf,
    Link,
    Probe,
    Project,
    Region,
    Zephyr,
    region_of_code,
    region_of_workspace,
)
from utvm_deploy.boards.probe_programs import PROBE_PROGRAMS
from utvm_deploy.boards.probe_table import read_probe
from utvm_deploy.boards.regions import read_places, read_regions
from utvm_deploy.boards.trust import check_harmless
from utvm_deploy.targets.table import CORES, TIMINGS, why_no_core

__all__ = [
    "CHILD_PROBE",
    "EMULATOR_PROBE",
    "Board",
    "Cpu",
    "Region",
    "board_names",
    "load_board",
    "with_template",
]

TEMPLATES = ("host", "baremetal", ZEPHYR, ESP_IDF)
#: The ways to the runtime under ESP-IDF.
ESP_IDF_LINKS = ("uart", "usb_serial_jtag")
# Keys that a board file may omit.
DEFAULT_LINK = Link(kinds=(MONITOR_LINK,), baud=115_200)
# Template -> how the board is flashed, where others know the board better than its file.
DEFAULT_PROBES = {
    ZEPHYR: Probe(kinds=("west",), commands=(PROBE_PROGRAMS["west"].for_board({}),)),
    ESP_IDF: Probe(kinds=("idf.py",), commands=()),
}
FPUS = ("none", "single", "double")
# Names of boards appear in generated files of several languages.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_NAME_RULE = "must be letters, digits, '_', '-' and '.', a letter first"
_DEVICE = re.compile(r"[A-Z][A-Z0-9?_-]*", re.ASCII)
_ZEPHYR_NAME = re.compile(r"\w+(?:[/@]\w[\w.]*)*", re.ASCII)
_CHIP = re.compile(r"[a-z0-9]+", re.ASCII)
PARTS_OF_FLASH = ("code", "constants")


def board_names() -> list[str]:
    """Names of all shipped boards and of those in the folder that UTVM_BOARDS names."""
    return sorted(_board_files())


def load_board(name_or_path: str | Path, *, trust: bool = False) -> Board:
    """The board of that name, or the one that a ``.toml`` file of the user describes.

    ``name_or_path`` is a name that ``board_names`` lists, or the path of a board file. Without
    ``trust``, a file may only name flags, programs and arguments that are known to drive a board
    and do nothing else.

    Memories of the result are in bytes, and clocks in hertz. Raises BoardError for an unknown name,
    and for a file that is missing or wrong; it names the line's key and what to write there.
    """
    given = str(name_or_path)
    if given.endswith(".toml"):
        path = Path(given)
        if not path.is_file():
            raise BoardError(f"no board file {given!r}; give a board's name or a .toml file's path")
        return _read_board(path, trust)
    files = _board_files()
    if given not in files:
        if len(Path(given).parts) > 1 or Path(given).suffix:
            raise BoardError(
                f"{given!r} is not a board file: its name ends in .toml "
                "(utvm docs reference/boards)"
            )
        raise BoardError(f"no board {given!r}{did_you_mean(given, files)} (utvm boards lists all)")
    return _read_board(files[given], trust)


def board_of_device(part: str) -> Board | None:
    """The board whose file is right for a part; the one that names it most exactly."""
    fitting = []
    for name in board_names():
        with suppress(BoardError):  # somebody else's board file
            board = load_board(name, trust=True)
            if board.fits_device(part):
                fitting.append(board)
    return min(
        fitting, key=lambda board: sum(one.count("?") for one in board.devices), default=None
    )


def known_devices() -> list[str]:
    """What the board files say of the parts that they are right for."""
    found: set[str] = set()
    for name in board_names():
        with suppress(BoardError):
            found.update(load_board(name, trust=True).devices)
    return sorted(found)


def check_name(name: str) -> None:
    """Raise BoardError for what cannot be a board's name."""
    if not _NAME.fullmatch(name):
        raise BoardError(f"the name {shown(name)} {_NAME_RULE}")


def with_template(board: Board, template: str | None) -> Board:
    """The board with this template as its first, and with the facts of images made from it."""
    offered = board.project.templates
    if template is None or template == offered[0]:
        return board
    if template not in offered:
        hint = did_you_mean(template, offered)
        raise BoardError(
            f"{board.name} has no template {template!r}{hint} (it has {', '.join(offered)})"
        )
    templates = (template, *(other for other in offered if other != template))
    return _as_application(replace(board, project=replace(board.project, templates=templates)))


def _as_application(board: Board) -> Board:
    """Zephyr's device tree places data, as ESP-IDF does, and the monitor is the only link."""
    if not board.is_application:
        return board
    zephyr = board.project.zephyr if board.template == ZEPHYR else None
    emulator = board.emulator
    if emulator is not None and zephyr is not None:
        own = zephyr.emulator_arguments
        emulator = replace(
            emulator, arguments=emulator.arguments if own is None else own, cycle_model=False
        )
    return replace(
        board,
        project=replace(board.project, vectors=None, data=zephyr.stack if zephyr else None),
        link=replace(board.link, kinds=(MONITOR_LINK,)),
        emulator=emulator,
    )


def _board_files() -> dict[str, Path]:
    folders = [data_dir("boards")]
    extra = os.environ.get("UTVM_BOARDS")
    if extra:
        if not Path(extra).is_dir():
            raise BoardError(f"UTVM_BOARDS names {extra!r}, which is not a folder; unset or fix it")
        folders.append(Path(extra))
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.toml"))}


def _read_board(path: Path, trust: bool) -> Board:
    top, text = read_toml_text(path)
    name = top.text("name")
    if not _NAME.fullmatch(name):
        raise top.error("name", f"{shown(name)} {_NAME_RULE}")
    if name != path.stem:
        raise top.error("name", f"{shown(name)} differs from the file's name {path.stem!r}")
    cpu = _read_cpu(top.table("cpu"))
    templates = top.table("project").strings("templates", TEMPLATES)
    memory = read_regions(top, cpu.facts, ESP_IDF in templates)
    # A board that Zephyr or ESP-IDF knows needs few keys here.
    probe = DEFAULT_PROBES.get(templates[0]) if len(templates) == 1 else None
    link = DEFAULT_LINK
    if top.has("link") or probe is None:
        link = _read_link(top.table("link"))
    project = _read_project(top.table("project"), cpu, memory, link)
    emulator = _read_emulator(top.table("emulator"), cpu) if top.has("emulator") else None
    board = Board(
        name=name,
        vendor=top.text("vendor"),
        description=top.text("description"),
        cpu=cpu,
        memory=memory,
        project=project,
        probe=probe
        if probe is not None and not top.has("probe")
        else read_probe(
            top.table("probe"), emulator is not None, region_of_code(memory, project.code).address
        ),
        link=link,
        emulator=emulator,
        source=text,
        devices=_read_devices(top),
        cautions=(*_strings(top, "cautions"), *filter(None, (cpu.no_guard,))),
    )
    top.finish()
    if not trust:
        check_harmless(board, path)
    return _as_application(board)


def _read_cpu(table: Table) -> Cpu:
    core_name = table.text("core")
    why = "" if core_name in CORES else why_no_core(core_name)
    if why:
        raise table.error("core", why)
    cpu = Cpu(
        core=table.text("core", CORES),
        clock_hz=table.integer("clock_hz", minimum=1),
        fpu=table.text("fpu", FPUS),
        dsp=table.boolean("dsp"),
        mve=_flag(table, "mve"),
        icache_bytes=_optional(table, "icache_bytes") or 0,
        dcache_bytes=_optional(table, "dcache_bytes") or 0,
        icache_ways=_optional(table, "icache_ways", minimum=1),
        dcache_ways=_optional(table, "dcache_ways", minimum=1),
    )
    core = cpu.facts
    if cpu.fpu != "none" and cpu.fpu not in core.fpus:
        raise table.error("fpu", f"{core.name} has no {cpu.fpu}-precision floating-point unit")
    for key, wanted, possible in (("dsp", cpu.dsp, core.dsp), ("mve", cpu.mve, core.mve)):
        if wanted and not possible:
            raise table.error(key, f"{core.name} cannot have it")
    for key, size in (("icache_bytes", cpu.icache_bytes), ("dcache_bytes", cpu.dcache_bytes)):
        if size and not core.cache_line_bytes:
            raise table.error(key, f"{core.name} has no caches; write 0")
    table.finish()
    return cpu


def _read_devices(top: Table) -> tuple[str, ...]:
    devices = _strings(top, "devices")
    for one in devices:
        if not _DEVICE.fullmatch(one):
            raise top.error("devices", f"{shown(one)} must be capitals, digits, '_', '-' and '?'")
    return devices


def _optional(table: Table, key: str, *, minimum: int = 0) -> int | None:
    return table.integer(key, minimum=minimum) if table.has(key) else None


def _flag(table: Table, key: str) -> bool:
    return table.boolean(key) if table.has(key) else False


def _strings(table: Table, key: str) -> tuple[str, ...]:
    return table.strings(key) if table.has(key) else ()


def _read_project(table: Table, cpu: Cpu, memory: tuple[Region, ...], link: Link) -> Project:
    templates = table.strings("templates", TEMPLATES)
    if not templates:
        raise table.error("templates", f"must name one of {', '.join(TEMPLATES)}")
    if not set(templates) <= cpu.target.templates.folders.keys():
        raise table.error("templates", f"{shown(templates)} do not fit the core {cpu.core!r}")
    uart = timer = clock = None
    drivers = cpu.target.templates.drivers
    if drivers is not None and "baremetal" in templates:
        if table.has("uart") or MONITOR_LINK in link.kinds:
            uart_table = table.table("uart")
            uart = read_driver(uart_table, drivers.uarts, drivers.defaults)
            uart_table.finish()
        else:
            uart = Driver("none", ())
        timer = read_timer(table.table("timer"), cpu, drivers)
        clock_table = table.table("clock")
        clock = read_driver(clock_table, drivers.clocks, drivers.defaults)
        clock_table.finish()
    boot_block = "none"
    if table.has("boot_block"):
        boot_block = table.text("boot_block", drivers.boot_blocks if drivers else (boot_block,))
    places = read_places(table, memory)
    stack_bytes = _optional(table, "stack_bytes", minimum=1) or DEFAULT_STACK_BYTES
    room = region_of_workspace(memory, places["data"] or places["workspace"]).size
    if stack_bytes % 8:
        raise table.error("stack_bytes", f"{stack_bytes} is not a multiple of 8")
    if stack_bytes >= room:
        raise table.error("stack_bytes", f"{stack_bytes} does not fit the RAM for data ({room})")
    project = Project(
        templates=templates,
        compiler_flags=_strings(table, "compiler_flags"),
        stack_bytes=stack_bytes,
        vectors=places["vectors"],
        data=places["data"],
        through_alias=_read_through_alias(table, region_of_code(memory, places["code"])),
        zephyr=_read_zephyr(table, memory) if ZEPHYR in templates else None,
        uart=uart,
        timer=timer,
        clock=clock,
        code=places["code"],
        weights=places["weights"],
        workspace=places["workspace"],
        boot_block=boot_block,
        esp_idf=_read_esp_idf(table.table("esp_idf")) if table.has("esp_idf") else None,
    )
    why = cpu.toolchain.contradiction(cpu.facts, cpu.fpu, project.compiler_flags)
    if why:
        raise table.error("compiler_flags", why)
    table.finish()
    return project


def _read_through_alias(table: Table, flash: Region) -> tuple[str, ...]:
    if not table.has("through_alias"):
        return ()
    chosen = table.strings("through_alias", PARTS_OF_FLASH)
    if chosen and flash.alias is None:
        raise table.error("through_alias", f"the region {flash.name} has no alias")
    return chosen


def _read_zephyr(table: Table, memory: tuple[Region, ...]) -> Zephyr:
    if not table.has("zephyr_board"):
        raise table.error("zephyr_board", "missing key; the zephyr template needs it")
    board = _zephyr_name(table, "zephyr_board", table.text("zephyr_board"))
    if not table.has("zephyr"):
        return Zephyr(board)
    own = table.table("zephyr")
    coupled = [region.name for region in memory if region.kind == "tcm"]
    zephyr = Zephyr(
        board=board,
        other_names=tuple(
            _zephyr_name(own, "other_names", name) for name in _strings(own, "other_names")
        ),
        stack=own.text("stack", coupled) if own.has("stack") else None,
        config=_strings(own, "config"),
        overlay=_strings(own, "overlay"),
        workspace_bytes=_optional(own, "workspace_bytes", minimum=1),
        tick_unit=own.text("tick_unit", TICK_UNITS) if own.has("tick_unit") else "cycles",
        multiplier=_optional(own, "multiplier", minimum=1) or 1,
        divisor=_optional(own, "divisor", minimum=1) or 1,
        emulator_arguments=(
            own.strings("emulator_arguments") if own.has("emulator_arguments") else None
        ),
    )
    own.finish()
    return zephyr


def _read_esp_idf(table: Table) -> EspIdf:
    target = table.text("target")
    if not _CHIP.fullmatch(target):
        raise table.error("target", f"{shown(target)} is not a chip's name, such as 'esp32c3'")
    link = table.text("link", ESP_IDF_LINKS) if table.has("link") else ESP_IDF_LINKS[0]
    esp_idf = EspIdf(
        target,
        link != ESP_IDF_LINKS[0],
        _strings(table, "config"),
        _optional(table, "workspace_bytes", minimum=1),
    )
    table.finish()
    return esp_idf


def _zephyr_name(table: Table, key: str, name: str) -> str:
    if not _ZEPHYR_NAME.fullmatch(name):
        raise table.error(key, f"{shown(name)} is not a name of a board, such as 'mps2/an521/cpu0'")
    return name


def _read_link(table: Table) -> Link:
    kinds = table.strings("kinds", LINK_KINDS)
    if not kinds:
        raise table.error("kinds", f"must name one of {', '.join(LINK_KINDS)}")
    link = Link(kinds=kinds, baud=table.integer("baud", minimum=1) if table.has("baud") else 0)
    table.finish()
    return link


def _read_emulator(table: Table, cpu: Cpu) -> Emulator:
    emulator = Emulator(
        program=table.text("program"),
        machine=table.text("machine"),
        arguments=table.strings("arguments"),
        cycle_model=_flag(table, "cycle_model"),
        memory=table.spans("memory") if table.has("memory") else (),
    )
    if emulator.cycle_model and cpu.core not in TIMINGS:
        raise table.error(
            "cycle_model", f"there is none for {cpu.core} (there is for {', '.join(TIMINGS)})"
        )
    table.finish()
    return emulator
