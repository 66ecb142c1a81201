"""What a bare-metal board notes in RAM when it faults, put into words.

The template's start-up code fills ``struct fault_record utvm_fault`` and resets; the record
outlives the reset. Whoever sees the reset reads it over the link, at its symbol's address.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

FAULT_SYMBOL = "utvm_fault"
FAULT_BYTES = 32
_FORMAT = "<8I"
_MAGIC = 0x544C4146  # port.h's FAULT_MAGIC

_EXCEPTIONS = {
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
# Bit of the Configurable Fault Status Register -> what it says (Armv7-M manual, B3.2.15).
_CAUSES = {
    0: "instruction fetch from a forbidden address",
    1: "data access to a forbidden address",
    3: "forbidden access on return from an exception",
    4: "stack overflow on entry to an exception",
    8: "instruction fetch from where nothing is",
    9: "data access to where nothing is",
    10: "data access to where nothing is (found late)",
    11: "bus error on return from an exception",
    12: "stack overflow on entry to an exception",
    16: "undefined instruction",
    17: "jump without the Thumb bit",
    18: "invalid return from an exception",
    19: "floating-point or vector instruction without its unit",
    20: "stack limit reached",
    24: "unaligned access",
    25: "division by zero",
}
_MMFAR_VALID = 7
_BFAR_VALID = 15


def describe_fault(record: bytes, symbols: Mapping[str, int]) -> str | None:
    """One phrase for a fault record, with the function it happened in; None if there is none."""
    magic, exception, pc, _lr, cfsr, _hfsr, mmfar, bfar = struct.unpack(_FORMAT, record)
    if magic != _MAGIC:
        return None
    causes = [text for bit, text in _CAUSES.items() if cfsr >> bit & 1]
    words = f"{_EXCEPTIONS.get(exception, f'exception {exception}')}: "
    words += ", ".join(dict.fromkeys(causes)) or "cause unknown"
    if cfsr >> _MMFAR_VALID & 1:
        words += f" at address 0x{mmfar:08x}"
    elif cfsr >> _BFAR_VALID & 1:
        words += f" at address 0x{bfar:08x}"
    return words + (f", in {_place(pc, symbols)}" if pc else "")


def _place(pc: int, symbols: Mapping[str, int]) -> str:
    """``function+offset`` by the nearest symbol below."""
    # Bit 0 of a Thumb function's symbol is no part of its address.
    below = [(address & ~1, name) for name, address in symbols.items() if address & ~1 <= pc]
    if not below:
        return f"0x{pc:08x}"
    address, name = max(below)
    return f"{name}+{pc - address} (0x{pc:08x})"
