"""The facts of a core: which options it can have at all.

A board says which of these options its silicon has (cpu.fpu, cpu.dsp, cpu.mve).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Core:
    """One processor core as its maker sells it."""

    name: str
    architecture: str  # its maker's name of the instruction set
    fpus: tuple[str, ...] = ()  # precisions of its floating-point unit: "single", "double"
    dsp: bool = False  # SMLAD, SXTB16, SSAT16 and similar
    mve: bool = False  # Helium vector instructions
    vectors: bool = False  # vector instructions of RISC-V, on integers of up to 32 bits
    cache_line_bytes: int = 0  # 0: the core has no caches
    #: Drivers of the timers that silicon with this core has, the best first.
    timers: tuple[str, ...] = ()
    #: Loads and stores words at multiples of four only.
    needs_aligned_words: bool = False
    #: Its MPU has windows of any size, not only of powers of two.
    has_any_windows: bool = False
    # The core whose kernels run where the silicon lacks the extension.
    as_without_dsp: str = ""
    as_without_mve: str = ""
