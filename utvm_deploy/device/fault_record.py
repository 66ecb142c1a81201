"""Words for an error message, from what a board noted about a fault before it restarted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.device.link.base import Link
from utvm_deploy.device.link.fault import FAULT_BYTES, describe_fault, kept_fault

log = logging.getLogger(__name__)


def take_fault_words(link: Link, address: int | None, place_of: Callable[[int], str]) -> str:
    """What the record at ``FAULT_SYMBOL`` says; "" if it says nothing. It is empty afterwards."""
    if address is None:
        return ""
    try:
        link.hello()
        memory = link.read(address, FAULT_BYTES)
        # The next restart may have another reason.
        link.write(address, bytes(FAULT_BYTES))
        fault = kept_fault(memory)
    except UtvmError as error:
        log.debug("no fault record: %s", error)
        return ""
    return "" if fault is None else describe_fault(fault, place_of)
