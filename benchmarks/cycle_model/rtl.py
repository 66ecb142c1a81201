"""Compares the cycle model of a RISC-V core with the maker's RTL, which Verilator simulates.

    python benchmarks/cycle_model/rtl.py --core cv32e40p --rtl DIR   the short sequences
    python benchmarks/cycle_model/rtl.py ... --model FILE.tflite     one inference, in both

DIR is a checkout of openhwgroup/cv32e40p or of lowRISC/ibex. Needs Verilator 5, a C++ compiler with
coroutines, and what the emulated board needs. Exit status 1 if they differ: sequences,
or an inference by more than one cycle of 10,000.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.silicon_kit.sequences import agrees, repetitions
from utvm_deploy.targets.emulator import CycleModel, arguments, counters
from utvm_deploy.targets.emulator.plugin import plugin_for
from utvm_deploy.targets.riscv.sequences import CASES, assembly

HERE = Path(__file__).resolve().parent
BOARDS = {
    "cv32e40p": "qemu_cv32e40p",
    "ibex": "qemu_ibex",
    "ibex-single-cycle": "qemu_ibex_single_cycle",
}
#: Which multiplier Ibex has.
MULTIPLIERS = {"ibex": "RV32MFast", "ibex-single-cycle": "RV32MSingleCycle"}
RAM, RAM_BYTES = 0x8000_0000, 1 << 20
TIMEOUT_S = 900
#: Of an inference: divisions take longer or shorter than the model assumes.
TOLERANCE = 1e-4

# QEMU starts at the first address, the cores at 0x80. The bench's memory repeats, so the code can
# jump to where it is linked.
START = """
.option norvc
.section .start, "ax"
.globl _start
_start: j 1f
.org 0x80
lui t0, %hi(1f)
jr %lo(1f)(t0)
1: la sp, stack
call main
lui t0, 0x10000
sw zero, 4(t0)
li t1, 0x5555
lui t0, 0x100
sw t1, 0(t0)
2: j 2b
"""
SIGNAL = """
.option arch, +zifencei
.globl signal
signal: fence.i
slti x0, x0, 13
fence.i
lui t0, 0x10000
sw zero, 0(t0)
ret
"""
SCRIPT = f"""ENTRY(_start)
SECTIONS {{
    . = {RAM:#x};
    .all : {{ *(.start) *(.text .text.*) *(.rodata .rodata.* .srodata*) . = ALIGN(16);
             *(.data .data.* .sdata*) *(.bss .bss.* .sbss* COMMON) }}
    stack = {RAM + RAM_BYTES - 4096:#x};
}}
"""
INFERENCE = """
#include <string.h>
#include "net.h"
#include "net_vectors.h"
static uint8_t arena[NET_ARENA_BYTES] __attribute__((aligned(16)));
void signal(void);
int main(void) {
    memcpy(arena + NET_INPUT_0_OFFSET, sample_0_input_0, sizeof sample_0_input_0);
    signal();
    net_run(arena);
    signal();
    if (memcmp(arena + NET_OUTPUT_0_OFFSET, sample_0_output_0, sizeof sample_0_output_0)) {
        signal();
    }
    return 0;
}
"""


def run(argv: list[str], folder: Path) -> str:
    """What a program prints; SystemExit with its words if it fails."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        sys.exit(f"{argv[0]} failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def sources_of(core: str, rtl: Path) -> list[str]:
    """Verilator's options and the files of a core."""
    if core == "cv32e40p":
        lines = (rtl / "cv32e40p_manifest.flist").read_text().splitlines()
        names = [line.replace("${DESIGN_RTL_DIR}", str(rtl / "rtl")) for line in lines]
        files = [name for name in names if name.startswith(str(rtl)) and "/bhv/include" not in name]
        files = [name for name in files if "tb_wrapper" not in name]
        return ["-DCV32E40P", f"-I{rtl}/rtl/include", *files]
    prim, generic = (rtl / "vendor/lowrisc_ip/ip" / n / "rtl" for n in ("prim", "prim_generic"))
    packages = [f"{prim}/prim_{n}_pkg.sv" for n in ("util", "secded", "mubi", "count", "cipher")]
    packages += [f"{generic}/prim_ram_1p_pkg.sv", f"{rtl}/rtl/ibex_pkg.sv"]
    packages.append(f"{rtl}/rtl/ibex_cheriot_pkg.sv")
    folders = [f"{rtl}/rtl", str(prim), str(generic), f"{rtl}/vendor/lowrisc_ip/dv/sv/dv_utils"]
    options = [option for folder in folders for option in (f"-I{folder}", "-y", folder)]
    return ["-DSYNTHESIS", f"-DMULTIPLIER=ibex_pkg::{MULTIPLIERS[core]}", *options, *packages]


def simulator(core: str, rtl: Path, folder: Path) -> Path:
    """The program that simulates a core."""
    argv = ["verilator", "--binary", "--timing", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
    argv += ["--top-module", "bench", "--Mdir", str(folder / "made"), "-o", "bench"]
    run([*argv, *sources_of(core, rtl), str(HERE / "rtl.sv")], folder)
    return folder / "made" / "bench"


def linked(core: str, sources: list[str], folder: Path) -> Path:
    """A program for both, and its bytes as the simulator reads them."""
    (folder / "start.s").write_text(START)
    (folder / "link.ld").write_text(SCRIPT)
    cpu = load_board(BOARDS[core]).cpu
    elf, binary = folder / "program.elf", folder / "program.bin"
    argv = [cpu.toolchain.compiler, *cpu.compiler_flags, "-O3", "-nostartfiles", "-T", "link.ld"]
    run([*argv, "-I.", "-o", str(elf), "start.s", *sources, "-lc", "-lgcc"], folder)
    run([f"{cpu.toolchain.prefix}objcopy", "-O", "binary", str(elf), str(binary)], folder)
    words = struct.iter_unpack("<I", binary.read_bytes().ljust(RAM_BYTES, b"\0"))
    (folder / "program.hex").write_text("\n".join(f"{word:08x}" for (word,) in words))
    return elf


def simulated(program: Path, folder: Path) -> list[int]:
    """The cycles at which the program wrote to SIGNAL."""
    lines = run([str(program)], folder).splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("cycle ")]


def modelled(core: str, elf: Path, folder: Path) -> list[int]:
    """The same by the cycle model."""
    board = load_board(BOARDS[core])
    assert board.emulator is not None
    emulator, snapshots = board.emulator, folder / "snapshots"
    plugin = plugin_for(emulator.program)
    loaded = arguments(plugin, CycleModel.for_board(board), snapshots=snapshots)
    argv = [emulator.program, "-machine", emulator.machine, *emulator.arguments, *loaded]
    argv += ["-display", "none", "-serial", "null", "-monitor", "none", "-kernel", str(elf)]
    run(argv, folder)
    return [one["core"] for one in counters.read_snapshots(snapshots)]


def compare_sequences(core: str, program: Path, folder: Path) -> bool:
    """Whether each sequence takes in RTL what the makers' tables say."""
    cases = CASES[core]
    lines = ["main: mv s1, ra", "lui s0, 0x10000"]
    for number in range(len(cases)):
        for length in ("short", "long"):
            lines += ["sw zero, 0(s0)", f"call case_{number}_{length}", "sw zero, 0(s0)"]
    text = assembly(cases, None) + ".globl main\n" + "\n".join([*lines, "jr s1", ""])
    (folder / "cases.s").write_text(text)
    linked(core, ["cases.s"], folder)
    at, is_same = simulated(program, folder), True
    for number, case in enumerate(cases):
        a, b, c, d = at[4 * number : 4 * number + 4]
        found = ((d - c) - (b - a)) / repetitions(case)
        is_same &= agrees(case, found)
        print(f"{case.name:32} table {case.cycles:3} RTL {found:g}")
    return is_same


def compare_inference(core: str, program: Path, folder: Path, model: Path) -> bool:
    """Whether one inference takes nearly the same in RTL and by the model, with right bytes."""
    utvm_deploy.bundle(model, BOARDS[core], folder / "bundle", name="net", latency=False)
    (folder / "main.c").write_text(INFERENCE)
    (folder / "signal.s").write_text(SIGNAL)
    sources = [str(path) for path in (folder / "bundle" / "src").glob("*.c")]
    includes = [f"-Ibundle/{name}" for name in ("include", "src", "selftest")]
    elf = linked(core, [*includes, "main.c", "signal.s", *sources], folder)
    in_rtl, in_model = simulated(program, folder), modelled(core, elf, folder)
    rtl, ours = in_rtl[1] - in_rtl[0], in_model[1] - in_model[0]
    print(f"{model.stem}: RTL {rtl:,} cycles, model {ours:,}; bytes right: {len(in_rtl) == 2}")
    return len(in_rtl) == 2 and abs(rtl - ours) <= TOLERANCE * rtl


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--core", choices=BOARDS, required=True)
    parser.add_argument("--rtl", type=Path, required=True, help="the checkout")
    parser.add_argument("--model", type=Path, action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = simulator(args.core, args.rtl.absolute(), folder)
        is_same = compare_sequences(args.core, program, folder)
        for model in args.model:
            with tempfile.TemporaryDirectory() as own:
                is_same &= compare_inference(args.core, program, Path(own), model.absolute())
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
