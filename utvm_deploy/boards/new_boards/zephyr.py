"""The boards of the user's Zephyr tree: device tree, Kconfig, and what flashes them.

The device tree is preprocessed by a C compiler and read by Zephyr's own dtlib, in a child process.
Nothing is configured or built: of Kconfig, this follows ``select`` from the board to its SoC.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, BuildError, MissingTool
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.boards.facts import ZEPHYR
from utvm_deploy.boards.new_boards.description import (
    Description,
    Fact,
    Memory,
    check_core,
    kind_of_ram,
    merged,
)
from utvm_deploy.boards.probe_programs import PROBE_PROGRAMS
from utvm_deploy.targets.table import CORES, target_of

_TIMEOUT_S = 60.0
_DTLIB = Path("scripts") / "dts" / "python-devicetree" / "src"
_SCRIPT = data_dir("templates") / "board_sources" / "device_tree.py"
_NAME = re.compile(r"\w[\w-]*(?:[/@]\w[\w.]*)*", re.ASCII)
#: What a node of the device tree is called that is memory for code and data.
_FLASH, _RAM = "soc-nv-flash", "mmio-sram"


def zephyr_tree(purpose: str) -> tuple[Path, str]:
    """The folder that ZEPHYR_BASE names, and its version; an error if there is none."""
    named = os.environ.get("ZEPHYR_BASE")
    if not named:
        raise MissingTool(
            "Zephyr", purpose, "set ZEPHYR_BASE to its folder (utvm docs zephyr says how to get it)"
        )
    base = Path(named)
    try:
        text = (base / "VERSION").read_text(encoding="utf-8")
    except OSError as exc:
        raise BuildError(
            f"ZEPHYR_BASE names {named!r}, where no Zephyr tree is (no file VERSION); correct it"
        ) from exc
    parts = [
        match[1]
        for key in ("VERSION_MAJOR", "VERSION_MINOR", "PATCHLEVEL")
        if (match := re.search(rf"^{key} *= *(\d+)", text, re.MULTILINE))
    ]
    return base.resolve(), ".".join(parts)


def read_zephyr(board: str, core: str | None) -> Description:
    """What the tree of ZEPHYR_BASE says of a board, by its name there, such as ``nucleo_f746zg``.

    ``core`` is taken instead of what the device tree says. Memories of the result are in bytes.
    Raises BoardError for a board that is not there, or that images are not made for, and
    MissingTool without a tree.
    """
    base, version = zephyr_tree("read its boards")
    if not _NAME.fullmatch(board):
        raise BoardError(
            f"--from-zephyr {board[:40]!r} is not a name of a board, such as mps2/an521/cpu0"
        )
    dts = _device_tree_of(base, board)
    said = _read_tree(base, dts, board)
    nodes, chosen = said["nodes"], said["chosen"]
    source = f"Zephyr {version}, {dts.relative_to(base)}"
    symbols = _selected(base, dts, board)
    name, is_float, where = _core(nodes, symbols, source, core)
    core = core or name
    facts = check_core(core, f"the core {core} of {source}", ZEPHYR)
    fpu = "none"
    if is_float or "CPU_HAS_FPU" in symbols:
        double = "CPU_HAS_FPU_DOUBLE_PRECISION" in symbols and "double" in facts.fpus
        fpu = "double" if double else next(iter(facts.fpus), "none")
    memories = tuple(_memories(nodes, chosen))
    console = nodes.get(chosen.get("zephyr,console", ""), {})
    return Description(
        device=board,
        source=source,
        core=Fact(core, where if core == name else "--core"),
        memories=merged(memories),
        vendor=_vendor(dts, board),
        clock_hz=_clock(nodes, dts),
        fpu=Fact(fpu, "CPU_HAS_FPU of Kconfig" if fpu != "none" else "no CPU_HAS_FPU in Kconfig"),
        dsp=Fact(any(one.endswith("_M_DSP") for one in symbols), "Kconfig of its SoC"),
        mve=Fact(any(one.endswith("_MVEI") for one in symbols), "Kconfig of its SoC"),
        zephyr_board=board,
        workspace=_workspace(merged(memories), nodes, chosen),
        baud=Fact(console["speed"], f"current-speed of {chosen['zephyr,console']}")
        if console.get("speed")
        else None,
        runners=_runners(dts),
    )


def _device_tree_of(base: Path, board: str) -> Path:
    """The board's .dts file; its name has _ for each / of the board's."""
    file = re.sub(r"[/@]", "_", board)
    every = {path.stem: path for path in (base / "boards").glob("**/*.dts")}
    if file in every:
        return every[file]
    # A board with several SoCs or clusters has a file for each of them.
    several = [
        name for name in every if name.startswith(f"{file}_") and _has_board(every[name], file)
    ]
    names = sorted(filter(None, (_identifier(every[name]) for name in several)))
    if names:
        raise BoardError(f"Zephyr's board {board} is {' or '.join(names)}; give one of these")
    hint = did_you_mean(board, {_identifier(path) for path in every.values()})
    raise BoardError(f"{base} has no board {board}{hint} (west boards lists them)")


def _has_board(dts: Path, name: str) -> bool:
    text = _text(dts.with_name("board.yml"))
    return re.search(rf"^\s*-?\s*name:\s*{re.escape(name)}\s*$", text, re.MULTILINE) is not None


def _identifier(dts: Path) -> str:
    found = re.search(r"^identifier:\s*(\S+)", _text(dts.with_suffix(".yaml")), re.MULTILINE)
    return found[1] if found else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _roots(base: Path) -> list[Path]:
    """The tree, and the modules of its workspace: vendors keep pins of their chips there."""
    named = os.environ.get("ZEPHYR_MODULES", "")
    modules = [Path(one) for one in named.split(";") if one]
    if not modules:
        modules = [
            *base.parent.glob("modules/*/*"),
            *base.parent.glob("modules/*"),
            *base.parent.glob("*"),
        ]
    return [base, *(one for one in modules if (one / "dts").is_dir() and one != base)]


def _read_tree(base: Path, dts: Path, board: str) -> Any:
    compiler = target_of("host").toolchain.compiler
    folders = [dts.parent, base / "include", base / "include" / "zephyr"]
    for root in _roots(base):
        below = [root / "dts", *sorted(one for one in (root / "dts").iterdir() if one.is_dir())]
        folders += [root / "include", *below]
    with TemporaryFolder("zephyr-board") as folder:
        plain = folder / "board.dts"
        options = ["-E", "-P", "-nostdinc", "-undef", "-D__DTS__", "-x", "assembler-with-cpp"]
        includes = [word for one in folders for word in ("-I", str(one))]
        argv = [process.find_tool(compiler), *options, *includes, str(dts), "-o", str(plain)]
        done = process.run(argv, timeout_s=_TIMEOUT_S)
        if not done.is_ok:
            lacks = re.search(r"fatal error: (\S+): No such file", done.output)
            why = f"{lacks[1]} is not there; west update brings it" if lacks else _last(done.output)
            raise BoardError(f"the device tree of {board} is not whole: {why}")
        script = [sys.executable, str(_SCRIPT), str(base / _DTLIB), str(plain), _FLASH, _RAM]
        done = process.run(script, timeout_s=_TIMEOUT_S)
    try:
        return json.loads(done.stdout)
    except ValueError as exc:
        raise BoardError(
            f"Zephyr's dtlib does not read the device tree of {board}: {_last(done.output)}"
        ) from exc


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2][:200]


def _core(
    nodes: Mapping[str, Any], symbols: set[str], source: str, given: str | None
) -> tuple[str, bool, str]:
    """The core, whether its name has that of an FPU, and who says so.

    Of several processors it is the one that Kconfig selects, else the first.
    """
    found = []
    for path, node in nodes.items():
        if re.fullmatch(r"/cpus/cpu@\w+", path) and node["compatible"]:
            kind = node["compatible"][0]
            name = kind.rpartition(",")[2].replace("+", "plus")
            plain = name.removesuffix("f")
            is_float = name not in CORES and plain in CORES
            core = plain if is_float else name
            is_chosen = "CPU_" + core.replace("-", "_").upper() in symbols
            found.append((not is_chosen, core, is_float, f"compatible of {path}: {kind}"))
    if not found:
        raise BoardError(f"{source} has no processor below /cpus; give another board")
    found.sort(key=lambda one: one[0])
    if found[0][0] and len({core for _, core, _, _ in found}) > 1 and not given:
        names = " and ".join(core for _, core, _, _ in found)
        raise BoardError(f"{source} has the processors {names}; choose one by --core")
    return found[0][1:]


def _memories(nodes: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterable[Memory]:
    """What the board chose comes first: it wins where nodes overlap."""
    flash, sram = (chosen.get(f"zephyr,{what}", "") for what in ("flash", "sram"))
    first = {flash: "flash", sram: "ram"}
    first |= {chosen.get(f"zephyr,{name}", ""): name for name in ("dtcm", "itcm")}
    for path in dict.fromkeys((*first, *nodes)):
        node = nodes.get(path, {})
        kinds, (begin, size) = node.get("compatible", ()), node.get("place", (0, 0))
        is_flash = path == flash or (_FLASH in kinds and not flash)
        is_ram = _RAM in kinds and "placeholder" not in path  # of memory that may be fitted
        if not size or not (is_flash or path in first or is_ram):
            continue
        name = first.get(path) or next(iter(node["labels"]), "ram")
        kind = "flash" if is_flash else kind_of_ram(name)
        runs = "dtcm" not in name
        yield Memory(name, begin, size, kind, runs, f"{path} of the device tree", is_flash or None)


def _workspace(
    memories: Iterable[Memory], nodes: Mapping[str, Any], chosen: Mapping[str, str]
) -> str:
    """The region where Zephyr has its data."""
    begin, _ = nodes.get(chosen.get("zephyr,sram", ""), {}).get("place", (None, 0))
    fitting = (
        one.name
        for one in memories
        if begin is not None
        and one.address <= begin < one.address + one.size
        and one.kind != "flash"
    )
    return next(fitting, "")


def _clock(nodes: Mapping[str, Any], dts: Path) -> Fact[int] | None:
    """Of the processor, else of the only node that makes clocks from others."""
    for path, node in nodes.items():
        if re.fullmatch(r"/cpus/cpu@\w+", path) and node.get("clock"):
            return Fact(node["clock"], f"clock-frequency of {path}")
    givers = [path for path, node in nodes.items() if node.get("gives_clocks") and node["clock"]]
    if len(givers) != 1:
        return None
    return Fact(nodes[givers[0]]["clock"], f"clock-frequency of {givers[0]}")


def _vendor(dts: Path, board: str) -> Fact[str] | None:
    found = re.search(r"^\s*vendor:\s*(\S+)", _text(dts.with_name("board.yml")), re.MULTILINE)
    return Fact(found[1], "board.yml") if found else None


def _runners(dts: Path) -> Fact[tuple[str, ...]] | None:
    """Those of board.cmake that utvm knows, in their order."""
    text = _text(dts.with_name("board.cmake"))
    names = [f"west_{one}" for one in re.findall(r"common/(\w+)\.board\.cmake", text)]
    known = [one for one in dict.fromkeys(names) if one in PROBE_PROGRAMS]
    return Fact(("west", *known), "board.cmake") if known else None


def _selected(base: Path, dts: Path, board: str) -> set[str]:
    """The symbols of Kconfig that the board selects, and what these select."""
    selects: dict[str, list[tuple[str, str]]] = {}
    files = [*dts.parent.glob("Kconfig*"), *(base / "soc").glob("**/Kconfig*")]
    for path in files:
        symbol = ""
        for line in _text(path).splitlines():
            words = line.split()
            if words[:1] in (["config"], ["menuconfig"]) and len(words) > 1:
                symbol = words[1]
            elif words[:1] == ["select"] and len(words) > 1:
                condition = " ".join(words[3:]) if words[2:3] == ["if"] else ""
                selects.setdefault(symbol, []).append((words[1], condition))
    upper = re.sub(r"\W", "_", board).upper()
    found = {f"BOARD_{upper}", f"BOARD_{re.split('[/@]', board)[0].upper()}"}
    found |= set(
        re.findall(r"^CONFIG_(\w+)=y", _text(dts.with_name(f"{dts.stem}_defconfig")), re.M)
    )
    left = list(found)
    while left:
        for symbol, condition in selects.get(left.pop(), ()):
            is_so = condition in found or (condition[:1] == "!" and condition[1:] not in found)
            if symbol not in found and (not condition or is_so):
                found.add(symbol)
                left.append(symbol)
    return found
