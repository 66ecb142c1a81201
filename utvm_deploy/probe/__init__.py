"""Puts images on boards and starts them there."""

from utvm_deploy.probe.fault import FAULT_BYTES, FAULT_SYMBOL, describe_fault
from utvm_deploy.probe.flash import flash_image
from utvm_deploy.probe.links import choose_link, needs_debugger, open_link
from utvm_deploy.probe.running import RunningBoard, start

__all__ = [
    "FAULT_BYTES",
    "FAULT_SYMBOL",
    "RunningBoard",
    "choose_link",
    "describe_fault",
    "flash_image",
    "needs_debugger",
    "open_link",
    "start",
]
