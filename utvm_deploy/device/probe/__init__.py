"""Puts images on boards and starts them there."""

from utvm_deploy.device.probe.detect import Connected, check_place, connected_boards
from utvm_deploy.device.probe.flash import flash_image
from utvm_deploy.device.probe.launcher import Launcher, LocalLauncher, PlaceOf, StartedBoard
from utvm_deploy.device.probe.links import (
    check_link,
    choose_link,
    needs_debugger,
    needs_line,
    open_link,
)
from utvm_deploy.device.probe.ready import check_programmer, check_ready
from utvm_deploy.device.probe.running import RunningBoard, start

__all__ = [
    "Connected",
    "Launcher",
    "LocalLauncher",
    "PlaceOf",
    "RunningBoard",
    "StartedBoard",
    "check_link",
    "check_place",
    "check_programmer",
    "check_ready",
    "choose_link",
    "connected_boards",
    "flash_image",
    "needs_debugger",
    "needs_line",
    "open_link",
    "start",
]
