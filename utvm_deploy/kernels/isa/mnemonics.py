"""Instructions from their mnemonic and operands: ``instruction("smlad", "r4", "r10", "r2", "r4")``.

One table says of each mnemonic which class of instruction it is and what each operand does. So a
new instruction is a row of ``_ROWS``. Operands are

- registers and lanes: ``"r4"``, ``"q3"``, ``"q3[2]"``, and ``"r4!"``, which is read and written;
- numbers, which become ``#4``;
- shifts of the operand before them: ``"lsl #2"``;
- lists of registers: ``("r4-r7", "lr")``;
- memory: ``at("r0", 8)``, ``at("r0", "r1")``, ``pre("r0", 4)``, ``post("r0", 4)``, or a ``Slot``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from utvm_deploy.kernels.isa.instructions import FLAGS, STACK, Instruction
from utvm_deploy.targets.contract.timing import AnyKind, Kind, VectorKind

#: The GE flags of parallel addition and subtraction, which SEL reads.
GE = "ge"
#: The flags that VCMP of single precision writes, and VMRS reads.
FP_FLAGS = "fpscr"
#: The predicate of Helium, which VCTP and VPST write.
PREDICATE = "p0"


@dataclass(frozen=True)
class Memory:
    """A place in memory: a base register and an offset, which is a constant or a register."""

    base: str
    offset: int | str = 0
    #: "": the base stays. "!": it moves before the access. "post": it moves after it.
    moves: str = ""

    def __str__(self) -> str:
        offset = f"#{self.offset}" if isinstance(self.offset, int) else self.offset
        if self.moves == "post":
            return f"[{self.base}], {offset}"
        if self.offset == 0 and not self.moves:
            return f"[{self.base}]"
        return f"[{self.base}, {offset}]{self.moves}"


@dataclass(frozen=True)
class Slot:
    """A word of the stack frame; ``offset`` counts bytes from the stack pointer."""

    offset: int

    def word(self, number: int) -> Slot:
        """The word ``number`` words after this one."""
        return Slot(self.offset + 4 * number)


def at(base: str, offset: int | str = 0) -> Memory:
    """[base, offset]; an offset in a register may be shifted, as in ``"r2, lsl #2"``."""
    return Memory(base, offset)


def pre(base: str, offset: int) -> Memory:
    """[base, #offset]!: pre-indexed, the base moves first."""
    return Memory(base, offset, "!")


def post(base: str, offset: int) -> Memory:
    """[base], #offset: post-indexed, the base moves after the access."""
    return Memory(base, offset, "post")


Operand: TypeAlias = "str | int | Memory | Slot | tuple[str, ...]"

#: What an operand is to its instruction, by the letter that the rows below use.
ROLES = {
    "w": "written",
    "f": "read, as the first operand of the timing table",
    "s": "read, as the second operand of the timing table",
    "a": "read, as the accumulator of the timing table",
    "x": "read as the accumulator, and written",
    "d": "the value to store",
    "m": "memory",
    "l": "a list of registers that are written",
    "L": "a list of registers that are read",
    ".": "a constant",
}
# Kind, the roles of the operands, mnemonics. A shift of an operand has no letter. An instruction
# with one operand less, such as ``adds r0, #4``, uses its target as the first source.
_ROWS: tuple[tuple[AnyKind, str, str], ...] = (
    (Kind.ADD_SUB, "wfs", "add adds sub subs"),
    (Kind.LOGIC, "wfs", "and ands orr orrs eor bic rsb rsbs"),
    (Kind.LOGIC, "ws", "mvn"),
    (Kind.LOGIC, "wf", "negs clz"),
    (Kind.MOVE, "ws", "mov movs movw"),
    (Kind.MOVE, "xs", "movt"),
    (Kind.SHIFT, "wfs", "asr asrs lsl lsls lsr lsrs"),
    (Kind.LOGIC, "fs", "cmp tst cmn"),
    (Kind.EXTEND, "ws", "sxtb16 uxtb16 sxtb uxtb sxth uxth"),
    (Kind.EXTEND_ADD, "wfs", "sxtab16 uxtab16 sxtab sxtah"),
    (Kind.FIELD_INSERT, "xf..", "bfi"),
    (Kind.FIELD_EXTRACT, "wf..", "sbfx ubfx"),
    (Kind.PACK, "wfs", "pkhbt"),
    (Kind.PACK_TOP, "wfs", "pkhtb"),
    (Kind.SATURATE, "w.f", "ssat usat ssat16 usat16"),
    (Kind.SIMD, "wfs", "sadd16 ssub16 sadd8 ssub8 uadd8 usub8 uadd16 usub16 shadd16 sel"),
    (
        Kind.SIMD_SATURATE,
        "wfs",
        "qadd qsub qadd16 qsub16 qadd8 qsub8 uqadd8 uqsub8 uqadd16 uqsub16 usad8",
    ),
    (Kind.MULTIPLY, "wfs", "mul muls smulbb smulbt smultb smultt smuad smmul smmulr smulwb smulwt"),
    (
        Kind.MULTIPLY_ADD,
        "wfsa",
        "mla mls smlad smladx smlabb smlabt smlatb smlatt smmla smmlar smmlsr",
    ),
    (Kind.MULTIPLY_LONG, "wwfs", "smull umull"),
    (Kind.MULTIPLY_ADD_LONG, "xxfs", "smlal umlal smlald"),
    (Kind.DIVIDE, "wfs", "udiv sdiv"),
    (Kind.LOAD_WORD, "wm", "ldr"),
    (Kind.LOAD_PART, "wm", "ldrb ldrsb ldrh ldrsh"),
    (Kind.LOAD_DOUBLE, "wwm", "ldrd"),
    (Kind.LOAD_MULTIPLE, "fl", "ldm ldmia"),
    (Kind.STORE_WORD, "dm", "str"),
    (Kind.STORE_PART, "dm", "strb strh"),
    (Kind.STORE_DOUBLE, "ddm", "strd"),
    (Kind.STORE_MULTIPLE, "fL", "stm stmia"),
    (Kind.STORE_MULTIPLE, "L", "push"),
    (Kind.LOAD_MULTIPLE, "l", "pop"),
    (Kind.PRELOAD, "m", "pld"),
    (Kind.BRANCH, "s", "bx"),
    # Helium. Only the timing table of a core with Helium has rows for vectors.
    (Kind.STORE_MULTIPLE, "L", "vpush"),
    (Kind.LOAD_MULTIPLE, "l", "vpop"),
    (VectorKind.VECTOR_LOAD, "wm", "vldrb vldrh vldrw"),
    (VectorKind.VECTOR_STORE, "dm", "vstrb vstrh vstrw"),
    (VectorKind.VECTOR_LOAD_PARTS, "wm", "vld40 vld41 vld42 vld43"),
    (VectorKind.VECTOR_STORE_PARTS, "Lm", "vst40 vst41 vst42 vst43"),
    (VectorKind.VECTOR_SIMPLE, "wfs", "vadd vsub vhadd vand vorr veor vbic vmax vmin vshl vshr"),
    (VectorKind.VECTOR_SIMPLE, "ws", "vdup vneg vabs vmvn vcls vclz"),
    (VectorKind.VECTOR_SIMPLE, "", "vmov"),  # see instruction() for its roles
    (VectorKind.VECTOR_COMPARE, ".fs", "vcmp"),
    (VectorKind.VECTOR_SIMPLE, "wfs", "vpsel"),
    (VectorKind.VECTOR_SIMPLE, "wxs", "vddup vidup"),
    (VectorKind.VECTOR_SIMPLE, "wfs", "vqadd vqsub"),
    (VectorKind.VECTOR_SIMPLE, "ws", "vmovlb vmovlt"),
    (VectorKind.VECTOR_SHIFT, "wfs", "vrshl vrshr vqshl"),
    (VectorKind.VECTOR_NARROW, "xs", "vmovnb vmovnt vqmovnb vqmovnt"),
    (VectorKind.VECTOR_MULTIPLY, "wfs", "vmul vmulh vqrdmulh vqdmulh vmullb vmullt"),
    (VectorKind.VECTOR_MULTIPLY, "xfs", "vmla vmlas"),
    (VectorKind.VECTOR_DOT, "xfs", "vmladava vmlava"),
    (VectorKind.VECTOR_DOT, "xxfs", "vmlaldava vmlalva vmlsldava"),
    (VectorKind.VECTOR_DOT, "wfs", "vmladav vmlav"),
    (VectorKind.VECTOR_DOT, "wwfs", "vmlaldav vmlalv"),
    (VectorKind.VECTOR_FP_FUSED, "xfs", "vfma"),
    (VectorKind.VECTOR_PREDICATE, "f", "vctp"),
)
# Single precision, on the registers s0 to s31. Their names are also those of vectors: the operands
# decide (``_is_single``).
_SINGLE_ROWS: tuple[tuple[AnyKind, str, str], ...] = (
    (Kind.FP_ADD, "wfs", "vadd vsub"),
    (Kind.FP_ADD, "wfs", "vmaxnm vminnm"),
    (Kind.FP_ADD, "fs", "vcmp"),
    (Kind.FP_ADD, "wf.", "vcvt"),
    (Kind.FP_MULTIPLY, "wfs", "vmul"),
    (Kind.FP_CHAINED, "xfs", "vmla"),
    (Kind.FP_FUSED, "xfs", "vfma"),
    (Kind.FP_MOVE, "ws", "vmov"),
    (Kind.FP_LOAD, "wm", "vldr"),
    (Kind.FP_STORE, "dm", "vstr"),
    (Kind.FP_LOAD_MULTIPLE, "fl", "vldm vldmia"),
    (Kind.FP_STORE_MULTIPLE, "fL", "vstm vstmia"),
)
# Those that saturate or halve leave GE as it is.
_GE_SETTERS = "sadd8 sadd16 ssub8 ssub16 uadd8 uadd16 usub8 usub16"
_FLAG_SETTERS = "adds subs ands orrs rsbs negs movs asrs lsls lsrs muls cmp cmn tst"
_WRITES = {
    **{name: (FLAGS,) for name in _FLAG_SETTERS.split()},
    **{name: (GE,) for name in _GE_SETTERS.split()},
    **{name: (PREDICATE,) for name in ("vctp", "vcmp")},
}
_READS = {"sel": (GE,), "vpsel": (PREDICATE,)}
#: A rotation or shift belongs to these: they are in their own class with it, too.
_WITH_SHIFT = frozenset({Kind.EXTEND, Kind.EXTEND_ADD, Kind.PACK, Kind.PACK_TOP})
_SINGLE = re.compile(r"s\d+(-s?\d+)?$")
_LANE = re.compile(r"(q\d)\[\d\]$")
_SHIFT = re.compile(r"(lsl|lsr|asr|ror) ")
_TABLE = {name: (kind, roles) for kind, roles, names in _ROWS for name in names.split()}
_SINGLES = {name: (kind, roles) for kind, roles, names in _SINGLE_ROWS for name in names.split()}


@lru_cache(maxsize=65536)
def instruction(mnemonic: str, *operands: Operand) -> Instruction:
    """One instruction; a mnemonic of Helium has its type after it, as in ``vadd.i32``.

    Raises ValueError for an unknown mnemonic or the wrong number of operands.
    """
    name = mnemonic.partition(".")[0]
    is_single = name in _SINGLES and _is_single(operands)
    kind, roles = _SINGLES[name] if is_single else _TABLE.get(name, (None, ""))
    if kind is None:
        raise ValueError(f"{mnemonic} has no row in the table of mnemonics")
    if is_single and name == "vmov" and str(operands[-1]).startswith("r"):
        kind, roles = Kind.FP_FROM_CORE, "wf"
    elif is_single and name == "vcvt":
        roles = roles[: len(operands)]  # the last one is that of numbers with a fraction
    elif is_single and name == "vmov" and str(operands[0]).startswith("r"):
        kind, roles = Kind.FP_TO_CORE, "wf"
    plain = [one for one in operands if not (isinstance(one, str) and _SHIFT.match(one))]
    if len(plain) < len(operands) and kind not in _WITH_SHIFT:
        kind = Kind.SHIFTED_OPERAND
    if name == "vmov" and not is_single:
        lanes = sum(isinstance(one, str) and "[" in one for one in operands)
        if lanes:
            kind = VectorKind.VECTOR_FROM_CORE
        elif isinstance(plain[-1], int):
            kind = VectorKind.VECTOR_CONSTANT
        roles = ("x" * lanes or "w") + "s" * (len(plain) - max(lanes, 1))
    elif len(plain) == 2 and roles == "wfs":
        plain.insert(0, plain[0])  # adds r0, #4
    if len(plain) != len(roles):
        wanted = ", ".join(ROLES[role] for role in roles)
        raise ValueError(
            f"{mnemonic} takes {len(roles)} operands, not {len(plain)}; they are: {wanted}"
        )
    parts = _Parts()
    for role, one in zip(roles, plain, strict=True):
        parts.take(role, one)
    parts.writes += (FP_FLAGS,) if is_single and name == "vcmp" else _WRITES.get(name, ())
    parts.second += _READS.get(name, ())
    return parts.made(f"{mnemonic} {', '.join(map(_text, operands))}", kind)


def clear_pair(first: int) -> Instruction:
    """VMOV of r12, which must be 0, to two registers: ``first``, which is even, and the next."""
    written = (f"s{first}", f"s{first + 1}")
    return Instruction(f"vmov d{first // 2}, r12, r12", Kind.FP_PAIR, ("r12",), writes=written)


#: VMRS: the flags of VCMP on singles become those of conditions.
FLAGS_OF_SINGLES = Instruction(
    "vmrs APSR_nzcv, FPSCR", Kind.FP_STATUS, (FP_FLAGS,), writes=(FLAGS,)
)


def _is_single(operands: tuple[Operand, ...]) -> bool:
    """Whether the operands are registers of single precision."""
    named = [one for o in operands for one in (o if isinstance(o, tuple) else (o,))]
    return any(isinstance(one, str) and _SINGLE.match(one) is not None for one in named)


class _Parts:
    """The fields of an instruction, filled operand by operand."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.second: list[str] = []
        self.accumulator: list[str] = []
        self.address: list[str] = []
        self.stored: list[str] = []
        self.writes: list[str] = []
        self.written_back: list[str] = []
        self.bank: tuple[str, int] | None = None
        self.loads_slot = False

    def take(self, letter: str, operand: Operand) -> None:
        """Add what an operand reads and writes."""
        if letter == "m":
            self._take_memory(operand)
            return
        for register in registers_of(operand):
            if letter in "wxl" or register.endswith("!"):
                self.writes.append(register.rstrip("!"))
            fields = {
                "f": self.first, "s": self.second, "a": self.accumulator, "x": self.accumulator,
                "d": self.stored, "L": self.stored,
            }  # fmt: skip
            if letter in fields:
                fields[letter].append(register.rstrip("!"))

    def _take_memory(self, operand: Operand) -> None:
        if isinstance(operand, Slot):
            operand = Memory("sp", operand.offset)
        if not isinstance(operand, Memory):
            raise ValueError(f"{operand} is not a place in memory: write at(base, offset)")
        self.address.append(operand.base)
        if isinstance(operand.offset, str):
            self.address.append(operand.offset.split(",")[0])
        elif operand.moves == "post":
            self.bank = operand.base, 0
        else:
            self.bank = operand.base, operand.offset
        if operand.moves:
            self.written_back.append(operand.base)
        self.loads_slot = operand.base == "sp"

    def made(self, text: str, kind: AnyKind) -> Instruction:
        """The instruction."""
        is_store = bool(self.stored)
        if self.loads_slot:
            # A slot that is loaded was stored by the same code: the order of the two counts.
            (self.writes if is_store else self.first).append(STACK)
        return Instruction(
            text, kind, tuple(self.first), tuple(self.second), tuple(self.accumulator),
            tuple(self.address), tuple(self.stored), tuple(self.writes),
            tuple(self.written_back), None if is_store else self.bank,
        )  # fmt: skip


def registers_of(operand: Operand) -> list[str]:
    """The registers of an operand; of a range, such as r4-r7, every one."""
    if isinstance(operand, int | Memory | Slot):
        return []
    if isinstance(operand, str):
        lane = _LANE.match(operand)
        return [lane[1] if lane else operand] if not operand.startswith("#") else []
    found = []
    for one in operand:
        start, _, end = one.partition("-")
        if end:
            found += [f"{start[0]}{n}" for n in range(int(start[1:]), int(end[1:]) + 1)]
        else:
            found.append(start)
    return found


def _text(operand: Operand) -> str:
    if isinstance(operand, int):
        return f"#{operand}"
    if isinstance(operand, Slot):
        return str(Memory("sp", operand.offset))
    if isinstance(operand, tuple):
        return f"{{{', '.join(operand)}}}"
    return str(operand)
