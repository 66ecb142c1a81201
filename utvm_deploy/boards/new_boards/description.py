"""What a source says of a chip or a board, and the board file that follows from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.facts import DEFAULT_STACK_BYTES, ZEPHYR
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.table import CORES, target_of, why_no_core
from utvm_deploy.targets.unsupported import PAGE

T = TypeVar("T")
#: A memory of fewer bytes does not become a region: such are registers with a battery.
_LEAST_REGION_BYTES = 1024
#: What a file has where nobody states the clock: milliseconds are thousands of cycles then.
UNKNOWN_CLOCK_HZ = 1_000_000
#: The longest description and comment.
_MOST_TEXT = 160
# What a flashing program takes as the name of a chip.
_PART = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value, and who says so."""

    value: T
    source: str


@dataclass(frozen=True)
class Memory:
    """A stretch of memory as a source has it; None: it does not say."""

    name: str
    address: int
    size: int  # bytes
    kind: str  # as in a board file
    executable: bool
    source: str
    boot: bool | None = None
    needs_init: bool | None = None


@dataclass(frozen=True)
class Description:
    """The facts of a chip, or of a board if Zephyr describes it."""

    device: str
    source: str
    core: Fact[str]
    memories: tuple[Memory, ...]
    vendor: Fact[str] | None = None
    clock_hz: Fact[int] | None = None
    fpu: Fact[str] | None = None
    dsp: Fact[bool] | None = None
    mve: Fact[bool] | None = None
    #: How pyOCD calls the chip, and what it must have for that.
    pyocd: Fact[str] | None = None
    zephyr_board: str = ""
    workspace: str = ""  # a region's name, where the source chooses one
    baud: Fact[int] | None = None
    runners: Fact[tuple[str, ...]] | None = None  # of Zephyr's ``west flash``, the first by default
    #: What the user should know or write, a sentence each.
    cautions: tuple[str, ...] = ()


def check_core(name: str, of: str, template: str = "baremetal") -> Core:
    """The core, if images are made for it; BoardError says why not. ``of`` says who names it."""
    fitting = [one for one in CORES if template in target_of(one).templates.folders]
    if template == "baremetal":
        fitting = [one for one in fitting if target_of(one).templates.drivers is not None]
    if name in fitting:
        return CORES[name]
    why = "" if name in CORES else why_no_core(name)
    known = ", ".join(fitting)
    raise BoardError(f"{of}: {why}" if why else f"{of} is not one of {known} (utvm docs {PAGE})")


def merged(memories: Iterable[Memory]) -> tuple[Memory, ...]:
    """By address: of two that overlap the earlier one in ``memories``, neighbours of a kind as one.

    Names become those of a board file. What is too small for a region is left out.
    """
    kept: list[Memory] = []
    for one in memories:
        if not any(
            one.address < k.address + k.size and k.address < one.address + one.size for k in kept
        ):
            kept.append(one)
    found: list[Memory] = []
    for one in sorted(kept, key=lambda memory: memory.address):
        last = found[-1] if found else None
        if (
            last is not None
            and last.address + last.size == one.address
            and last.kind != "tcm"
            and _rights(last) == _rights(one)
        ):
            source = f"{last.source} and {one.source}"
            found[-1] = replace(last, size=last.size + one.size, source=source)
        else:
            found.append(one)
    found = [one for one in found if one.size >= _LEAST_REGION_BYTES]
    names: set[str] = set()
    for index, one in enumerate(found):
        name = re.sub(r"\W", "_", one.name.lower(), flags=re.ASCII) or one.kind
        name = f"_{name}" if name[0].isdigit() else name
        found[index] = replace(one, name=f"{name}_{index}" if name in names else name)
        names.add(found[index].name)
    return tuple(found)


def _rights(memory: Memory) -> tuple[object, ...]:
    return memory.kind, memory.executable, memory.boot, memory.needs_init


def kind_of_ram(name: str) -> str:
    """Tightly coupled memory is known by its name."""
    return "tcm" if "tcm" in name.lower() else "ram"


def check_memories(memories: Sequence[Memory], who: str) -> None:
    """BoardError if there is no flash or no RAM: no image is possible then."""
    for what in ("flash", "RAM"):
        if not any((memory.kind == "flash") == (what == "flash") for memory in memories):
            raise BoardError(
                f"{who} states no {what}; say where it is by --{what.lower()} SIZE@ADDRESS"
            )


def board_text(name: str, it: Description) -> str:
    """The board file: what the source states, the link of a debugger, clocks as after reset."""
    core = CORES[it.core.value]
    cautions = [*it.cautions, *_unknown(it, core)]
    lines = [
        f"# Made of {_comment(it.source)}. Check each line against the datasheet.",
        f"name = {_quoted(name)}",
        _line("vendor", it.vendor or Fact("unknown", "")),
        f"description = {_quoted(f'{it.device}: {it.core.value}')}",
    ]
    if cautions:
        lines += ["cautions = [", *(f"  {_quoted(one)}," for one in cautions), "]"]
    lines += ["", "[cpu]", *_cpu(it, core)]
    for memory in it.memories:
        lines += ["", f"# {_comment(memory.source)}", "[[memory]]", *_memory(memory)]
    lines += ["", "[project]", *(_zephyr(it) if it.zephyr_board else _bare(it, core)), ""]
    return "\n".join(lines)


def _unknown(it: Description, core: Core) -> Iterator[str]:
    """What doctor asks for."""
    if it.clock_hz is None:
        where = "" if it.zephyr_board else ", there and in [project.timer]"
        yield (
            f"nobody states cpu.clock_hz, so it counts as {UNKNOWN_CLOCK_HZ / 1e6:g} MHz: write "
            f"the core's clock{where}, and delete this line"
        )
    for key, fact, possible in (
        ("fpu", it.fpu, bool(core.fpus)),
        ("dsp", it.dsp, bool(core.dsp and core.as_without_dsp)),
        ("mve", it.mve, core.mve),
    ):
        if fact is None and possible:
            yield f"nobody states cpu.{key}, so it counts as absent: write it, and delete this line"
    begin = target_of(core.name).external_begin
    if begin is not None and any(one.boot and one.address >= begin for one in it.memories):
        yield (
            "its flash is outside the chip, and nobody states what the boot ROM reads there: see "
            "project.boot_block (utvm docs reference/boards), and delete this line"
        )
    if core.cache_line_bytes and not it.zephyr_board:
        yield (
            "nobody states the sizes of the caches, so they stay off: write cpu.icache_bytes and "
            "cpu.dcache_bytes, and delete this line"
        )


def _cpu(it: Description, core: Core) -> Iterator[str]:
    yield _line("core", it.core)
    yield _line("clock_hz", it.clock_hz or Fact(UNKNOWN_CLOCK_HZ, "unknown"))
    may = [_quoted(one) for one in core.fpus]
    yield _line(
        "fpu", it.fpu or Fact("none", f"{' or '.join(may)} if the chip has it" if may else "")
    )
    always = core.dsp and not core.as_without_dsp
    if it.dsp is None or always:
        hint = "true if the chip has it" if core.dsp and not always else ""
        yield _line("dsp", Fact(always, hint))
    else:
        yield _line("dsp", it.dsp)
    if it.mve is not None and core.mve:
        yield _line("mve", it.mve)


def _memory(memory: Memory) -> Iterator[str]:
    yield f"name = {_quoted(memory.name)}"
    yield f"address = 0x{memory.address:08x}"
    yield f"size = 0x{memory.size:08x}"
    yield f"kind = {_quoted(memory.kind)}"
    yield f"executable = {str(memory.executable).lower()}"
    for key, value in (("boot", memory.boot), ("needs_init", memory.needs_init)):
        if value is not None:
            yield f"{key} = {str(value).lower()}"


def _bare(it: Description, core: Core) -> Iterator[str]:
    text = (data_dir("templates") / "board_sources" / "baremetal.toml").read_text(encoding="utf-8")
    pyocd = it.pyocd or Fact(it.device.lower(), "")
    ram = max(one.size for one in it.memories if one.kind != "flash")
    words = {
        "STACK_BYTES": min(DEFAULT_STACK_BYTES, 1 << (ram // 4).bit_length() - 1),
        "TIMER": core.timers[0],
        "CLOCK_HZ": it.clock_hz.value if it.clock_hz else UNKNOWN_CLOCK_HZ,
        "KINDS": '"pyocd", "jlink"' if it.pyocd else '"jlink", "pyocd"',
        "DEVICE": it.device,
        "TARGET": pyocd.value,
        "TARGET_SOURCE": f" # {_comment(pyocd.source)}" if pyocd.source else "",
    }
    yield re.sub(r"@([A-Z_]+)@", lambda match: str(words[match[1]]), text).rstrip()


def _zephyr(it: Description) -> Iterator[str]:
    yield f"templates = [{_quoted(ZEPHYR)}]"
    yield f"zephyr_board = {_quoted(it.zephyr_board)}"
    if it.workspace:
        yield f"workspace = {_quoted(it.workspace)} # zephyr,sram"
    if it.runners is not None:
        kinds = ", ".join(_quoted(one) for one in it.runners.value)
        yield from ("", "[probe]", f"kinds = [{kinds}] # {_comment(it.runners.source)}")
    yield from ("", "[link]", 'kinds = ["monitor"]')
    yield _line("baud", it.baud or Fact(115_200, "the device tree does not say"))


def check_part(device: str, option: str) -> None:
    """BoardError of a chip's name that no flashing program would take."""
    if not _PART.fullmatch(device):
        raise BoardError(f"{option} {device[:40]!r} must be letters, digits, '_' and '-'")


def _line(key: str, fact: Fact[T]) -> str:
    value = fact.value
    text = str(value).lower() if isinstance(value, bool | int) else _quoted(str(value))
    return f"{key} = {text} # {_comment(fact.source)}" if fact.source else f"{key} = {text}"


def _comment(text: str) -> str:
    """On one line, without what TOML forbids in comments."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    return " ".join(plain.split())[:_MOST_TEXT]


def _quoted(text: str) -> str:
    return json.dumps(
        "".join(one if one.isprintable() else " " for one in text), ensure_ascii=False
    )
