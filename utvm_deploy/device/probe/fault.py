"""The record that a bare-metal board writes to RAM when it faults.

The template's start-up code fills ``struct fault_record utvm_fault`` and resets; the record
survives the reset. The host then reads it over the link, at its symbol's address. link.fault
decodes its registers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from utvm_deploy.device.link import fault

FAULT_SYMBOL = "utvm_fault"
FAULT_BYTES = 32
_FORMAT = "<8I"
_MAGIC = 0x544C4146  # port.h's FAULT_MAGIC


def describe_fault(record: bytes, symbols: Mapping[str, int]) -> str | None:
    """One phrase for a fault record, with the function it happened in; None if there is none."""
    magic, *registers = struct.unpack(_FORMAT, record)
    if magic != _MAGIC:
        return None
    return fault.describe_fault(
        fault.FaultRegisters(*registers), lambda at: fault.nearest_symbol(at, symbols)
    )
