"""The RISC-V decoder against GNU objdump: registers, size, target and class."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GCC, OBJDUMP = "riscv64-unknown-elf-gcc", "riscv64-unknown-elf-objdump"
pytestmark = pytest.mark.skipif(
    shutil.which(GCC) is None,
    reason=f"{GCC} is not installed; sudo apt install gcc-riscv64-unknown-elf",
)
_LINE = re.compile(r"^\s*([0-9a-f]+):\t([0-9a-f]{4})([0-9a-f]{4})?\s+\t(\S+)(?:\t([^#<]*))?")
#: Mnemonic, with or without ``c.`` -> class; the first match counts.
CLASSES = (
    (r"(c\.nop|c\.unimp)$", "nop"),
    (r"(addi(16sp|4spn)?|add|sub)$", "add_sub"),
    (r"(c\.mv|c\.li)$", "add_sub"),
    (r"(lui|auipc)$", "move"),
    (r"(sll|srl|sra|rol|ror)i?$", "shift"),
    (r"sh[123]add$", "add_sub"),
    (r"mul$", "multiply"),
    (r"mulh", "multiply_long"),
    (r"(div|rem)u?$", "divide"),
    (r"lw(sp)?$", "load_word"),
    (r"l[bh]u?$", "load_part"),
    (r"sw(sp)?$", "store_word"),
    (r"s[bh]$", "store_part"),
    (r"(beq|bne|blt|bge)u?z?$", "branch_conditional"),
    (r"j$", "branch"),
    (r"(jalr|jr)$", "branch_indirect"),
    (r"fence", "barrier"),
    (r"(csr|ecall|ebreak|mret|wfi)", "system"),
    (r".", "logic"),
)


def class_of(name: str, parts: list[str]) -> str:
    bare = name.removeprefix("c.")
    if bare == "jal":
        return "call" if name == "c.jal" or parts[0] != "x0" else "branch"
    if parts[:1] == ["x0"] and not bare.startswith(("j", "b", "s", "csr")):
        return "nop"
    return next(k for pattern, k in CLASSES if re.match(pattern, bare) or re.match(pattern, name))


def registers(name: str, parts: list[str]) -> tuple[set[int], set[int]]:
    """Those read and those written, by the text of the listing; x0 is in none."""
    sets = [{int(n) for n in re.findall(r"\bx(\d+)\b", part)} for part in parts]
    everything = set().union(*sets)
    bare = name.removeprefix("c.")
    if re.match(r"(s[bhw](sp)?$|b|ecall|ebreak|fence|mret|wfi|nop|j$|jr$)", bare):
        return everything - {0}, set()
    writes = sets[0] if sets else set()
    if name in ("c.jalr", "c.jal"):
        return everything - {0}, {1}
    reads = set().union(*sets[1:])
    if name.startswith("c.") and len(parts) == 2 and bare not in ("mv", "li", "lui", "lw", "lwsp"):
        reads |= writes
    return reads - {0}, writes - {0}


def bits(numbers: set[int]) -> int:
    """As instruction.h has them."""
    return sum(1 << (n if n < 16 else n + 1) for n in numbers)


def listing(path: Path) -> Iterator[tuple[str, str, str, str, list[str], str]]:
    """Address, both halfwords, name, operands and text of each instruction."""
    argv = [OBJDUMP, "-d", "-M", "numeric,no-aliases", str(path)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[4].startswith("."):
            continue
        high, low = match[2], match[3]
        first, second = (low, high) if low else (high, "0")
        operands = (match[5] or "").strip()
        yield match[1], first, second, match[4], operands.split(",") if operands else [], line


def faults(tool: Path, path: Path) -> list[str]:
    """A sentence for each instruction on which decoder and listing differ."""
    lines = list(listing(path))
    assert len(lines) > 40
    text = "\n".join(f"{address} {first} {second}" for address, first, second, *_ in lines)
    done = subprocess.run([tool, "riscv32"], input=text, capture_output=True, text=True, check=True)
    found = []
    for (_, first, _, name, parts, shown), answer in zip(
        lines, done.stdout.splitlines(), strict=True
    ):
        kind, size, _flow, target, reads, writes, *_ = answer.split()
        jumps = re.match(r"(c\.)?(b|j$|jal$)", name) and name != "c.jalr"
        read, written = registers(name, parts[:-1] if jumps else parts)
        same = (
            kind == class_of(name, parts)
            and int(size) == (4 if int(first, 16) & 3 == 3 else 2)
            and (not jumps or int(target, 16) == int(parts[-1], 16))
            and int(reads, 16) == bits(read)
            and int(writes, 16) == bits(written)
        )
        if not same:
            found.append(f"{shown.strip()} | {answer}")
    return found


@pytest.mark.parametrize(
    ("isa", "longer", "source"),
    [
        ("rv32imc", "zicsr_zifencei", "every_riscv.s"),
        ("rv32im", "zicsr_zifencei", "every_riscv.s"),
        ("rv32imc", "zba_zbb", "every_riscv_bits.s"),
    ],
)
def test_every_instruction(
    decode_tool: Path, tmp_path: Path, isa: str, longer: str, source: str
) -> None:
    """The short instructions and those that they stand for are decoded alike."""
    made = tmp_path / "every.o"
    argv = [GCC, "-c", f"-march={isa}_{longer}", "-mabi=ilp32", "-o", str(made)]
    subprocess.run([*argv, str(HERE / source)], check=True)
    linked = tmp_path / "every.elf"
    argv = [GCC, f"-march={isa}", "-mabi=ilp32", "-nostdlib", "-Wl,-e,start", "-o", str(linked)]
    subprocess.run([*argv, str(made)], check=True)
    assert faults(decode_tool, linked) == []


def test_what_is_not_known_is_said(decode_tool: Path) -> None:
    """A word of zeros, c.fld, and instructions of F, A, Zbc and Zbs."""
    words = ("0 0", "2108 0", "7053 0000", "202f 1005", "95b3 0ac5", "95b3 48c5", "1513 6035")
    text = "\n".join(f"0 {word}" for word in words)
    done = subprocess.run(
        [decode_tool, "riscv32"], input=text, capture_output=True, text=True, check=True
    )
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"unknown"}
