"""The fault records of a process: the signal that stopped a task."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.contract.fault import Fault, FaultWords

#: Number of a signal, as Linux counts them -> what it says; a process sends its own numbers.
SIGNALS: Mapping[int, str] = {
    4: "illegal instruction",
    5: "trace trap",
    6: "abort",
    7: "bus error",
    8: "arithmetic error, as by a division by zero",
    11: "segmentation fault",
}


def _meaning(words: Mapping[str, int]) -> Fault:
    number = words["signal"]
    return Fault(
        SIGNALS.get(number, f"signal {number}") if number else "cause unknown",
        address=words["address"] if number else None,
        pc=words["pc"] or None,
        called_from=words["lr"] or None,
    )


FAULTS = FaultWords(("signal", "pc", "lr", "address"), _meaning)
