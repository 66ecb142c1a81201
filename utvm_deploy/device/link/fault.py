"""The meaning of a Cortex-M's fault registers, in words. Pure: registers in, a phrase out.

Its users are the debug link, which reads the registers itself, and the readers of the record that a
board's fault handler writes. The tables are those of the Armv7-M manual (DDI 0403, B3.2.15 to
B3.2.18). Those for stack limits and security are of the Armv8-M manual (DDI 0553, D1.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

# Where the registers are, on every core that has them.
CFSR_ADDRESS = 0xE000ED28
HFSR_ADDRESS = 0xE000ED2C
MMFAR_ADDRESS = 0xE000ED34
BFAR_ADDRESS = 0xE000ED38

# Exception number -> name.
EXCEPTIONS: Mapping[int, str] = {
    2: "NMI",
    3: "hard fault",
    4: "memory fault",
    5: "bus fault",
    6: "usage fault",
    7: "secure fault",
    11: "unexpected SVCall",
    12: "unexpected debug event",
    14: "unexpected PendSV",
}

# Bit of the Configurable Fault Status Register -> what it says.
CAUSES: Mapping[int, str] = {
    0: "instruction fetch from a forbidden address",
    1: "data access to a forbidden address",
    3: "forbidden access on return from an exception",
    4: "stack overflow on entry to an exception",
    5: "forbidden access while saving floating-point registers",
    8: "instruction fetch from where nothing is",
    9: "data access to where nothing is",
    10: "data access to where nothing is (found late)",
    11: "bus error on return from an exception",
    12: "stack overflow on entry to an exception",
    13: "bus error while saving floating-point registers",
    16: "undefined instruction",
    17: "jump without the Thumb bit",
    18: "invalid return from an exception",
    19: "floating-point or vector instruction without its unit",
    20: "stack limit reached",
    24: "unaligned access",
    25: "division by zero",
}
_MMFAR_VALID = 1 << 7
_BFAR_VALID = 1 << 15

# Bit of the Hard Fault Status Register -> what it says; bit 30 says that CFSR has the cause.
HARD_CAUSES: Mapping[int, str] = {
    1: "bus error while reading the vector table",
    31: "a breakpoint without a debugger",
}


@dataclass(frozen=True)
class FaultRegisters:
    """The registers of a core in a fault. ``pc`` and ``lr`` are the stacked ones; 0: not known."""

    exception: int
    pc: int
    lr: int
    cfsr: int
    hfsr: int
    mmfar: int
    bfar: int


def describe_fault(registers: FaultRegisters, place_of: Callable[[int], str]) -> str:
    """``bus fault: data access to where nothing is at address 0xf0000000, in peek+2 (k.c:7)``.

    ``place_of`` names the code at an address.
    """
    name = EXCEPTIONS.get(registers.exception, f"exception {registers.exception}")
    words = f"{name}: " + (", ".join(dict.fromkeys(_causes(registers))) or "cause unknown")
    address = fault_address(registers)
    if address is not None:
        words += f" at address {address:#010x}"
    # A jump to nowhere stacks nowhere: who jumped is in the link register.
    if registers.cfsr & (1 << 0 | 1 << 8 | 1 << 17) and registers.lr:
        return f"{words}, called from {place_of(registers.lr & ~1)}"
    return f"{words}, in {place_of(registers.pc)}" if registers.pc else words


def fault_address(registers: FaultRegisters) -> int | None:
    """The address that was accessed; None if the core does not know."""
    if registers.cfsr & _MMFAR_VALID:
        return registers.mmfar
    return registers.bfar if registers.cfsr & _BFAR_VALID else None


def _causes(registers: FaultRegisters) -> Iterator[str]:
    for bit, text in CAUSES.items():
        if registers.cfsr >> bit & 1:
            yield text
    for bit, text in HARD_CAUSES.items():
        if registers.hfsr >> bit & 1:
            yield text


def nearest_symbol(address: int, symbols: Mapping[str, int]) -> str:
    """``function+offset (0x...)`` by the nearest symbol below; the number alone without one."""
    # Bit 0 of a Thumb function's symbol is not part of its address.
    below = [(start & ~1, name) for name, start in symbols.items() if start & ~1 <= address]
    if not below:
        return f"{address:#010x}"
    start, name = max(below)
    return f"{name}+{address - start} ({address:#010x})"
