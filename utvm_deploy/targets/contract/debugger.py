"""What a debugger has to know of a target's cores to run tasks in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Register:
    """One register: its number in ``p`` and ``P``, its place in ``g``."""

    number: int
    size_bytes: int
    offset: int  # in the answer to g

    @property
    def end(self) -> int:
        """Where the next one begins there."""
        return self.offset + self.size_bytes


@dataclass(frozen=True)
class Debugger:
    """The facts of one architecture that the packets of a GDB server need."""

    #: Its name in ``xmlRegisters``.
    architecture: str
    #: What a server's description must have; more files of it are read until they are there.
    registers: frozenset[str]
    #: The registers of a server that describes none.
    assumed: Mapping[str, Register]
    #: Register -> value, before the core is started at an address.
    start: Mapping[str, int]
    #: An address, and the word that restarts the system when it is written there. None: that
    #: differs between chips, so only a server's own command restarts it.
    reset: tuple[int, int] | None
    #: The last number of the packets for breakpoints.
    breakpoint_kind: int
