"""Vectors of float32 and of float16: their sizes, and the ends of mnemonics for them.

Helium computes float32 with denormal numbers as 0. It keeps those of float16 unless FPSCR.FZ16 is
set (Arm DDI 0553, StandardFPSCRValue). That bit is 0 after a reset, and no start-up code sets it.
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import Operand

VECTOR_BYTES = 16


@dataclass(frozen=True)
class Lanes:
    """A type of numbers in vectors."""

    count: int  # in a vector
    bits: int
    letter: str  # of loads and stores
    value: str  # the mnemonic that loads one number into a core register
    dtype: str

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.bits // 8

    def compute(self, a: Assembler, mnemonic: str, *operands: Operand) -> None:
        """An instruction on floating-point numbers, such as vfma."""
        getattr(a, f"{mnemonic}_f{self.bits}")(*operands)

    def move(self, a: Assembler, mnemonic: str, *operands: Operand) -> None:
        """An instruction that depends on the size alone, such as vdup."""
        getattr(a, f"{mnemonic}_{self.bits}")(*operands)

    def load(self, a: Assembler, vector: str, place: Operand) -> None:
        """A vector from memory."""
        getattr(a, f"vldr{self.letter}_u{self.bits}")(vector, place)

    def load_value(self, a: Assembler, register: str, place: Operand) -> None:
        """One number into a core register."""
        getattr(a, self.value)(register, place)

    def store(self, a: Assembler, vector: str, place: Operand) -> None:
        """A vector to memory."""
        self.move(a, f"vstr{self.letter}", vector, place)


SINGLES = Lanes(4, 32, "w", "ldr", "float32")
HALVES = Lanes(8, 16, "h", "ldrh", FLOAT16_ARITHMETIC.dtype)


def half_texts(text: str) -> tuple[str, ...]:
    """The C of what C text calls to compute with numbers of float16."""
    own = FLOAT16_ARITHMETIC
    return (shared_text("math/bits"), own.c_text(), *own.by_float_texts(text))
