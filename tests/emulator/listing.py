"""Reads objdump's listings: what an instruction's text says it reads, writes and is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = "arm-none-eabi-objdump"
_LINE = re.compile(r"^\s*([0-9a-f]+):\t([0-9a-f]{4}) ?([0-9a-f]{4})?\s*\t(\S+)(?:\t([^;@<]*))?")
_NAME = re.compile(r"\b([rsd])(\d+)\b")
_RANGE = re.compile(r"\b([rsd])(\d+)-[rsd](\d+)\b")
_CONDITION = "(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"

#: Mnemonics without destination.
_NO_RESULT = re.compile(
    r"^(str|stm|cmp|cmn|tst|teq|push|b|cb|vcmp|vstr|vstm|vpush|msr|pld|pli|nop|it|svc|bkpt|dmb|dsb"
    r"|isb|cps|tbb|tbh|wfi|wfe|sev|yield|dbg)"
)
#: Mnemonics with two.
_TWO_RESULTS = re.compile(r"^(ldrd|smull|umull|smlal|umlal|umaal|smlsld)")
#: Mnemonics whose destination is read as well.
_READS_RESULT = re.compile(
    r"^(movt|bfi|bfc|smlal|umlal|umaal|smlsld|vmla|vmls|vnml|vfma|vfms|vfnm)"
)
#: Mnemonics with a destination and one source.
_ONE_SOURCE = re.compile(
    r"^(mov|mvn|movw|neg|[us]xtb|[us]xth|rev|rbit|clz|v(mov|neg|abs|cvt|sqrt|rint|mrs|ldr)|ldr|adr|mrs)"
)


@dataclass(frozen=True)
class Line:
    """One instruction of a listing; registers as bits: r0-r15, s0 from bit 17."""

    address: int
    first: int
    second: int
    mnemonic: str  # without width, condition and type
    text: str
    reads: int
    writes: int
    target: int | None


def disassemble(path: Path) -> Iterator[Line]:
    """Every instruction in an object file or archive."""
    argv = [OBJDUMP, "-d", "-M", "reg-names-raw", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    for text in done.stdout.splitlines():
        match = _LINE.match(text)
        if match is None:
            continue
        address, first, second, mnemonic, operands = match.groups()
        if mnemonic.startswith((".", "udf", "<")):
            continue
        operands = (operands or "").strip()
        for alias, number in (("sp", 13), ("lr", 14), ("pc", 15)):
            operands = re.sub(rf"\b{alias}\b", f"r{number}", operands)
        yield _line(
            int(address, 16), int(first, 16), int(second or "0", 16), mnemonic, operands, text
        )


def _line(address: int, first: int, second: int, mnemonic: str, operands: str, text: str) -> Line:
    name = mnemonic.split(".")[0]
    target = None
    if re.match(rf"^(bl?{_CONDITION}?|cbn?z)$", name):
        *others, last = operands.split(", ")
        operands = ", ".join(others)
        # An object's calls are not linked yet: all point to themselves.
        target = int(last.split()[0], 16) if not second else None
    reads, writes = _registers(name, operands)
    return Line(address, first, second, name, text, reads, writes, target)


def _bits(kind: str, low: int, high: int) -> int:
    total = 0
    for number in range(low, high + 1):
        if kind == "d":
            total |= 3 << (17 + 2 * number)
        else:
            total |= 1 << (number + (17 if kind == "s" else 0))
    return total


def _operand_bits(operand: str) -> int:
    total = 0
    for kind, low, high in _RANGE.findall(operand):
        total |= _bits(kind, int(low), int(high))
    for kind, number in _NAME.findall(operand):
        total |= _bits(kind, int(number), int(number))
    return total


def _half(operand: str) -> int:
    number, half = re.findall(r"\d+", operand)
    return 1 << (17 + 2 * int(number) + int(half))


def _split(operands: str) -> list[str]:
    """At commas outside brackets and braces."""
    return re.findall(r"d\d+\[[^\]]*\]|\[[^\]]*\]!?|\{[^}]*\}|[^,\s][^,]*", operands)


def _registers(name: str, operands: str) -> tuple[int, int]:
    parts = _split(operands)
    bits = [_operand_bits(part) for part in parts]
    if "[" in operands and name == "vmov":  # one half of a double
        bits = [_half(part) if "[" in part else _operand_bits(part) for part in parts]
    everything = 0
    for one in bits:
        everything |= one
    if re.match(r"^(push|pop|vpush|vpop)", name):
        everything |= 1 << 13
        return (everything, 1 << 13) if "push" in name else (1 << 13, everything)
    if name.startswith(("ldm", "vldm")):
        base = bits[0]
        return base, bits[1] | (base if parts[0].endswith("!") and not base & bits[1] else 0)
    if name.startswith(("stm", "vstm")):
        return everything, bits[0] if parts[0].endswith("!") else 0
    back = 0
    for index, part in enumerate(parts):
        if part.startswith("["):
            follows = index + 1 < len(parts) and not name.startswith(("vldr", "vstr"))
            back = bits[index] if part.endswith("!") or follows else 0
    if re.match(rf"^blx?{_CONDITION}?$", name) and name not in ("blt", "ble", "bls"):
        back |= 1 << 14
    if name.startswith("strex"):
        return everything & ~bits[0], bits[0]
    if name == "vmsr":
        return bits[1], 0
    if _NO_RESULT.match(name) and not name.startswith(("bic", "bfi", "bfc")):
        return everything, back
    count = 2 if _TWO_RESULTS.match(name) else 1
    if name == "vmov" and len(parts) >= 3:  # between a pair of core registers and others
        count = 2 if parts[0].startswith("r") or len(parts) == 4 else 1
    writes = 0
    for one in bits[:count]:
        writes |= one
    reads = 0
    for one in bits[count:]:
        reads |= one
    if _READS_RESULT.match(name) or (len(parts) == 2 and not _ONE_SOURCE.match(name)):
        reads |= writes
    return reads, writes | back
