"""The fault records of a Cortex-M: its fault registers in words.

The tables are those of the Armv7-M manual (DDI 0403, B3.2.15 to B3.2.18). Those for stack limits
and security are of the Armv8-M manual (DDI 0553, D1.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from utvm_deploy.targets.contract.fault import Fault, FaultWords

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
# Of these, the program counter is where no code is.
_ASTRAY = 1 << 0 | 1 << 8 | 1 << 17


def _meaning(words: Mapping[str, int]) -> Fault:
    number, caller = words["exception"], words["lr"] & ~1
    name = EXCEPTIONS.get(number, f"exception {number}")
    return Fault(
        f"{name}: " + (", ".join(dict.fromkeys(_causes(words))) or "cause unknown"),
        address=_address(words),
        pc=words["pc"] or None,
        called_from=caller or None,
        is_astray=bool(words["cfsr"] & _ASTRAY),
    )


def _address(words: Mapping[str, int]) -> int | None:
    if words["cfsr"] & _MMFAR_VALID:
        return words["mmfar"]
    return words["bfar"] if words["cfsr"] & _BFAR_VALID else None


def _causes(words: Mapping[str, int]) -> Iterator[str]:
    for register, causes in (("cfsr", CAUSES), ("hfsr", HARD_CAUSES)):
        for bit, text in causes.items():
            if words[register] >> bit & 1:
                yield text


FAULTS = FaultWords(
    # ``pc``, ``lr`` and ``xpsr`` are the stacked ones.
    ("exception", "pc", "lr", "sp", "xpsr", "cfsr", "hfsr", "mmfar", "bfar"),
    _meaning,
)
