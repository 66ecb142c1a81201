"""How a kernel reads its inputs, as far as an estimate of its cost depends on it.

The property ``reading`` of a kernel class gives this. A class without it reads as most kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """What differs between the kernels of a layer, apart from their scratch."""

    #: Rows of windows whose pixels it gathers one by one.
    gathered_rows: int = 0
    #: How many windows read one gathered column; None: as many as overlap there.
    windows_per_column: float | None = None
    #: Whether it widens its inputs again for each group of outputs.
    rewidens: bool = False
    #: Whether it is Winograd's method: fewer multiplications, of tiles that strips are too low for.
    is_winograd: bool = False
    #: How many weights it unpacks into scratch in a run, again for each block of pixels.
    unpacked: int = 0
    #: Of its estimated cycles, those that wait for weights behind a cache.
    missed: float = 0.0


_USUAL = Reading()


def own_cycles(kernel: object, core: str) -> float | None:
    """About the cycles of a call on a core, by the kernel itself; None if it does not say."""
    cycles = getattr(kernel, "cycles_on", None)
    found: float | None = cycles(core) if cycles is not None else None
    return found


def reading_of(kernel: object) -> Reading:
    """How a kernel reads."""
    found: Reading = getattr(kernel, "reading", _USUAL)
    return found
