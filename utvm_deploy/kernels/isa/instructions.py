"""Thumb-2 instructions as data: their text, and what orders them (class, reads, writes).

Only what the micro-kernels use. Instructions of one straight piece of code are written in any valid
order; ``list_scheduler.py`` puts them into the one that the core likes.
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.cores.timing import Kind

FLAGS = "flags"
#: Memory that the code writes, as far as its order matters.
STACK = "stack"


@dataclass(frozen=True)
class Instruction:
    """One instruction; registers stand in the field whose need the timing table tells."""

    text: str
    kind: Kind
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    accumulator: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    written_back: tuple[str, ...] = ()
    # Base and offset of a load, which tell the bank.
    bank: tuple[str, int] | None = None

    @property
    def reads(self) -> frozenset[str]:
        """Everything that must be there before."""
        return frozenset(
            (*self.first, *self.second, *self.accumulator, *self.address, *self.stored)
        )

    @property
    def results(self) -> frozenset[str]:
        """Everything that is new behind it."""
        return frozenset((*self.writes, *self.written_back))


def _place(base: str, offset: int | str, write_back: bool) -> str:
    if isinstance(offset, str):
        return f"[{base}, {offset}]"
    if offset == 0 and not write_back:
        return f"[{base}]"
    return f"[{base}, #{offset}]" + ("!" if write_back else "")


def load(
    target: str, base: str, offset: int | str = 0, *, write_back: bool = False, size: str = ""
) -> Instruction:
    """ldr, or by ``size`` ldrsb, ldrb, ldrsh, ldrh."""
    index = (offset.split(",")[0],) if isinstance(offset, str) else ()
    return Instruction(
        f"ldr{size} {target}, {_place(base, offset, write_back)}",
        Kind.LOAD_PART if size else Kind.LOAD_WORD,
        # What is loaded relative to the stack pointer are slots that the same code writes.
        first=(STACK,) if base == "sp" else (),
        address=(base, *index),
        writes=(target,),
        written_back=(base,) if write_back else (),
        bank=(base, offset) if isinstance(offset, int) else None,
    )


def load_next(target: str, base: str, step: int, *, size: str = "") -> Instruction:
    """A load that moves its base behind itself."""
    return Instruction(
        f"ldr{size} {target}, [{base}], #{step}",
        Kind.LOAD_PART if size else Kind.LOAD_WORD,
        address=(base,),
        writes=(target,),
        written_back=(base,),
        bank=(base, 0),
    )


def load_pair(low: str, high: str, base: str, offset: int = 0) -> Instruction:
    """ldrd."""
    return Instruction(
        f"ldrd {low}, {high}, {_place(base, offset, False)}",
        Kind.LOAD_DOUBLE,
        first=(STACK,) if base == "sp" else (),
        address=(base,),
        writes=(low, high),
    )


def preload(base: str, offset: int) -> Instruction:
    """pld."""
    return Instruction(f"pld [{base}, #{offset}]", Kind.PRELOAD, address=(base,))


def store(source: str, base: str, offset: int | str = 0, *, size: str = "") -> Instruction:
    """str, or by ``size`` strb, strh."""
    index = (offset.split(",")[0],) if isinstance(offset, str) else ()
    return Instruction(
        f"str{size} {source}, {_place(base, offset, False)}",
        Kind.STORE_PART if size else Kind.STORE_WORD,
        address=(base, *index),
        stored=(source,),
        writes=(STACK,) if base == "sp" else (),
    )


def store_next(source: str, base: str, step: int, *, size: str = "") -> Instruction:
    """A store that moves its base behind itself."""
    return Instruction(
        f"str{size} {source}, [{base}], #{step}",
        Kind.STORE_PART if size else Kind.STORE_WORD,
        address=(base,),
        stored=(source,),
        written_back=(base,),
    )


def multiply(name: str, target: str, left: str, right: str) -> Instruction:
    """smulbb and kin."""
    return Instruction(
        f"{name} {target}, {left}, {right}",
        Kind.MULTIPLY,
        first=(left,),
        second=(right,),
        writes=(target,),
    )


def multiply_add(name: str, target: str, left: str, right: str, addend: str) -> Instruction:
    """smlad, smlabb and kin, smmlar."""
    return Instruction(
        f"{name} {target}, {left}, {right}, {addend}",
        Kind.MULTIPLY_ADD,
        first=(left,),
        second=(right,),
        accumulator=(addend,),
        writes=(target,),
    )


def multiply_long(low: str, high: str, left: str, right: str) -> Instruction:
    """smlal: adds to what the pair holds."""
    return Instruction(
        f"smlal {low}, {high}, {left}, {right}",
        Kind.MULTIPLY_ADD_LONG,
        first=(left,),
        second=(right,),
        accumulator=(low, high),
        writes=(low, high),
    )


def extend16(target: str, source: str, rotation: int = 0) -> Instruction:
    """sxtb16: bytes 0 and 2, or with a rotation by 8 bytes 1 and 3, as halfwords."""
    text = f"sxtb16 {target}, {source}{_rotated(rotation)}"
    return Instruction(text, Kind.EXTEND, second=(source,), writes=(target,))


def extend16_add(target: str, addend: str, source: str, rotation: int = 0) -> Instruction:
    """sxtab16: the halfwords of ``extend16`` plus those of another register."""
    return Instruction(
        f"sxtab16 {target}, {addend}, {source}{_rotated(rotation)}",
        Kind.EXTEND_ADD,
        first=(addend,),
        second=(source,),
        writes=(target,),
    )


def extend_byte(name: str, target: str, source: str, rotation: int = 0) -> Instruction:
    """sxtb or uxtb of the byte that a rotation brings to the bottom."""
    text = f"{name} {target}, {source}{_rotated(rotation)}"
    return Instruction(text, Kind.EXTEND, second=(source,), writes=(target,))


def _rotated(rotation: int) -> str:
    return f", ror #{rotation}" if rotation else ""


def move(target: str, source: str) -> Instruction:
    """mov of a register."""
    return Instruction(f"mov {target}, {source}", Kind.MOVE, second=(source,), writes=(target,))


def add(target: str, left: str, right: str | int) -> Instruction:
    """add of a register or a small constant."""
    if isinstance(right, int):
        return Instruction(
            f"add {target}, {left}, #{right}", Kind.ADD_SUB, first=(left,), writes=(target,)
        )
    return Instruction(
        f"add {target}, {left}, {right}",
        Kind.ADD_SUB,
        first=(left,),
        second=(right,),
        writes=(target,),
    )


def add_shifted(
    target: str, left: str, right: str, shift: str, *, name: str = "add"
) -> Instruction:
    """add (or another operation) of a register that is shifted by a constant, as in "asr #31"."""
    return Instruction(
        f"{name} {target}, {left}, {right}, {shift}",
        Kind.SHIFTED_OPERAND,
        first=(left,),
        second=(right,),
        writes=(target,),
    )


def subtract(target: str, left: str, right: str | int) -> Instruction:
    """sub of a register or a small constant."""
    plain = add(target, left, right)
    return Instruction(
        "sub" + plain.text[3:],
        plain.kind,
        first=plain.first,
        second=plain.second,
        writes=plain.writes,
    )


def shift_right(target: str, source: str, amount: str | int) -> Instruction:
    """asr."""
    text = f"#{amount}" if isinstance(amount, int) else amount
    return Instruction(
        f"asr {target}, {source}, {text}",
        Kind.SHIFT,
        first=(source,),
        second=() if isinstance(amount, int) else (amount,),
        writes=(target,),
    )


def saturate(target: str, source: str, bits: int) -> Instruction:
    """ssat."""
    return Instruction(
        f"ssat {target}, #{bits}, {source}", Kind.SATURATE, first=(source,), writes=(target,)
    )


def insert_byte(target: str, source: str, position: int) -> Instruction:
    """bfi of the lowest byte."""
    return Instruction(
        f"bfi {target}, {source}, #{8 * position}, #8",
        Kind.FIELD_INSERT,
        first=(source,),
        accumulator=(target,),
        writes=(target,),
    )


def pack_halves(target: str, bottom: str, top: str, shift: int = 16) -> Instruction:
    """pkhbt: the bottom half of one register, and of another above it."""
    return Instruction(
        f"pkhbt {target}, {bottom}, {top}, lsl #{shift}",
        Kind.PACK,
        first=(bottom,),
        second=(top,),
        writes=(target,),
    )


def pack_tops(target: str, top: str, bottom: str) -> Instruction:
    """pkhtb: the top half of one register, and below it that of another."""
    return Instruction(
        f"pkhtb {target}, {top}, {bottom}, asr #16",
        Kind.PACK_TOP,
        first=(top,),
        second=(bottom,),
        writes=(target,),
    )


def simd(name: str, target: str, left: str, right: str) -> Instruction:
    """Parallel arithmetic without flags."""
    return Instruction(
        f"{name} {target}, {left}, {right}",
        Kind.SIMD_SATURATE if name.lstrip("u").startswith("q") else Kind.SIMD,
        first=(left,),
        second=(right,),
        writes=(target,),
    )


def compare(left: str, right: str | int) -> Instruction:
    """cmp."""
    text = f"#{right}" if isinstance(right, int) else right
    return Instruction(
        f"cmp {left}, {text}",
        Kind.LOGIC,
        first=(left,),
        second=() if isinstance(right, int) else (right,),
        writes=(FLAGS,),
    )


def subtract_flags(target: str, left: str, right: int) -> Instruction:
    """subs."""
    return Instruction(
        f"subs {target}, {left}, #{right}", Kind.ADD_SUB, first=(left,), writes=(target, FLAGS)
    )
