"""Debug probes on this computer's USB, and who may open them: what Linux's sysfs and udev say.

Elsewhere there is no sysfs; then nothing is known but serial ports (detect.py).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.boards.facts import UsbId
from utvm_deploy.device.link.stream import serial_ports

SYSFS = Path("/sys/bus/usb/devices")
NODES = Path("/dev/bus/usb")
RULES = (
    Path("/etc/udev/rules.d"),
    Path("/run/udev/rules.d"),
    Path("/usr/lib/udev/rules.d"),
    Path("/lib/udev/rules.d"),
)


@dataclass(frozen=True)
class UsbDevice:
    """A device that is plugged in."""

    usb: str  # vendor and product, as lsusb prints them
    serial: str
    node: Path  # what programs open


def usb_devices(wanted: Sequence[UsbId]) -> list[UsbDevice]:
    """The devices that are plugged in and have one of these ids."""
    ids = {f"{usb.vendor:04x}:{usb.product:04x}" for usb in wanted}
    if not sys.platform.startswith("linux"):
        return [
            UsbDevice(f"{one.vendor:04x}:{one.product:04x}", one.serial, Path(one.path))
            for one in serial_ports()
            if f"{one.vendor:04x}:{one.product:04x}" in ids
        ]
    found = []
    for folder in sorted(SYSFS.glob("*")):
        usb = f"{_fact(folder, 'idVendor')}:{_fact(folder, 'idProduct')}"
        if usb in ids:
            bus, number = _fact(folder, "busnum"), _fact(folder, "devnum")
            node = NODES / bus.zfill(3) / number.zfill(3)
            found.append(UsbDevice(usb, _fact(folder, "serial"), node))
    return found


def udev_rules(wanted: Sequence[UsbId]) -> list[Path]:
    """Files of rules that give rights to one of these devices."""
    found = []
    for path in (path for folder in RULES for path in sorted(folder.glob("*.rules"))):
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="replace").lower()
            lines = text.replace("\\\n", " ").splitlines()
            if any(_gives_rights(line, usb) for line in lines for usb in wanted):
                found.append(path)
    return found


def _gives_rights(rule: str, usb: UsbId) -> bool:
    has_product = "idproduct" not in rule or f'"{usb.product:04x}"' in rule
    has_rights = "mode" in rule or "uaccess" in rule
    return f'"{usb.vendor:04x}"' in rule and has_product and has_rights


def _fact(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
