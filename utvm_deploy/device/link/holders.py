"""Which other programs have a serial port open: two of them on one line cause odd errors."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_PROCESSES = Path("/proc")


def other_holders(port: str) -> list[str]:
    """Programs that have the port open, except this one: ``minicom (process 4711)``.

    Only those that this user may see. Empty for anything but a device file, and without /proc.
    """
    try:
        device = os.stat(port)
    except OSError:
        return []
    if not stat.S_ISCHR(device.st_mode):
        return []
    return [
        f"{_name(folder)} (process {folder.name})"
        for folder in sorted(_PROCESSES.glob("[0-9]*"), key=lambda one: int(one.name))
        if int(folder.name) != os.getpid() and _has_open(folder, device.st_rdev)
    ]


def _has_open(process: Path, device: int) -> bool:
    # Of other users' processes nothing is seen, and any may end meanwhile.
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found = descriptor.stat()
                if stat.S_ISCHR(found.st_mode) and found.st_rdev == device:
                    return True
    return False


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a program"
