"""The fault records of x86 with 32 bits: the place, and no cause."""

from __future__ import annotations

from utvm_deploy.targets.contract.fault import FaultWords

FAULTS = FaultWords(("pc", "sp"))
