"""Parts of the Thumb-2 routines: the condition of the preprocessor, and requantization."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.mnemonics import Slot, at

#: Where the preprocessor takes the assembly; elsewhere it takes the C.
CONDITION = "defined(__thumb2__) && defined(__GNUC__)"
#: The same for assembly without Thumb-2.
ARMV6M_CONDITION = "defined(__thumb__) && !defined(__thumb2__) && defined(__GNUC__)"


def scale(
    a: Assembler, value: str, multiplier: str, offset: str, shift: str, temporary: tuple[str, str]
) -> None:
    """Requantize a sum to int8 in place: what ``utvm_scale`` computes, from SMULL's two words."""
    low, high = temporary
    a.add(low, value, value)
    a.smull(low, high, low, multiplier)
    a.add(high, high, low, "lsr #31")
    a.add(high, high, value, "asr #31")
    a.add(high, high, offset)
    a.asr(value, high, shift)
    a.ssat(value, 8, value)


def scale_wide(
    a: Assembler,
    value: str,
    multiplier: str,
    offset: tuple[str, str],
    shift: str,
    temporary: tuple[str, str],
) -> None:
    """Requantize a sum by one rounding in 64 bits, in place: what ``utvm_scale_wide`` computes.

    ``offset`` and ``temporary`` are a low and a high word.
    """
    low, high = temporary
    a.mov(low, offset[0])
    a.mov(high, offset[1])
    a.smlal(low, high, value, multiplier)
    a.asr(value, high, shift)
    a.ssat(value, 8, value)


def store_limits(a: Assembler, low: Slot, clamps: Slot) -> None:
    """Put the limits at r3 into two slots from ``low`` on, and 0 into ``clamps`` if int8's.

    Overwrites r0 and r1.
    """
    a.ldrd("r0", "r1", at("r3"))
    a.strd("r0", "r1", low)
    a.adds("r0", 128)
    a.subs("r1", 127)
    a.orrs("r0", "r1")
    a.str("r0", clamps)


def clamp(a: Assembler, values: Sequence[str], low: Slot, clamps: Slot) -> None:
    """Limit values in place by the slots of ``store_limits``. Overwrites r0 and r1."""
    a.ldr("r0", clamps)
    unlimited = Label()
    a.cbz("r0", unlimited)
    a.ldrd("r0", "r1", low)
    for value in values:
        a.cmp(value, "r0")
        with a.when("lt"):
            a.mov(value, "r0")
        a.cmp(value, "r1")
        with a.when("gt"):
            a.mov(value, "r1")
    a.place(unlimited)
