"""An instruction as data: its text, and what decides where it can be (kind, reads, writes)."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.targets.contract.timing import AnyKind

FLAGS = "flags"
#: Memory that the code writes, as far as its order matters.
STACK = "stack"


@dataclass(frozen=True)
class Instruction:
    """One instruction. The fields with registers are named after the needs of timing tables."""

    text: str
    kind: AnyKind
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    accumulator: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    written_back: tuple[str, ...] = ()
    # Base and offset of a load, which decide the bank of memory.
    bank: tuple[str, int] | None = None

    @property
    def reads(self) -> frozenset[str]:
        """Registers and flags that must be ready before it."""
        return frozenset(
            (*self.first, *self.second, *self.accumulator, *self.address, *self.stored)
        )

    @property
    def results(self) -> frozenset[str]:
        """Registers and flags that have new values after it."""
        return frozenset((*self.writes, *self.written_back))
