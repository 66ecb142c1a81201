"""Words for an error message, from what a board noted about a fault before it restarted."""

from __future__ import annotations

import logging

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.device.link.base import Link
from utvm_deploy.device.link.fault import (
    FAULT_BYTES,
    FAULT_SYMBOL,
    describe_fault,
    kept_fault,
    nearest_symbol,
)
from utvm_deploy.project import Image

log = logging.getLogger(__name__)


def take_fault_words(link: Link, image: Image) -> str:
    """What the record says, if it says anything; the record is empty afterwards."""
    address = image.symbols.get(FAULT_SYMBOL)
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
    if fault is None:
        return ""
    return describe_fault(fault, lambda at: nearest_symbol(at, image.symbols))
