"""Makes an error of a reply to EXECUTE which says that a task did not end by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from utvm_deploy.base.errors import DeviceFault, StoppedTask, TaskTimeout
from utvm_deploy.device.link.fault import FaultRegisters, describe_fault, fault_address
from utvm_deploy.device.link.messages import FAULT, FaultKind, Status

# Number of a signal, as Linux counts them -> what it says; a process sends its own numbers.
SIGNALS: Mapping[int, str] = {
    4: "illegal instruction",
    5: "trace trap",
    6: "abort",
    7: "bus error",
    8: "arithmetic error, as by a division by zero",
    11: "segmentation fault",
}


def stopped_task(
    outcome: Mapping[str, int], record: bytes, place_of: Callable[[int], str]
) -> StoppedTask:
    """The error for a reply with status FAULT or TIMEOUT; ``place_of`` names code at an address."""
    facts = FAULT.unpack(record)
    is_signal = facts["kind"] == FaultKind.SIGNAL
    names = ("exception", "pc", "lr", "cfsr", "hfsr", "mmfar", "bfar")
    registers = FaultRegisters(**{name: facts[name] for name in names})
    kind: type[StoppedTask]
    if outcome["status"] == Status.TIMEOUT:
        kind, address = TaskTimeout, None
        cause = f"it was in {place_of(registers.pc)}" if registers.pc else ""
    elif is_signal:
        kind, address = DeviceFault, registers.mmfar
        cause = SIGNALS.get(registers.exception, f"signal {registers.exception}")
        cause += f" at address {address:#010x}"
        cause += f", in {place_of(registers.pc)}" if registers.pc else ""
    else:
        kind, address = DeviceFault, fault_address(registers)
        cause = describe_fault(registers, place_of)
    return kind(
        cause,
        status=outcome["status"],
        index=outcome["index"],
        detail=outcome["detail"],
        pc=registers.pc or None,
        lr=registers.lr or None,
        address=address,
    )
