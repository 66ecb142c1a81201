"""Puts images on boards and starts them there."""

from utvm_deploy.probe.fault import FAULT_BYTES, FAULT_SYMBOL, describe_fault
from utvm_deploy.probe.flash import flash_image
from utvm_deploy.probe.running import RunningBoard, start

__all__ = [
    "FAULT_BYTES",
    "FAULT_SYMBOL",
    "RunningBoard",
    "describe_fault",
    "flash_image",
    "start",
]
