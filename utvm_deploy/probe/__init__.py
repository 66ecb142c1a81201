"""Puts images on boards and starts them there."""

from utvm_deploy.probe.flash import flash_image
from utvm_deploy.probe.running import RunningBoard, start

__all__ = ["RunningBoard", "flash_image", "start"]
