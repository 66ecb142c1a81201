"""Fault records: from the bytes of a reply, or of a board's RAM, to an error in words.

What the words of a record mean is known to the target whose tag it has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from utvm_deploy.base.errors import DeviceError, DeviceFault, StoppedTask, TaskTimeout
from utvm_deploy.device.link.messages import FAULT, MAX_FAULT_WORDS, Status
from utvm_deploy.targets.contract.fault import Fault
from utvm_deploy.targets.table import TARGETS

#: Where a board keeps the record of a fault that ended the runtime: a magic word, then the record.
FAULT_SYMBOL = "utvm_fault"
_MAGIC = b"FLT4"
FAULT_BYTES = len(_MAGIC) + FAULT.size_bytes + 4 * MAX_FAULT_WORDS


def read_fault(record: bytes) -> Fault:
    """What a record says; DeviceError if it has another size than it says."""
    try:
        facts, words = FAULT.unpack(record), record[FAULT.size_bytes :]
    except struct.error:
        facts, words = {}, record
    count = facts.get("count", -1)
    if count > MAX_FAULT_WORDS or len(words) != 4 * count:
        raise DeviceError(
            f"the device sent a fault record of {len(record)} bytes, which does not fit its own "
            f"count or {MAX_FAULT_WORDS} words; reset the device, or build its image again"
        )
    for target in TARGETS.values():
        if target.tag == facts["architecture"]:
            return target.faults.decode(struct.unpack(f"<{count}I", words))
    return Fault(
        f"its record is of architecture {facts['architecture']}, which this version does not "
        "know; update utvm_deploy"
    )


def kept_fault(memory: bytes) -> Fault | None:
    """What the memory at ``FAULT_SYMBOL`` says; None if no record is kept there."""
    record = memory[len(_MAGIC) :]
    if not memory.startswith(_MAGIC):
        return None
    if len(record) >= FAULT.size_bytes:
        record = record[: FAULT.size_bytes + 4 * FAULT.unpack(record)["count"]]
    return read_fault(record)


def describe_fault(fault: Fault, place_of: Callable[[int], str]) -> str:
    """``bus fault: data access to where nothing is at address 0xf0000000, in peek+2 (k.c:7)``.

    ``place_of`` names the code at an address.
    """
    words = fault.phrase
    if fault.address is not None:
        words += f" at address {fault.address:#010x}"
    if fault.is_astray and fault.called_from is not None:
        return f"{words}, called from {place_of(fault.called_from)}"
    return words if fault.pc is None else f"{words}, in {place_of(fault.pc)}"


def stopped_task(
    outcome: Mapping[str, int], record: bytes, place_of: Callable[[int], str]
) -> StoppedTask:
    """The error for a reply with status FAULT or TIMEOUT; ``place_of`` names code at an address."""
    return stopped_error(outcome, read_fault(record), place_of)


def stopped_error(
    outcome: Mapping[str, int], fault: Fault, place_of: Callable[[int], str]
) -> StoppedTask:
    """The error for that outcome, where the fault is known already."""
    kind: type[StoppedTask] = DeviceFault
    cause, address = describe_fault(fault, place_of), fault.address
    if outcome["status"] == Status.TIMEOUT:
        kind, address = TaskTimeout, None
        cause = "" if fault.pc is None else f"it was in {place_of(fault.pc)}"
    return kind(
        cause,
        status=outcome["status"],
        index=outcome["index"],
        detail=outcome["detail"],
        pc=fault.pc,
        lr=fault.called_from,
        address=address,
    )


def nearest_symbol(address: int, symbols: Mapping[str, int], code_bit: int) -> str:
    """``function+offset (0x...)`` by the nearest symbol below; the number alone without one."""
    places = ((start & ~code_bit, name) for name, start in symbols.items())
    below = [place for place in places if place[0] <= address]
    if not below:
        return f"{address:#010x}"
    start, name = max(below)
    return f"{name}+{address - start} ({address:#010x})"
