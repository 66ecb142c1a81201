"""Compares the table of the Cortex-M55 with llvm-mca, which reads the schedule it was copied from.

    python benchmarks/cycle_model/llvm_mca.py           compare with the figures that are kept
    python benchmarks/cycle_model/llvm_mca.py --write   ask llvm-mca again (apt install llvm-19)

200 sequences of instructions, from seeds, and inner loops of this project's kernels run 100 times
in a row. If they agree, the table is a true copy of LLVM's schedule. That is nothing about silicon.

Left out is what the two treat differently on purpose. llvm-mca pairs instructions of four bytes
which LLVM expects to become narrow later. It counts one cycle for a load of any number of
registers. It knows no low-overhead loop. It takes the flags of narrow instructions for written
before all results under way, so that none of these instructions is among the sequences.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.targets.emulator.plugin import SOURCES
from utvm_deploy.targets.emulator.table import header_texts

HERE = Path(__file__).resolve().parent
KEPT = HERE / "llvm_mca.json"
LOOPS = HERE / "m55_loops.s"
CORE = "cortex-m55"
SEQUENCES = 200
TURNS = 100
#: The most by which a sequence may differ.
LIMIT = 0.05
TIMEOUT_S = 60.0
#: Where they differ by more, and why.
EXCEPTIONS = {
    "seed 187": "which of two pipes a move to lanes takes; LLVM's file calls its own choice unclear"
}

# Registers: d and w are written, n and m read; r is a core register, l one of r0 to r7, q a vector.
_NARROW = (
    "mov {r}, {r}; sxtb {l}, {l}; uxth {l}, {l}; uxtb {l}, {l}; mov {l}, {l}; add {l}, r9; "
    "cmp {l}, {l}; cmp {l}, #5; rev {l}, {l}; add {l}, sp, #8; rev16 {l}, {l}; cmn {l}, {l}"
)
_WIDE = (
    "smlad {r}, {r}, {r}, {r}; mla {r}, {r}, {r}, {r}; mul r8, {r}, {r}; ubfx {r}, {r}, #3, #4; "
    "eor {r}, {r}, {r}, lsl #2; add {r}, {r}, {r}, lsl #3; ssat {r}, #8, {r}; qadd {r}, {r}, {r}; "
    "sadd16 {r}, {r}, {r}; uxtab {r}, {r}, {r}; pkhbt {r}, {r}, {r}, lsl #2; udiv {r}, {r}, {r}; "
    "csel {r}, {r}, {r}, ne; smmla {r}, {r}, {r}, {r}"
)
_MEMORY = (
    "ldr {l}, [{l}, #4]; ldrb {l}, [{l}, #1]; ldrsh {l}, [{l}, {l}]; str {l}, [{l}, #8]; "
    "strb {l}, [{l}, #3]; strh {l}, [{l}, {l}]; ldr {l}, [sp, #4]"
)
_VECTOR_MEMORY = (
    "vldrb.8 {q}, [{l}]; vldrb.s16 {q}, [{l}], #8; vldrw.32 {q}, [{l}, #16]; vldrh.s32 {q}, [{l}]; "
    "vstrb.8 {q}, [{l}]; vstrw.32 {q}, [{l}], #16; vstrb.16 {q}, [{l}, #8]; "
    "vldrb.s32 {q}, [{l}, {p}]; vldrw.u32 {q}, [{p}, #4]; vstrw.32 {q}, [{l}, {p}, uxtw #2]; "
    "vld20.8 {{q0, q1}}, [{l}]; vld43.8 {{q2, q3, q4, q5}}, [{l}]; vst21.16 {{q4, q5}}, [{l}]"
)
_INTEGER = (
    "vadd.i32 {q}, {q}, {q}; vadd.i32 {q}, {q}, {r}; vsub.i8 {q}, {q}, {q}; vmax.s8 {q}, {q}, {q}; "
    "vmul.i32 {q}, {q}, {q}; vqrdmulh.s32 {q}, {q}, {q}; vqdmulh.s32 {q}, {q}, {r}; "
    "vrshl.s32 {q}, {q}, {q}; vqshl.s32 {q}, {q}, {q}; vshl.i32 {q}, {q}, #3; "
    "vrshr.s32 {q}, {q}, #4; vmovlb.s8 {q}, {q}; vmovnb.i32 {q}, {q}; vqmovnt.s16 {q}, {q}; "
    "vqrshrnb.s32 {q}, {q}, #4; vmullb.s8 {q}, {q}, {q}; vmla.s32 {q}, {q}, {r}; "
    "vmladava.s8 {e}, {q}, {q}; vmladav.s16 {e}, {q}, {q}; vaddva.s32 {e}, {q}; "
    "vmaxv.s8 {r}, {q}; vminv.u16 {r}, {q}; vdup.32 {q}, {r}; vmov {q0}[2], {q0}[0], {r}, {r}; "
    "vmov.i32 {q}, #1; vand {q}, {q}, {q}; vcmp.s32 gt, {q}, {q}; vpsel {q}, {q}, {q}; "
    "vmov.8 {q}[3], {r}; vmov.s8 {r}, {q}[5]; vctp.8 {r}"
)
_FLOAT = (
    "vadd.f32 {q}, {q}, {q}; vsub.f16 {q}, {q}, {q}; vmul.f32 {q}, {q}, {q}; "
    "vfma.f32 {q}, {q}, {q}; vfma.f32 {q}, {q}, {r}; vfms.f16 {q}, {q}, {q}; "
    "vmaxnm.f32 {q}, {q}, {q}; vabs.f32 {q}, {q}; vcvt.s32.f32 {q}, {q}; vcvt.f32.s32 {q}, {q}; "
    "vrintz.f32 {q}, {q}; vadd.f32 {q}, {q}, {r}; vmul.f32 {q}, {q}, {r}; "
    "vcmp.f32 ge, {q}, {q}"
)
_SINGLE = (
    "vadd.f32 {s}, {s}, {s}; vmul.f32 {s}, {s}, {s}; vfma.f32 {s}, {s}, {s}; "
    "vmla.f32 {s}, {s}, {s}; vmov {s}, {r}; vmov {r}, {s}; vldr {s}, [{l}, #4]; "
    "vstr {s}, [{l}]; vdiv.f32 {s}, {s}, {s}; vcvt.s32.f32 {s}, {s}"
)
_MIXES = (
    (_NARROW,),
    (_NARROW, _WIDE),
    (_NARROW, _MEMORY),
    (_NARROW, _WIDE, _MEMORY),
    (_INTEGER,),
    (_INTEGER, _VECTOR_MEMORY),
    (_FLOAT, _VECTOR_MEMORY),
    (_INTEGER, _VECTOR_MEMORY, _NARROW),
    (_FLOAT, _INTEGER, _VECTOR_MEMORY, _WIDE, _MEMORY),
    (_SINGLE, _NARROW, _WIDE),
)


@dataclass(frozen=True)
class Sequence_:
    """Instructions, and the cycles of 100 turns."""

    name: str
    lines: tuple[str, ...]


def _made(seed: int) -> Sequence_:
    draw = random.Random(seed)
    mix = _MIXES[seed % len(_MIXES)]
    lines = []
    for _ in range(draw.randrange(5, 24)):
        text = draw.choice(draw.choice(mix).split("; "))
        vector = draw.randrange(7)  # of a source; never that of an offset
        for key in ("{l}", "{r}", "{e}", "{s}", "{p}", "{q0}", "{q}"):
            while key in text:
                register = {
                    "{l}": f"r{draw.randrange(8)}",
                    "{r}": f"r{draw.randrange(12)}",
                    "{e}": f"r{2 * draw.randrange(6)}",
                    "{s}": f"s{draw.randrange(16)}",
                    "{p}": "q7",
                    "{q0}": f"q{vector}",
                    "{q}": f"q{draw.randrange(7)}",
                }[key]
                text = text.replace(key, register, 1)
        lines.append(text.replace("{{", "{").replace("}}", "}"))
    return Sequence_(f"seed {seed}", tuple(lines))


def sequences() -> Iterator[Sequence_]:
    """Those from seeds, then the loops of kernels."""
    yield from map(_made, range(SEQUENCES))
    for part in re.split(r"^// ", LOOPS.read_text(), flags=re.MULTILINE)[1:]:
        name, *lines = part.strip().splitlines()
        yield Sequence_(name, tuple(lines))


def asked(one: Sequence_, folder: Path) -> int:
    """Cycles of all turns, by llvm-mca."""
    source = folder / "mca.s"
    source.write_text("\n".join((".syntax unified", ".thumb", *one.lines, "")))
    argv = ["llvm-mca-19", "-mtriple=thumbv8.1m.main-none-eabi", f"-mcpu={CORE}"]
    argv += [f"-iterations={TURNS}", "-instruction-info=false", "-resource-pressure=false"]
    done = subprocess.run(
        [*argv, str(source)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if found is None:
        raise SystemExit(f"llvm-mca-19 fails on {one.name}: {done.stderr}")
    return int(found[1])


def modelled(all_of_them: Sequence[Sequence_], folder: Path) -> list[int]:
    """Cycles of all turns of each, by the model's pipeline."""
    for name, text in header_texts().items():
        (folder / name).write_text(text)
    tool = folder / "pipe"
    sources = [HERE / "pipe.c", SOURCES / "decode.c", SOURCES / "pipeline.c"]
    _run("cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-I{SOURCES}",
         "-o", tool, *sources, *sorted(SOURCES.glob("*/*.c")))  # fmt: skip
    words: list[str] = []
    text = [".syntax unified", ".thumb"]
    for one in all_of_them:
        text += [*one.lines, ".short 0xdeff"]
    (folder / "all.s").write_text("\n".join((*text, "")))
    _run("arm-none-eabi-gcc", f"-mcpu={CORE}", "-mfloat-abi=hard", "-c", folder / "all.s",
         "-o", folder / "all.o")  # fmt: skip
    _run("arm-none-eabi-objcopy", "-O", "binary", folder / "all.o", folder / "all.bin")
    code = (folder / "all.bin").read_bytes()
    halves = [int.from_bytes(code[n : n + 2], "little") for n in range(0, len(code), 2)]
    while halves:
        first = halves.pop(0)
        if first == 0xDEFF:
            words.append("end")
        else:
            words.append(f"{first:x} {halves.pop(0) if first >> 11 >= 0x1D else 0:x}")
    done = _run(tool, "arm", CORE, str(TURNS), text="\n".join((*words, "")))
    pairs = [[int(number) for number in line.split()] for line in done.splitlines()]
    if any(unknown for _, unknown in pairs):
        raise SystemExit("the decoder does not know every instruction")
    return [cycles for cycles, _ in pairs]


def _run(*argv: str | Path, text: str | None = None) -> str:
    done = subprocess.run(
        [str(one) for one in argv], input=text, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise SystemExit(f"{argv[0]} fails: {done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="ask llvm-mca-19, and keep what it says"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for each sequence")
    options = parser.parse_args()
    all_of_them = list(sequences())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.write:
            kept = {one.name: asked(one, folder) for one in all_of_them}
            KEPT.write_text(json.dumps(kept, indent=0) + "\n")
        kept = json.loads(KEPT.read_text())
        found = modelled(all_of_them, folder)
    worst = []
    wrong = 0
    for one, cycles in zip(all_of_them, found, strict=True):
        difference = cycles / kept[one.name] - 1
        worst.append((abs(difference), one.name))
        if options.verbose or abs(difference) > LIMIT:
            why = EXCEPTIONS.get(one.name, "")
            wrong += abs(difference) > LIMIT and not why
            print(f"{one.name}: {cycles} here, {kept[one.name]} by llvm-mca ({difference:+.1%})")
            print(f"    {why or '; '.join(one.lines)}")
    print(f"{len(worst)} sequences, {wrong} differ by more than {LIMIT:.0%} for no known reason; "
          f"the worst: {max(worst)[1]}, {max(worst)[0]:.1%}")  # fmt: skip
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
