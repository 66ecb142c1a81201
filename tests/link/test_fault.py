"""Fault registers in words: one case for each kind, and what no register says."""

from __future__ import annotations

import pytest

from utvm_deploy.device.link.fault import FaultRegisters, describe_fault, nearest_symbol

SYMBOLS = {"reset_handler": 0x101, "peek": 0x201, "utvm_workspace": 0x2000_0000}


def words(
    exception: int = 3,
    *,
    pc: int = 0x204,
    lr: int = 0x10B,
    cfsr: int = 0,
    hfsr: int = 0,
    mmfar: int = 0,
    bfar: int = 0,
) -> str:
    registers = FaultRegisters(exception, pc, lr, cfsr, hfsr, mmfar, bfar)
    return describe_fault(registers, lambda at: nearest_symbol(at, SYMBOLS))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            words(5, cfsr=0x8200, bfar=0xF000_0000),
            "bus fault: data access to where nothing is at address 0xf0000000, "
            "in peek+4 (0x00000204)",
        ),
        (
            words(4, cfsr=0x82, mmfar=0x40),
            "memory fault: data access to a forbidden address at address 0x00000040, "
            "in peek+4 (0x00000204)",
        ),
        (words(6, cfsr=1 << 25), "usage fault: division by zero, in peek+4 (0x00000204)"),
        # An address register without its valid bit holds anything.
        (
            words(5, cfsr=0x400, bfar=0xDEAD_BEEF),
            "bus fault: data access to where nothing is (found late), in peek+4 (0x00000204)",
        ),
        # A jump to nowhere is told by its origin.
        (
            words(6, cfsr=1 << 17, pc=0x2000_0000),
            "usage fault: jump without the Thumb bit, called from reset_handler+10 (0x0000010a)",
        ),
        (words(3, hfsr=1 << 31, pc=0), "hard fault: a breakpoint without a debugger"),
        (words(9, pc=0x80), "exception 9: cause unknown, in 0x00000080"),
    ],
)
def test_words(text: str, said: str) -> None:
    assert text == said


#: Bit of CFSR -> a part of what it means, as the manuals have it.
MEANINGS = {
    0: "fetch from a forbidden",
    1: "access to a forbidden",
    3: "forbidden access on return",
    4: "stack overflow",
    5: "forbidden access while saving floating-point",
    8: "fetch from where nothing is",
    9: "access to where nothing is",
    10: "(found late)",
    11: "bus error on return",
    12: "stack overflow",
    13: "bus error while saving",
    16: "undefined",
    17: "Thumb bit",
    18: "return from an exception",
    19: "without its unit",
    20: "stack limit",
    24: "unaligned",
    25: "division by zero",
}


@pytest.mark.parametrize("bit", range(32))
def test_each_bit(bit: int) -> None:
    """A bit names its cause; who jumped to nowhere is in the link register."""
    said = words(6, cfsr=1 << bit)
    assert MEANINGS.get(bit, "cause unknown") in said
    assert said.count(", ") == 1
    assert said.endswith(
        "called from reset_handler+10 (0x0000010a)"
        if bit in (0, 8, 17)
        else "in peek+4 (0x00000204)"
    )


def test_one_cause_is_said_once() -> None:
    assert words(5, cfsr=1 << 4 | 1 << 12).count("stack overflow") == 1
