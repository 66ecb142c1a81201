"""The fault records of WebAssembly: the trap that stopped a call."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.contract.fault import Fault, FaultWords

#: Number in a record -> what it says; those that wasmtime has, by its names.
TRAPS: Mapping[str, tuple[int, str]] = {
    "MEMORY_OUT_OF_BOUNDS": (1, "access outside its memory"),
    "STACK_OVERFLOW": (2, "stack overflow"),
    "TABLE_OUT_OF_BOUNDS": (3, "call through a pointer to no function"),
    "INDIRECT_CALL_TO_NULL": (3, "call through a pointer to no function"),
    "BAD_SIGNATURE": (4, "call of a function with other parameters than it has"),
    "INTEGER_DIVISION_BY_ZERO": (5, "division by zero"),
    "INTEGER_OVERFLOW": (6, "integer overflow"),
    "BAD_CONVERSION_TO_INTEGER": (6, "integer overflow"),
    "UNREACHABLE": (7, "unreachable code"),
    "HEAP_MISALIGNED": (8, "unaligned atomic access"),
}
_PHRASES = dict(TRAPS.values())


def _meaning(words: Mapping[str, int]) -> Fault:
    return Fault(
        _PHRASES.get(words["trap"], "cause unknown"),
        address=words["address"] or None,
        pc=words["pc"] or None,
    )


FAULTS = FaultWords(("trap", "pc", "address"), _meaning)
