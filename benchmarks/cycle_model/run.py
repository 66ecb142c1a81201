"""Runs the micro-benchmarks on an emulated board, or judges a real board's log.

    python benchmarks/cycle_model/run.py --board BOARD              table: measured, model
    python benchmarks/cycle_model/run.py --board BOARD --image X    only build the image
    python benchmarks/cycle_model/run.py --board BOARD --log FILE   what a board printed

On a real board: flash the image, let a debugger serve semihosting (OpenOCD: ``arm semihosting
enable``), keep what is printed. Exit status 1 if the model differs where no exception is listed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.silicon_kit.sequences import (
    agrees,
    cached_bytes,
    cases_of,
    repetitions,
    way_bytes,
)
from utvm_deploy.targets.arm_m.sequences import CASES, assembly
from utvm_deploy.targets.contract.sequences import Cached, Case
from utvm_deploy.targets.emulator import CycleModel, arguments, counters
from utvm_deploy.targets.emulator.model import counter_block
from utvm_deploy.targets.emulator.plugin import build_plugin, installed_qemu_version

HERE = Path(__file__).resolve().parent

TOOL_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 60.0
COUNTERS_ALIGNMENT = 8


@dataclass(frozen=True)
class Outcome:
    """One case's cycles for each repetition, by whoever counted them."""

    case: Case
    model: float
    board: float  # 0 where there is no cycle counter

    @property
    def agrees(self) -> bool:
        """Whether the model says what was measured."""
        return agrees(self.case, self.model)


def cases_for(board: Board) -> Sequence[Case]:
    if board.cpu.core not in CASES:
        sys.exit(f"there are no cases for {board.cpu.core}; there are for {', '.join(CASES)}")
    return cases_of(board)


def cached_memory(board: Board) -> Cached | None:
    """The upper half of the RAM, where neither data nor stack of this image lie."""
    way = way_bytes(board)
    if not way:
        return None
    ram = board.main_ram
    assert cached_bytes(way) <= ram.size // 4, f"{board.name}: too little RAM behind its cache"
    first = ram.address + ram.size // 2
    return Cached(way, first, first + ram.size // 4)


def table(count: int) -> str:
    """The functions of all cases, for start.c."""
    lines = ['.section .rodata, "a"', ".global sequences", ".balign 4", "sequences:"]
    lines += [f".word case_{number}_short, case_{number}_long" for number in range(count)]
    return "\n".join(lines) + "\n"


def build(board: Board, folder: Path) -> tuple[Path, int]:
    """The image, and the address of the counters in it."""
    cases = cases_for(board)
    (folder / "cases.s").write_text(assembly(cases, cached_memory(board)) + table(len(cases)))
    names = [f"#define COUNTER_{n} {counters.NAMES.index(n.lower())}" for n in ("CORE", "RICH")]
    (folder / "image.h").write_text(
        "\n".join(
            [
                f"#define CASE_COUNT {len(cases)}",
                f"#define COUNTER_WORDS {len(counters.NAMES)}",
                f"#define HAS_ICACHE {int(board.cpu.icache_bytes > 0)}",
                f"#define DCACHE_BYTES {board.cpu.dcache_bytes}",
                *names,
                "",
            ]
        )
    )
    flash = next(r for r in board.memory if r.kind == "flash")
    ram = next((r for r in board.memory if r.kind == "tcm"), None)
    ram = ram or next(r for r in board.memory if r.kind == "ram")
    script = (HERE / "link.ld.in").read_text()
    for key, value in {
        "@flash@": f"ORIGIN = {flash.address:#x}, LENGTH = {flash.size:#x}",
        "@ram@": f"ORIGIN = {ram.address:#x}, LENGTH = {ram.size:#x}",
    }.items():
        script = script.replace(key, value)
    (folder / "link.ld").write_text(script)
    elf = folder / "cycle_model.elf"
    argv = [
        board.cpu.toolchain.compiler,
        *board.cpu.compiler_flags,
        *("-O2", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror", f"-I{folder}"),
        *("-T", str(folder / "link.ld"), "-o", str(elf)),
        *(str(HERE / "start.c"), str(folder / "cases.s"), "-lgcc"),
    ]
    done = process.run(argv, timeout_s=TOOL_TIMEOUT_S)
    if not done.is_ok:
        sys.exit(done.stderr)
    # The linker script puts them at the end of the flash.
    size = -(-counters.BLOCK_BYTES // 256) * 256
    return elf, flash.address + flash.size - size


def run(board: Board, folder: Path) -> str:
    """What the image prints in the emulator."""
    assert board.emulator is not None, (
        f"{board.name} is not an emulated board; use --image and --log"
    )
    elf, address = build(board, folder)
    plugin = build_plugin(installed_qemu_version(board.emulator.program))
    argv = [
        *(board.emulator.program, "-machine", board.emulator.machine, *board.emulator.arguments),
        *("-nographic", "-monitor", "none", "-serial", "none"),
        *("-semihosting-config", "enable=on,target=native", "-kernel", str(elf)),
        *arguments(plugin, CycleModel.for_board(board), counters=counter_block(board, address)),
    ]
    done = process.run(argv, timeout_s=RUN_TIMEOUT_S)
    if not done.is_ok:
        sys.exit(f"{done.argv} ended with {done.returncode}\n{done.output}")
    return done.output


def judge(board: Board, text: str) -> list[Outcome]:
    cases = cases_for(board)
    outcomes = []
    for line in text.splitlines():
        numbers = line.split()
        if len(numbers) != 4 or not all(part.isdigit() for part in numbers):
            continue
        number, dwt, core, rich = map(int, numbers)
        case = cases[number]
        times = repetitions(case)
        model = core if case.figure == "core" else rich
        outcomes.append(Outcome(case, model / times, dwt / times))
    if len(outcomes) != len(cases):
        sys.exit(f"{len(outcomes)} of {len(cases)} results:\n{text}")
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", required=True)
    parser.add_argument("--image", type=Path, help="folder to build the image in, not running it")
    parser.add_argument("--log", type=Path, help="what a board printed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    board = load_board(options.board)
    if options.image:
        options.image.mkdir(parents=True, exist_ok=True)
        print(build(board, options.image)[0])
        return 0
    with tempfile.TemporaryDirectory() as folder:
        text = options.log.read_text() if options.log else run(board, Path(folder))
    outcomes = judge(board, text)
    wrong = [one for one in outcomes if not one.agrees and not one.case.exception]
    if options.json:
        print(json.dumps({"board": board.name, "sequences": [as_row(one) for one in outcomes]}))
    else:
        print_table(outcomes, len(wrong))
    return 1 if wrong else 0


def as_row(one: Outcome) -> dict[str, object]:
    case = one.case
    return {
        "name": case.name,
        "measured": case.cycles,
        "model": one.model,
        "board": one.board or None,
        "figure": case.figure,
        "source": case.source,
        "agrees": one.agrees,
        "exception": case.exception,
    }


def print_table(outcomes: Sequence[Outcome], wrong: int) -> None:
    print(f"{'sequence':36} {'measured':>8} {'model':>7} {'board':>7}  source")
    for one in outcomes:
        mark = "" if one.agrees else "  exception" if one.case.exception else "  DIFFERS"
        own = f"{one.board:7.2f}" if one.board else f"{'-':>7}"
        case = one.case
        print(f"{case.name:36} {case.cycles:8.2f} {one.model:7.2f} {own}  {case.source}{mark}")
    listed = sum(bool(one.case.exception) for one in outcomes)
    print(f"{len(outcomes)} sequences, {listed} listed exceptions, {wrong} unexplained")


if __name__ == "__main__":
    sys.exit(main())
