"""The facts of a board: frozen data, and a few properties that follow from it.

boards/board.py reads it from a file. Everything that code may ask of a board is a field here, so
that no code needs to know a board by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.results import one_line
from utvm_deploy.boards.probe_programs import ProbeCommands
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target, Toolchain
from utvm_deploy.targets.table import CORES, target_of

# Probe kinds that need no command: the image is started on this computer.
CHILD_PROBE = "child"
EMULATOR_PROBE = "qemu"
#: What an emulated board that has a cycle model may count.
CYCLES, INSTRUCTIONS = TIMINGS = ("cycles", "instructions")

#: The stack of tasks, if a file does not say.
DEFAULT_STACK_BYTES = 4096
#: What the runtime takes of flash, about.
RUNTIME_FLASH_BYTES = 10 * 1024

# The links: to the runtime's command loop over a byte stream; through a debugger's server.
MONITOR_LINK = "monitor"
DEBUG_LINK = "debug"
LINK_KINDS = (MONITOR_LINK, DEBUG_LINK)

#: The templates whose images another build system makes of a project.
ZEPHYR, ESP_IDF = APPLICATIONS = ("zephyr", "esp-idf")


@dataclass(frozen=True)
class Cpu:
    """The processor as this board has it."""

    core: str  # a key of targets.table.CORES
    clock_hz: int
    fpu: str  # "none", "single" or "double" precision
    dsp: bool  # SMLAD and similar
    mve: bool  # Helium
    icache_bytes: int  # 0: none
    dcache_bytes: int
    # None: as the core usually has them.
    icache_ways: int | None = None
    dcache_ways: int | None = None

    @property
    def facts(self) -> Core:
        """The facts of the core itself."""
        return CORES[self.core]

    @property
    def target(self) -> Target:
        """The target of the core."""
        return target_of(self.core)

    @property
    def toolchain(self) -> Toolchain:
        """The compiler of the target, and its other programs."""
        return self.target.toolchain

    @property
    def no_guard(self) -> str:
        """What to know of a core whose target has no guard for it; else empty."""
        if self.target.templates.guard_of(self.facts) is not None:
            return ""
        return (
            f"no guard is written for the core {self.core}, so a task that faults or never ends "
            "takes the runtime with it; reset the board then"
        )

    @property
    def kernel_core(self) -> str:
        """The core whose kernels this silicon runs: another core if it lacks an extension."""
        if not self.dsp and self.facts.as_without_dsp:
            return self.facts.as_without_dsp
        if not self.mve and self.facts.as_without_mve:
            return self.facts.as_without_mve
        return self.core

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """GCC flags that select this processor."""
        return self.toolchain.flags(self.facts, self.fpu, self.mve, self.dsp)


@dataclass(frozen=True)
class Region:
    """A stretch of memory that the board gives to us."""

    name: str
    address: int
    size: int  # bytes
    kind: str  # "flash", "ram" or "tcm" (tightly coupled RAM, never cached)
    executable: bool
    # What a line costs that the cache lacks, data and code; None: as in the reference configuration
    # of the cycle model.
    miss_cycles: int | None = None
    fetch_miss_cycles: int | None = None
    # Where the core sees the same memory through another bus.
    alias: int | None = None
    # Whether the core can start from it; RAM is never so.
    boot: bool = False
    # Whether it answers only after somebody has set up its controller.
    needs_init: bool = False
    # Whether the file says neither of these, so that both follow from the address.
    is_assumed: bool = False

    @property
    def end(self) -> int:
        """The first address after the region."""
        return self.address + self.size


@dataclass(frozen=True)
class Step:
    """A register that start-up writes, or whose bits it waits for."""

    register: int
    mask: int
    value: int
    waits: bool


@dataclass(frozen=True)
class Driver:
    """A driver of the bare-metal template and the numbers it is built with."""

    name: str
    settings: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...] = ()

    def setting(self, key: str) -> int:
        """One number by its key."""
        return dict(self.settings)[key]


@dataclass(frozen=True)
class Timer:
    """The timer behind the runtime's ticks: ticks = count * multiplier / divisor."""

    driver: Driver
    unit: str  # what one tick is: cycles, instructions or nanoseconds
    multiplier: int
    divisor: int

    @property
    def ticks_hz(self) -> int:
        """Ticks per second of the board's own time."""
        return self.driver.setting("clock_hz") * self.multiplier // self.divisor


@dataclass(frozen=True)
class Zephyr:
    """How Zephyr applications for the board are made."""

    board: str  # its name there, such as "mps2/an521/cpu0"
    other_names: tuple[str, ...] = ()  # what other releases call it
    # The region that the device tree chooses as zephyr,dtcm, if the stack of tasks must be there.
    stack: str | None = None
    config: tuple[str, ...] = ()  # lines of Kconfig that this board needs
    overlay: tuple[str, ...] = ()  # lines of device tree, such as the choice of utvm,workspace
    workspace_bytes: int | None = None  # None: what the largest RAM leaves over
    # The runtime's ticks = counts of the timing API * multiplier / divisor.
    tick_unit: str = "cycles"
    multiplier: int = 1
    divisor: int = 1
    # The emulator's arguments where they differ from those of bare-metal images.
    emulator_arguments: tuple[str, ...] | None = None


@dataclass(frozen=True)
class EspIdf:
    """How projects of ESP-IDF for the board are made."""

    target: str  # the chip's name there, such as "esp32c3"
    has_usb: bool = False  # whether the link is the chip's USB Serial/JTAG controller; else UART 0
    config: tuple[str, ...] = ()  # lines of sdkconfig that this board needs
    workspace_bytes: int | None = None  # None: what ESP-IDF leaves over, by estimate


@dataclass(frozen=True)
class Project:
    """How images for the board are built."""

    templates: tuple[str, ...]  # the first one is the default
    compiler_flags: tuple[str, ...]
    stack_bytes: int
    # The region the vector table is read from at reset, if that is not the code's.
    vectors: str | None
    # The region that data and stack go to, if that is not the workspace's.
    data: str | None
    # Which of "code" and "constants" are read through the alias of the main flash.
    through_alias: tuple[str, ...]
    zephyr: Zephyr | None  # None where that template is not offered
    # What the bare-metal template needs; None where it is not offered.
    uart: Driver | None
    timer: Timer | None
    clock: Driver | None
    # The regions of code, of a model's weights and of the workspace, where the file names them.
    code: str | None = None
    weights: str | None = None
    workspace: str | None = None
    # What the chip's boot ROM reads in front of an image or within it: "none", or boot_*.c.
    boot_block: str = "none"
    esp_idf: EspIdf | None = None  # None where a file does not describe it


def region_of_code(memory: Sequence[Region], named: str | None = None) -> Region:
    """The named region; else the largest flash that the core can start from, or of all."""
    return _largest([r for r in memory if r.kind == "flash"], named, lambda r: r.boot)


def region_of_workspace(memory: Sequence[Region], named: str | None = None) -> Region:
    """The named region; else the largest RAM that needs no initialization, or of all."""
    return _largest([r for r in memory if r.kind != "flash"], named, lambda r: not r.needs_init)


def _largest(
    regions: Sequence[Region], named: str | None, is_good: Callable[[Region], bool]
) -> Region:
    if named is not None:
        return next(region for region in regions if region.name == named)
    return max(list(filter(is_good, regions)) or regions, key=lambda region: region.size)


@dataclass(frozen=True)
class UsbId:
    """What the board, or the probe on it, reports on USB; boards may share it."""

    vendor: int
    product: int
    # Part of the product's name, and how its serial number begins; empty: any.
    product_name: str = ""
    serial_prefix: str = ""


@dataclass(frozen=True)
class Probe:
    """The ways of putting an image on the board; the first one is the default."""

    kinds: tuple[str, ...]
    commands: tuple[ProbeCommands, ...]
    usb: tuple[UsbId, ...] = ()


@dataclass(frozen=True)
class Link:
    """How bytes move between host and device.

    Tasks run over the first kind. If that is the monitor, an additional debug link moves memory.
    """

    kinds: tuple[str, ...]
    baud: int  # 0: the link is not a serial line


@dataclass(frozen=True)
class Emulator:
    """The emulated machine, for boards that are one."""

    program: str
    machine: str
    arguments: tuple[str, ...]
    # Whether a model of the core's pipeline and caches counts cycles while it runs.
    cycle_model: bool = False
    # (address, size) of what the machine has, if that is more than the board's regions.
    memory: tuple[tuple[int, int], ...] = ()
    # Of a real board's twin: what is the board's, and what is the machine's.
    twin_note: str = ""


@dataclass(frozen=True, repr=False)
class Board:
    """One board file, checked."""

    name: str
    vendor: str
    description: str
    cpu: Cpu
    memory: tuple[Region, ...]
    project: Project
    probe: Probe
    link: Link
    emulator: Emulator | None
    # The board file's text, so that a project can carry its board along.
    source: str
    # The parts that the file is right for, as makers order them, "?" for any letter or digit.
    devices: tuple[str, ...] = ()
    # What its user must know of the chip before the first run, a sentence each.
    cautions: tuple[str, ...] = ()

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """Name, core and memory."""
        return (
            f"{self.name} ({self.cpu.core}): RAM {self.ram_bytes:,} bytes, flash "
            f"{self.flash_bytes:,} bytes"
        )

    def fits_device(self, part: str) -> bool:
        """Whether the file is right for a part: ``STM32H743ZIT6`` is an ``STM32H743?I``.

        ``ESP32C3FH4`` is an ``ESP32-C3FH4``, too.
        """
        name = part.strip().upper()
        patterns = (one.replace("-", "-{0,1}").replace("?", "[A-Z0-9]") for one in self.devices)
        return any(
            # What follows a part's name is its package, such as "T6" or "_xxAA".
            re.fullmatch(rf"{pattern}(?:(?<![0-9])|(?![0-9]))[A-Z0-9_-]*", name)
            for pattern in patterns
        )

    @property
    def runs_here(self) -> bool:
        """Whether it needs only this computer: the host itself, or an emulated machine."""
        return self.probe.kinds[0] in (CHILD_PROBE, EMULATOR_PROBE)

    @property
    def has_cycle_model(self) -> bool:
        """Whether ticks can be modelled cycles: it is emulated, and its file asks for the model."""
        return self.emulator is not None and self.emulator.cycle_model

    @property
    def has_debug_link(self) -> bool:
        """Whether there is a debugger's server: its emulator's, or one of a probe."""
        has_server = any(commands.server for commands in self.probe.commands)
        return DEBUG_LINK in self.link.kinds or has_server

    @property
    def template(self) -> str:
        """The template that images are built from, unless another one is asked for."""
        return self.project.templates[0]

    @property
    def why_no_image(self) -> str:
        """A sentence on who makes its images, and what to do; empty where they are ours."""
        if self.template != ESP_IDF or self.project.esp_idf is not None:
            return ""
        return (
            f"ESP-IDF builds the firmware of {self.name}, and its file does not say for which "
            f'chip; write [project.esp_idf] with target = "esp32c3" or another chip, or make a '
            f"component: utvm bundle MODEL --board {self.name} --format {ESP_IDF} -o DIR"
        )

    @property
    def is_application(self) -> bool:
        """Whether images are applications of another build system, which places code and data."""
        return self.template in APPLICATIONS

    @property
    def code_offset(self) -> int:
        """What is added to an address of the workspace to execute what is there."""
        ram = self.main_ram
        return ram.alias - ram.address if self.template == ESP_IDF and ram.alias else 0

    @property
    def is_host(self) -> bool:
        """Whether images run as a process on this computer."""
        return self.cpu.target.templates.are_processes

    @property
    def flash_bytes(self) -> int:
        """Bytes of all flash regions."""
        return sum(region.size for region in self.memory if region.kind == "flash")

    @property
    def ram_bytes(self) -> int:
        """Bytes of all RAM, tightly coupled RAM included."""
        return sum(region.size for region in self.memory if region.kind != "flash")

    @property
    def main_flash(self) -> Region:
        """The region of code, and of weights that are nowhere else."""
        return region_of_code(self.memory, self.project.code)

    def weights_flash(self, weights_bytes: int) -> Region:
        """The region of a model's weights: the code's, or a larger one if they do not fit that."""
        if self.project.weights is not None:
            return self.region(self.project.weights)
        code = self.main_flash
        if weights_bytes <= code.size - RUNTIME_FLASH_BYTES or self.is_application:
            return code
        others = [r for r in self.memory if r.kind == "flash" and r.size >= weights_bytes]
        return max(others, key=lambda region: region.size, default=code)

    @property
    def main_ram(self) -> Region:
        """The region of the workspace, which has arenas and tensors."""
        return region_of_workspace(self.memory, self.project.workspace)

    @property
    def data_ram(self) -> Region:
        """The region of data and stack."""
        return self.region(self.project.data) if self.project.data else self.main_ram

    @property
    def vector_flash(self) -> Region:
        """The region of the vector table."""
        return self.region(self.project.vectors) if self.project.vectors else self.main_flash

    def region(self, name: str) -> Region:
        """A region by its name."""
        for region in self.memory:
            if region.name == name:
                return region
        raise BoardError(f"board {self.name!r} has no memory region {name!r}")
