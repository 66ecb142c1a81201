"""The fault records of a RISC-V core: what its trap handler found in mcause, mtval and registers.

The causes are those of the privileged specification (20211203, table 3.6).
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.contract.fault import Fault, FaultWords

#: Exception code of mcause -> what it says.
CAUSES: Mapping[int, str] = {
    0: "instruction address misaligned",
    1: "instruction access fault: instruction fetch from a forbidden address",
    2: "illegal instruction",
    3: "breakpoint",
    4: "load address misaligned",
    5: "load access fault: data access to a forbidden address",
    6: "store address misaligned",
    7: "store access fault: data access to a forbidden address",
    8: "environment call from user mode",
    9: "environment call from supervisor mode",
    11: "environment call from machine mode",
    12: "instruction page fault",
    13: "load page fault",
    15: "store page fault",
}
_INTERRUPT = 1 << 31
_ILLEGAL = 2
_NO_VECTORS = (
    "this core has no vectors (Zve32x), or they are off; take an emulator that has them (QEMU: "
    "-cpu with v=on), or a board file whose core has none"
)
# Of these, the program counter is where no code is.
_FETCH = (0, 1, 12)
_ACCESS = (5, 7)
# What a debugger's watchpoint behind the stack is.
_WATCHED = 3
# Those whose mtval is an address that was accessed or jumped to.
_WITH_ADDRESS = (0, 1, 4, 5, 6, 7, 12, 13, 15)


def _is_vector(instruction: int) -> bool:
    """Whether it is one of vectors (the V extension 1.0, sections 3, 5.3 and 7.3)."""
    opcode, width, csr = instruction & 0x7F, instruction >> 12 & 7, instruction >> 20
    if opcode == 0x73:
        return csr in (0x008, 0x009, 0x00A, 0x00F, 0xC20, 0xC21, 0xC22)
    return opcode == 0x57 or (opcode in (0x07, 0x27) and width in (0, 5, 6, 7))


def _meaning(words: Mapping[str, int]) -> Fault:
    cause = words["mcause"]
    phrase = CAUSES.get(cause, f"exception {cause}")
    if cause & _INTERRUPT:
        phrase = f"interrupt {cause - _INTERRUPT}"
    elif cause == _ILLEGAL and _is_vector(words["mtval"]):
        phrase = f"{phrase}: {_NO_VECTORS}"
    # A frame that does not fit begins below the stack.
    elif cause in (*_ACCESS, _WATCHED) and words["sp"] < words["stack"]:
        phrase = f"{phrase.split(':')[0]}: the stack overflowed"
    return Fault(
        phrase,
        address=words["mtval"] if cause in _WITH_ADDRESS else None,
        pc=words["pc"] or None,
        called_from=words["ra"] or None,
        is_astray=cause in _FETCH,
    )


#: ``pc`` is mepc; ``stack`` is where the stack of what was stopped ends.
FAULTS = FaultWords(("mcause", "pc", "ra", "sp", "mtval", "stack"), _meaning)
