"""The form of a core's instruction timing table: the meaning of a row, and what follows from rows.

The tables themselves are ``targets/*/timing*.py``: data, each row with its source. They have two
readers: the cycle model (its C tables are generated from them) and the generators of assembly
kernels, which order instructions by the same rules. Nothing here knows an emulator.

An instruction issues in cycle t, and gives a result of kind R. An instruction with need N can use
the result if it issues in cycle t + latency[R, N] or later. 0 means in the same cycle, as the
younger of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

#: What a row says where no published measurement is known.
ASSUMED = "assumed"


class Kind(IntEnum):
    """Classes of instructions that a decoder tells apart; the C decoder has the same names."""

    UNKNOWN = 0
    NOP = 1
    IT = 2
    ADD_SUB = 3  # add, sub with a register or an unshifted constant; adr
    MOVE = 4  # mov of a register or unshifted constant; movw
    MOVE_TOP = 5
    SHIFT = 6  # lsl, lsr, asr, ror; by constant or register
    LOGIC = 7  # every other data-processing instruction with a plain second operand
    SHIFTED_OPERAND = 8  # any of them with a shifted register
    SHIFTED_CONSTANT = 9  # any of them with an 8-bit constant shifted within the word
    EXTEND = 10  # sxtb, uxth, sxtb16 ...
    EXTEND_ADD = 11  # sxtab, uxtab16 ...
    FIELD_EXTRACT = 12  # sbfx, ubfx
    FIELD_INSERT = 13  # bfi, bfc
    REVERSE = 14  # rev, rev16, revsh, rbit
    PACK = 15  # pkhbt
    PACK_TOP = 16  # pkhtb
    SATURATE = 17  # ssat, usat16, qdadd ...: shifted or doubled, then limited
    SIMD = 18  # parallel add and subtract, sel, clz
    MULTIPLY = 19  # no accumulator
    MULTIPLY_ADD = 20  # with accumulator
    DIVIDE = 21
    LOAD_WORD = 22
    LOAD_PART = 23  # byte or halfword
    LOAD_DOUBLE = 24
    LOAD_MULTIPLE = 25
    STORE_WORD = 26
    STORE_PART = 27
    STORE_DOUBLE = 28
    STORE_MULTIPLE = 29
    EXCLUSIVE = 30
    PRELOAD = 31
    BRANCH = 32
    BRANCH_CONDITIONAL = 33
    COMPARE_BRANCH = 34
    CALL = 35
    BRANCH_INDIRECT = 36
    TABLE_BRANCH = 37
    BARRIER = 38
    SYSTEM = 39
    FP_ADD = 40  # add, subtract, convert, round, compare, select
    FP_MULTIPLY = 41
    FP_FUSED = 42  # vfma
    FP_CHAINED = 43  # vmla
    FP_DIVIDE = 44
    FP_ROOT = 45
    FP_CONSTANT = 46
    FP_MOVE = 47  # register to register; abs, neg
    FP_TO_CORE = 48
    FP_FROM_CORE = 49
    FP_PAIR = 50  # two registers between the files
    FP_LOAD = 51
    FP_LOAD_DOUBLE = 52
    FP_LOAD_MULTIPLE = 53
    FP_STORE = 54
    FP_STORE_DOUBLE = 55
    FP_STORE_MULTIPLE = 56
    FP_STATUS = 57
    FP64_ADD = 58
    FP64_MULTIPLY = 59
    FP64_FUSED = 60
    FP64_DIVIDE = 61
    MULTIPLY_LONG = 62  # a product of two words, no accumulator
    MULTIPLY_ADD_LONG = 63
    SIMD_SATURATE = 64  # qadd, uqsub8 ...; usad8


class VectorKind(IntEnum):
    """Classes that Armv8.1-M added: low-overhead loops, and vectors (Helium)."""

    LOOP_START = 65  # dls, wls, dlstp, wlstp
    LOOP_END = 66  # le, letp
    CONDITIONAL_SELECT = 67  # csel, csinc ...
    LONG_SHIFT = 68  # of two core registers, and shifts of one that saturate
    VECTOR_LOAD = 69
    VECTOR_LOAD_PARTS = 70  # vld20 ...: a part of several vectors
    VECTOR_GATHER = 71
    VECTOR_STORE = 72
    VECTOR_STORE_PARTS = 73
    VECTOR_SCATTER = 74
    VECTOR_SIMPLE = 75  # add, subtract, logic, maximum, widening, shift that does not round
    VECTOR_SHIFT = 76  # shifts that round or saturate; addition with carry
    VECTOR_NARROW = 77
    VECTOR_ACROSS_8 = 78  # maximum or minimum of a vector of bytes, to a core register
    VECTOR_ACROSS_16 = 79  # of halfwords; vabav
    VECTOR_ACROSS_32 = 80
    VECTOR_CONSTANT = 81
    VECTOR_COMPARE = 82
    VECTOR_PREDICATE = 83  # vctp, vpst, vpnot
    VECTOR_MULTIPLY = 84
    VECTOR_DOT = 85  # products or elements summed up to a core register
    VECTOR_FP_ADD = 86
    VECTOR_FP_ADD_CORE = 87  # of a core register
    VECTOR_FP_SIMPLE = 88  # maximum, minimum, absolute value, negation
    VECTOR_FP_MULTIPLY = 89
    VECTOR_FP_FUSED = 90
    VECTOR_CONVERT = 91
    VECTOR_FROM_CORE = 92  # from core registers to lanes
    VECTOR_TO_CORE = 93


AnyKind: TypeAlias = Kind | VectorKind
#: All that the plugin's decoders tell apart.
ALL_KINDS: tuple[AnyKind, ...] = (*Kind, *VectorKind)


class Result(IntEnum):
    """How a result comes about, which decides when whom it reaches."""

    NONE = 0
    EARLY = 1  # first ALU
    LATE = 2  # second ALU, one cycle later
    REVERSED = 3  # first ALU, but beyond the reach of addresses
    LOADED = 4
    LOADED_PART = 5
    PRODUCT = 6
    QUOTIENT = 7
    ADDRESS = 8  # written back by pre- and post-indexing
    FP_SUM = 9
    FP_FUSED = 10
    FP_CHAINED = 11
    FP_LOADED = 12
    FP_MOVED = 13
    FP_TO_CORE = 14
    FP_LONG = 15
    SATURATED = 16
    # Of vectors, by their cycles, as the pipes of vectors have no forwarding but into stores.
    VECTOR_1 = 17
    VECTOR_2 = 18
    VECTOR_3 = 19
    VECTOR_4 = 20


class Need(IntEnum):
    """How an operand is consumed."""

    LATE = 0  # by the second ALU: the ordinary case
    EARLY = 1  # by the first ALU: shifted operands, bit fields
    ADDRESS = 2
    FACTOR = 3  # of a multiplication
    ACCUMULATOR = 4
    STORED = 5
    FP_TERM = 6
    FP_FACTOR = 7
    FP_ACCUMULATOR = 8
    FP_STORED = 9
    # By the second ALU, in an instruction whose other operand the first ALU consumes.
    BESIDE_EARLY = 10
    VECTOR_ADDRESS = 11  # addresses or offsets in a vector
    VECTOR_STORED = 12


class Unit(IntEnum):
    """What an issued instruction occupies for its cycle.

    Where a table has ``busy_cycles``, LOAD, SIMD and MAC are the pipes of vectors and floating
    point: for loads and stores, for integers, and for multiplication and floating point.
    """

    ALU = 0
    SHIFTER = 1  # the first ALU's
    SIMD = 2
    MAC = 3
    LOAD = 4
    STORE = 5
    BRANCH = 6
    FPU = 7


class Slot(IntEnum):
    """Where in an issued pair an instruction can stand."""

    EITHER = 0
    OLDER = 1
    ALONE = 2


@dataclass(frozen=True)
class Row:
    """The timing of one class of instructions."""

    kind: AnyKind
    units: tuple[Unit, ...]
    source: str
    slot: Slot = Slot.EITHER
    # Cycles until the next instruction can issue, beyond pairing.
    cycles: int = 1
    # Cycles until its unit takes another instruction. Other units work meanwhile. 0: the core holds
    # units for the cycle of issue alone. Of several units it takes the one that is free first.
    busy_cycles: int = 0
    # Registers moved in each cycle, which then comes on top of ``cycles``.
    registers_per_cycle: int = 0
    # Cycles instead of ``cycles`` when the instruction before was of a kind in ``pipelined_after``.
    pipelined_cycles: int = 0
    pipelined_after: tuple[Kind, ...] = ()
    result: Result = Result.LATE
    # A result that comes from the first ALU when the sources are ready there in time.
    # Slot.EITHER says that it needs the shifter there: the older instruction must not occupy it.
    early: Slot | None = None  # in which slot it can; None: never
    first: Need = Need.LATE  # Rn, or the shifted register of a shift
    second: Need = Need.LATE  # Rm
    accumulator: Need = Need.ACCUMULATOR  # Ra, or Rd where it is read
    # Address registers always need to be ready for Need.ADDRESS.
    stored: Need = Need.STORED


@dataclass(frozen=True)
class Latency:
    """One cell of the table result x need."""

    result: Result
    need: Need
    cycles: int
    source: str


@dataclass(frozen=True)
class Exclusion:
    """Two groups that do not issue together."""

    older: tuple[AnyKind, ...]
    younger: tuple[AnyKind, ...]
    source: str
    # Holds with the two changed round as well.
    both_ways: bool = False


@dataclass(frozen=True)
class Timing:
    """Everything the model knows about one core's pipeline. Defaults: one instruction a cycle."""

    core: str
    rows: tuple[Row, ...]
    latencies: tuple[Latency, ...] = ()  # else every result is there in the next cycle
    width: int = 1  # instructions issued in a cycle at most
    capacity: Mapping[Unit, int] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    # Exclusions added for the pessimistic figure.
    pessimistic: tuple[Exclusion, ...] = ()
    # Cycles lost by a mispredicted branch, and when its flags were set early enough before it.
    mispredict_cycles: int = 0
    mispredict_early_cycles: int = 0
    flags_early_cycles: int = 0  # that much earlier
    predicts_branches: bool = False
    taken_branch_cycles: int = 0  # lost by every taken branch
    # Two words in the same bank (even or odd word address) cannot be loaded in one cycle.
    load_banks: int = 1
    # Rich model only: what an unaligned access loses, and the store buffer.
    unaligned_load_cycles: int = 0
    store_buffer_entries: int = 0
    partial_store_cycles: int = 0  # an entry's time when it is not one whole aligned word
    sources: Mapping[str, str] = field(default_factory=dict)  # of the plain numbers
    # Lost by every jump: what is taken without a condition. None: as by taken branches.
    jump_cycles: int | None = None
    # Lost besides by both if the instruction that they lead to is in two words of memory.
    straddling_target_cycles: int = 0
    # Lost by every load and store of two words of memory, in all figures.
    split_access_cycles: int = 0
    # Products of int8 that kernels get from one multiplication, or in a cycle.
    products: int = 1
    # Bytes that a load or store moves in a cycle.
    access_bytes: int = 4
    # Two instructions of two bytes pair if one of them adds a constant, moves, or extends. Units
    # and exclusions do not count then.
    narrow_pairs: bool = False
    # No instruction writes its result before those that came earlier.
    results_in_order: bool = False

    def row(self, kind: AnyKind) -> Row:
        """The row of a class; every table has those of ``Kind``.

        Where it has none of ``VectorKind``, lanes move as registers do, and nothing else occurs.
        """
        like = {
            VectorKind.VECTOR_FROM_CORE: Kind.FP_FROM_CORE,
            VectorKind.VECTOR_TO_CORE: Kind.FP_TO_CORE,
        }
        if kind not in self._by_kind:
            kind = like.get(VectorKind(kind), Kind.UNKNOWN)
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[AnyKind, Row]:
        return {row.kind: row for row in self.rows}

    def latency(self, result: Result, need: Need) -> int:
        """Cycles from a producer's issue to the earliest consumer's; 1 where no cell says more."""
        for cell in self.latencies:
            if cell.result == result and cell.need == need:
                return cell.cycles
        return 1

    def can_pair(self, older: AnyKind, younger: AnyKind, *, pessimistic: bool = False) -> bool:
        """Whether the two can issue in one cycle, their registers permitting."""
        if self.width < 2 or self.narrow_pairs:  # a kind does not say its size
            return False
        first, second = self.row(older), self.row(younger)
        if first.slot == Slot.ALONE or second.slot != Slot.EITHER:
            return False
        for unit, capacity in self.capacity.items():
            if first.units.count(unit) + second.units.count(unit) > capacity:
                return False
        rules = self.exclusions + (self.pessimistic if pessimistic else ())
        return not any(
            (older in rule.older and younger in rule.younger)
            or (rule.both_ways and older in rule.younger and younger in rule.older)
            for rule in rules
        )
